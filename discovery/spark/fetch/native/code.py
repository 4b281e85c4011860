"""The machine code of the loops: made once per machine, kept in the user's cache folder, loaded without a compiler.

A worker that finds it loads an object file through llvmlite and never imports numba, which would cost it half a second
and 70 MB. It is checked for being whole, and refused where anybody else could have written it.
"""

import ctypes
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
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
    path = code_path()
    kept = _read(path)
    machine_code = kept or _compile_and_keep(path)
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    loops = {name: _LOOP(engine.get_function_address(f"kafka_discovery_{name}")) for name in NAMES}
    return Code(**loops, was_compiled=kept is None, engine=engine)


def code_path() -> Path:
    """Return where the code is kept: below `$XDG_CACHE_HOME`, or `~/.cache` without it; one file per version and CPU.

    Runs: anywhere.
    """
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - a home may be missing
    if not os.path.isabs(root):  # noqa: PTH117
        # Nobody knows whose the working directory is.
        root = f"{tempfile.gettempdir()}/kafka-discovery-{os.geteuid()}"
    sources = [source.read_bytes() for source in sorted(Path(__file__).parent.glob("*.py"))]
    made_by = [version("llvmlite"), version("numba"), *host()]
    name = hashlib.sha256(b"\0".join([*sources, *(text.encode() for text in made_by)])).hexdigest()[:16]
    return Path(root) / "kafka-discovery" / "code" / f"fetch-{name}.o"


def host() -> tuple[str, str, str]:
    """Name what the code is made for: triple, processor and its features.

    Runs: anywhere.
    """
    return llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _read(path: Path) -> bytes | None:
    try:
        if not _is_ours(path.parent.lstat()):
            _log.warning("%s can be written by others: the code kept there is not loaded", path.parent)
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


def _compile_and_keep(path: Path) -> bytes:
    from discovery.spark.fetch.native.compile import compiled  # noqa: PLC0415 - imports numba

    machine_code = compiled()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(machine_code).digest() + machine_code)
        Path(file.name).replace(path)
    except OSError as error:
        _log.warning("compiled code cannot be kept in %s (%s): every worker compiles for some seconds", path, error)
    return machine_code
