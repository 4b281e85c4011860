"""A share of a processor for what a test starts, by the kernel's control groups (root needed)."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.support.helpers import eventually

_MOUNT = Path("/sys/fs/cgroup")
_PERIOD_MICROSECONDS = 100_000


@contextlib.contextmanager
def limited(cores: float) -> Iterator[list[str]]:
    """Yield words to put before a command: it and all it starts get so many cores together, and end with the block."""
    quota = int(cores * _PERIOD_MICROSECONDS)
    name = f"kafka-discovery-{uuid.uuid4().hex[:8]}"
    first_version = (_MOUNT / "cpu" / "cpu.cfs_quota_us").exists()
    group = _MOUNT / "cpu" / name if first_version else _MOUNT / name
    group.mkdir()
    try:
        if first_version:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (_MOUNT / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{quota} {_PERIOD_MICROSECONDS}")
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "limited"]
    finally:
        eventually(lambda: not _living(group), 30, f"the end of the processes in {group}")
        group.rmdir()


def _living(group: Path) -> list[str]:
    found = (group / "cgroup.procs").read_text().split()
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), 9)
    return found
