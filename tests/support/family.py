"""The processes of one Spark application on Linux: who they are, how much memory and processor time they take."""

import os
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")


def jvm_of(spark: Any) -> int:
    """Return the process id of the session's JVM."""
    return int(spark.sparkContext._gateway.proc.pid)


def descendants(pid: int) -> tuple[int, ...]:
    """Return children, grandchildren and so on that live now."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    found, wave = [], {pid}
    while wave := {child for child, parent in parents.items() if parent in wave}:
        found += sorted(wave)
    return tuple(found)


def command_line(pid: int) -> str:
    """Return how a process was started; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def resident_mib(pid: int) -> float:
    """Return the memory a process holds; 0 once it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGESIZE") / (1 << 20)


def threads(pid: int) -> int:
    """Return how many threads a process has; 0 once it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - pathlib builds a path for each
    except OSError:
        return 0


def descriptors(pid: int) -> int:
    """Return how many files and sockets a process has open; 0 once it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    except OSError:
        return 0


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0
