"""What the heaps of other processes hold, apart from the memory they took: the evidence of a leak, or of none."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

_PROBE = Path(__file__).parent / "heap_probe"
_ANSWER_SECONDS = 10.0
_KEPT = ("OU", "MU")
"""Columns of `jstat -gc`, in KiB: old generation, into which a full collection moves all, and metaspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonHeap:
    """Of several processes together."""

    blocks: int
    """Of Python's own allocator."""
    native_mib: float
    """In use of the C library's heap, which holds large objects and those of C libraries."""
    types: Mapping[str, int]
    """How many objects there are that the collector knows, by type."""
    silent: int
    """How many of them live and did not answer."""


@contextmanager
def armed(folder: Path, **more: str) -> Iterator[None]:
    """Have every Python process that is started meanwhile say what it holds when asked, `more` in its environment."""
    path = os.pathsep.join(filter(None, (str(_PROBE), os.environ.get("PYTHONPATH"))))
    wanted = {"HEAP_FOLDER": str(folder), "PYTHONPATH": path, **more}
    with mock.patch.dict(os.environ, wanted):
        yield


def python_heap(pids: Iterable[int], folder: Path) -> PythonHeap:
    """Ask these processes; those that end meanwhile count nothing.

    Runs: blocks <= 10 s for each.
    """
    asked = {pid: _ask(pid, folder) for pid in pids}
    silent = sum(found is None and Path(f"/proc/{pid}").exists() for pid, found in asked.items())
    said = [found for found in asked.values() if found is not None]
    types: Counter[str] = Counter()
    for one in said:
        types.update(one["types"])
    native = sum(one["native_bytes"] for one in said) / (1 << 20)
    return PythonHeap(blocks=sum(one["blocks"] for one in said), native_mib=native, types=types, silent=silent)


def jvm_live_mib(pids: Iterable[int]) -> float | None:
    """Return what is left in the heaps and metaspaces of these JVMs after a full collection; None without a JDK.

    Runs: blocks for about a second for each.
    """
    if shutil.which("jcmd") is None or shutil.which("jstat") is None:
        return None
    return sum(map(_live_mib, pids))


def _ask(pid: int, folder: Path) -> dict[str, Any] | None:
    file = folder / f"{pid}.json"
    file.unlink(missing_ok=True)
    try:
        # Without a handler the signal would end it.
        caught = int(Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0], 16)
        if not caught >> (signal.SIGUSR2 - 1) & 1:
            return None
        os.kill(pid, signal.SIGUSR2)
        until = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < until and Path(f"/proc/{pid}").exists():
            if file.exists():
                found: dict[str, Any] = json.loads(file.read_text())
                return found
            time.sleep(0.02)
    except (OSError, IndexError):
        pass
    return None


def _live_mib(pid: int) -> float:
    def run(*command: str) -> str:
        try:
            return subprocess.run([*command], capture_output=True, text=True, check=False, timeout=30).stdout
        except subprocess.TimeoutExpired:
            return ""

    run("jcmd", str(pid), "GC.run")
    lines = run("jstat", "-gc", str(pid)).splitlines()
    if len(lines) < 2:  # a line of titles, one of values; or it has ended
        return 0.0
    columns = dict(zip(lines[0].split(), lines[1].split(), strict=False))
    return sum(float(columns.get(name, 0)) for name in _KEPT) / 1024
