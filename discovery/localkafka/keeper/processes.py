"""A process is its id *and* its start time, so that a recycled id is never signalled."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """One process of this machine's current boot."""

    pid: int
    started: str
    """Start time as the system tells it: ticks since boot on Linux, `ps` text elsewhere."""


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process; None where there is none or it is only a zombie."""
    started = _linux_start(pid) if sys.platform == "linux" else _ps_start(pid)
    return ProcessIdentity(pid=pid, started=started) if started else None


def is_running(identity: ProcessIdentity) -> bool:
    """Tell whether exactly this process still runs (stopped counts as running)."""
    return identify(identity.pid) == identity


def send_signal(identity: ProcessIdentity, signal_number: int) -> bool:
    """Signal exactly this process; False where it is gone or its id belongs to another one now."""
    if not is_running(identity):
        return False
    try:
        os.kill(identity.pid, signal_number)
    except ProcessLookupError:
        return False
    return True


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, None where it is not known."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return None
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def _linux_start(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The command name may hold spaces and brackets: fields are counted after its last ')'.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{boot[:8]}-{fields[19]}"


def _ps_start(pid: int) -> str | None:
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
    )
    state, _, started = shown.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None
