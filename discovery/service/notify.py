"""What systemd wants to hear: ready, alive, stopping. Datagrams to the socket it names; silence where it names none."""

import asyncio
import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from discovery.config.logs import event_log

_STATUS_SECONDS = 5.0
"""What `systemctl status` shows is no older."""

_log = event_log("discovery.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifier:
    """Where to tell, and how often systemd wants a sign of life; both None where systemd did not start us."""

    address: str | None = None
    watchdog_seconds: float | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Notifier":
        """Read what systemd put into the environment.

        Runs: anywhere. Source: sd_notify(3), sd_watchdog_enabled(3).
        """
        address = environment.get("NOTIFY_SOCKET")
        micros, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
        ours = address and micros.isdecimal() and int(micros) > 0 and pid == str(os.getpid())
        return cls(address=address or None, watchdog_seconds=int(micros) / 1e6 if ours else None)

    def tell(self, *lines: str) -> None:
        """Send state lines such as `READY=1`; a supervisor that does not listen is logged, never fatal.

        Runs: event loop's thread; does not block.
        """
        if self.address is None:
            return
        # A leading @ means Linux' abstract names.
        name = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), name)
        except OSError as error:
            _log.warning("supervisor_not_notified", lines=lines, error=str(error))

    async def keep_alive(self, status: Callable[[], tuple[bool, str]]) -> None:
        """Tell how we are, and that we live for as long as that is true; never returns.

        Every 5 s, and at least twice per watchdog period.

        Args:
            status: Whether all is well, and one line for `systemctl status`; asked on the event loop, so that a loop
                that hangs says nothing either.
        """
        while True:
            alive, said = status()
            self.tell(f"STATUS={said}", *(("WATCHDOG=1",) if alive and self.watchdog_seconds else ()))
            await asyncio.sleep(min(_STATUS_SECONDS, (self.watchdog_seconds or math.inf) / 2))
