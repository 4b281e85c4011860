"""Free ports that stay ours while a broker is dead.

A port cannot be held open for a process that has yet to bind it, so three things stand in for that: ports come from
below the system's ephemeral range (no outgoing connection takes one, and no client connects to itself while a broker
is down), each is reserved by a lock file for the life of the cluster (two of our clusters never share one), and
a broker that still meets a taken port is started again on another.
"""

import fcntl
import os
import random
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from discovery.core.errors import StateError

_LOWEST, _DEFAULT_HIGHEST = 15_000, 32_000
_ATTEMPTS = 2_000
_SHARED = Path("/tmp")  # noqa: S108 - only lock files, in a folder that belongs to one user


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A port and the locked file that marks it as ours; the lock lives as long as a copy of the descriptor."""

    port: int
    lock_file: Path
    lock_descriptor: int

    def share(self) -> None:
        """Let one more process hold the lock by a descriptor of its own; everybody else still finds the port taken."""
        fcntl.flock(self.lock_descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def release(self) -> None:
        """Close this process's copy of the lock."""
        os.close(self.lock_descriptor)


def reserve_ports(count: int, *, host: str = "127.0.0.1") -> tuple[Reservation, ...]:
    """Reserve `count` different ports that nobody listens on now.

    Raises:
        StateError: not enough free ports.

    Runs: any thread; some milliseconds.
    """
    found: dict[int, Reservation] = {}
    folder = _lock_folder()
    for port in random.sample(range(_LOWEST, _highest()), _ATTEMPTS):
        if len(found) == count:
            break
        reservation = _try_reserve(folder, host, port)
        if reservation:
            found[port] = reservation
    if len(found) < count:
        for reservation in found.values():
            reservation.release()
        raise StateError(
            f"only {len(found)} of {count} free ports found in {_LOWEST}..{_highest()}; stop other servers"
        )
    return tuple(found.values())


def _try_reserve(folder: Path, host: str, port: int) -> Reservation | None:
    file = folder / str(port)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            # As the broker does: a port in TIME_WAIT is free, one that is listened on is not.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError:
        os.close(descriptor)
        return None
    return Reservation(port=port, lock_file=file, lock_descriptor=descriptor)


def _lock_folder() -> Path:
    # The same for every session of this user, whatever TMPDIR says: else two sessions would not see each other's locks.
    folder = _SHARED if os.access(_SHARED, os.W_OK) else Path(tempfile.gettempdir())
    folder /= f"kafka-discovery-ports-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        owner = folder.stat().st_uid
    except OSError as error:
        raise StateError(f"cannot keep port locks in {folder}: {error.strerror}; make it writable") from error
    if owner != os.getuid():
        raise StateError(f"cannot keep port locks in {folder}: it belongs to user {owner}; remove it")
    return folder


def _highest() -> int:
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_HIGHEST
    return low if low >= _LOWEST + _ATTEMPTS else _DEFAULT_HIGHEST
