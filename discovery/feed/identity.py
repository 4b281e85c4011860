"""A name for this process that tells others on its host whether it still lives."""

import hashlib
import os
import socket
from pathlib import Path

_PARTS = 5
_ENDED = frozenset("ZXx")
"""States of a process that will never run again."""
_NO_PLACE = "0"


def instance_name() -> str:
    """Return a name nobody else has: host, where its process ids count, process id, its start, and chance.

    Runs: anywhere; reads four small files of `/proc` where there is one.
    """
    pid = os.getpid()
    return "-".join((socket.gethostname()[:64], _place(), str(pid), _started(pid) or "0", os.urandom(3).hex()))


def is_surely_dead(instance: str) -> bool:
    """Tell whether the process of that name ran here and has ended; False also where that cannot be known.

    Args:
        instance: From `instance_name`, by whatever process on whatever host.

    Runs: anywhere; reads four small files.
    """
    parts = instance.rsplit("-", _PARTS - 1)
    if len(parts) != _PARTS or not parts[2].isdigit():
        return False
    host, place, pid, started, _ = parts
    here = _place()
    if (host, place) != (socket.gethostname()[:64], here) or _NO_PLACE in {here, started}:
        return False
    return _started(int(pid)) != started


def _place() -> str:
    """Name this boot of this machine and the namespace of its process ids: two containers may share a host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return _NO_PLACE
    return hashlib.sha256(f"{boot}{namespace}".encode()).hexdigest()[:8]


def _started(pid: int) -> str | None:
    """Return when a process began, in ticks since the boot; None where it has ended: ids are used again."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = status.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in _ENDED else fields[19]
