"""The machine code of the loops: made once per machine, kept in the user's cache folder, loaded without a compiler.

A worker that finds it loads an object file through llvmlite and never imports numba, which would cost it half a second
and 70 MB. It is checked for being whole, and refused where anybody else could have written it.
"""

import ctypes
import fcntl
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_int64
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

_log = logging.getLogger("kafka_discovery.fetch")
_Loop = Callable[[int, int, int, int], int]
_LOOP = ctypes.CFUNCTYPE(c_int64, c_int64, c_int64, c_int64, c_int64)
NAMES = ("scan", "measure_headers", "fill_headers", "fill")
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The compiled loops of `kernel`."""

    scan: _Loop
    measure_headers: _Loop
    fill_headers: _Loop
    fill: _Loop
    was_compiled: bool
    """Whether this process had to compile, for want of kept code."""
    engine: Any
    """Owns the memory that the loops lie in."""


@cache
def code() -> Code:
    """Load the loops, or compile and keep them.

    Runs: worker, once per process; 20 ms, or some seconds the first time on a machine.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine_code, was_compiled = _kept_or_compiled()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    loops = {name: _LOOP(engine.get_function_address(f"kafka_discovery_{name}")) for name in NAMES}
    return Code(**loops, was_compiled=was_compiled, engine=engine)


def code_paths() -> tuple[Path, ...]:
    """Return where the code may be kept, the best place first; one file per version and CPU.

    Below `$XDG_CACHE_HOME`, or `~/.cache` without it; where that cannot be written, in the folder for temporary files.

    Runs: anywhere.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - a home may be missing
    # Nobody knows whose the working directory is, so no relative one is taken.
    roots = [cache] if os.path.isabs(cache) else []  # noqa: PTH117
    roots.append(f"{tempfile.gettempdir()}/kafka-discovery-{os.geteuid()}")
    sources = [source.read_bytes() for source in sorted(Path(__file__).parent.glob("*.py"))]
    made_by = [version("llvmlite"), version("numba"), *host()]
    name = hashlib.sha256(b"\0".join([*sources, *(text.encode() for text in made_by)])).hexdigest()[:16]
    return tuple(Path(root) / "kafka-discovery" / "code" / f"fetch-{name}.o" for root in roots)


def host() -> tuple[str, str, str]:
    """Name what the code is made for: triple, processor and its features.

    Runs: anywhere.
    """
    return llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _read(path: Path) -> bytes | None:
    try:
        if not _is_ours(path.parent.lstat()):
            return None
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            data = file.read() if _is_ours(os.fstat(file.fileno())) else b""
    except OSError:
        return None
    digest, machine_code = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return machine_code if machine_code and hashlib.sha256(machine_code).digest() == digest else None


def _is_ours(status: os.stat_result) -> bool:
    """Tell whether nobody but this user can have written it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _kept_or_compiled() -> tuple[bytes, bool]:
    """Return the machine code, and whether this process compiled it: one on a host does, the others wait for it."""
    made: bytes | None = None
    failures = []
    for path in code_paths():
        try:
            if kept := _read(path):
                return kept, False
            with _alone(path):
                if kept := _read(path):
                    return kept, False
                made = made or _compiled()
                _keep(path, made)
                return made, True
        except OSError as error:
            failures.append(str(error))
    _log.warning(
        "every worker compiles for some seconds, since the code cannot be kept (%s): name a folder that can be written"
        " by XDG_CACHE_HOME",
        "; ".join(failures),
    )
    return made or _compiled(), True


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process at a time compile; the lock ends with its holder."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_ours(path.parent.lstat()):
        raise PermissionError(f"{path.parent} can be written by others")
    flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path.with_suffix(".lock"), flags, 0o600), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _keep(path: Path, machine_code: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(hashlib.sha256(machine_code).digest() + machine_code)
    Path(file.name).replace(path)


def _compiled() -> bytes:
    from discovery.spark.fetch.native.compile import compiled  # noqa: PLC0415 - imports numba

    return compiled()
