"""A listener that counts connections from the moment they are accepted: before TLS, a token or a byte of a request.

When it is full, a TLS handshake that takes too long makes room, else the connection that has been idle the longest:
those being served stay. So silent connections, however many, keep nobody out.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from discovery.config.logs import event_log
from discovery.service.limits import LimitedProtocol

_SPARE = 32
"""Connections over the limit that still get a 503 where every other one is being served."""
_BREATH_SECONDS = 0.1
_HANDSHAKE_SECONDS = 5.0
"""Whoever takes longer for a TLS handshake makes room before those who have finished theirs."""
_COMPLAIN_SECONDS = 10.0
_EMPTY = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_log = event_log("discovery.service")


class Listener:
    """Accepts the connections of one socket. Event loop's thread only."""

    def __init__(self, name: str, limit: int, timeout_seconds: float) -> None:
        """Count from zero.

        Args:
            name: Of the listener, for log and metric: `api` or `probes`.
            limit: Connections that may be open at the same time.
            timeout_seconds: For a TLS handshake, and for a reader that takes nothing of what is written to it.
        """
        self.name = name
        self.limit = limit
        self._timeout_seconds = timeout_seconds
        self.idle: dict[LimitedProtocol, None] = {}
        """Connections without a request being served, the longest idle first; they enter and leave by themselves."""
        self.opened: set[LimitedProtocol] = set()
        self.accepted = self.evicted = self.refused = 0
        self._beginning: dict[asyncio.Task[None], float] = {}
        """TLS handshakes under way, the oldest first, and when each began (monotonic)."""
        self._complained_at = float("-inf")

    @property
    def connections(self) -> int:
        """How many are open now, TLS handshakes included."""
        return len(self.opened) + len(self._beginning)

    async def run(
        self, listening: socket.socket, make: Callable[[], LimitedProtocol], *, tls: Callable[[], ssl.SSLContext | None]
    ) -> None:
        """Accept until cancelled.

        Args:
            listening: A socket that listens, non-blocking.
            make: Returns the protocol of a new connection.
            tls: Asked at each connection, since it may be rotated; None: plain.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError as error:  # out of descriptors, most likely: who waits stays in the backlog
                    self._complain("cannot_accept", error=str(error))
                    if error.errno in _EMPTY:
                        self._evict()
                    await asyncio.sleep(_BREATH_SECONDS)
                    continue
                self.accepted += 1
                if self.connections >= self.limit:
                    self._complain("listener_full", limit=self.limit)
                    while self.connections >= self.limit and self._evict():
                        pass
                if self.connections >= self.limit + _SPARE:
                    self.refused += 1
                    connection.close()
                    continue
                _give_up_after(connection, self._timeout_seconds)
                task = asyncio.ensure_future(self._begin(connection, make, tls()))
                self._beginning[task] = time.monotonic()
                task.add_done_callback(lambda done: self._beginning.pop(done, None))
                await asyncio.sleep(0)  # `sock_accept` does not yield where somebody waits already
        finally:
            for task in list(self._beginning):
                task.cancel()

    async def _begin(
        self, connection: socket.socket, make: Callable[[], LimitedProtocol], tls: ssl.SSLContext | None
    ) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                make, connection, ssl=tls, ssl_handshake_timeout=self._timeout_seconds if tls else None
            )
        except OSError:  # no TLS, no certificate, or gone already
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _evict(self) -> bool:
        """Close the oldest handshake or the connection that has been idle the longest; False where there is neither."""
        oldest, began = next(iter(self._beginning.items()), (None, 0.0))
        if oldest is not None and (not self.idle or time.monotonic() - began >= _HANDSHAKE_SECONDS):
            del self._beginning[oldest]
            oldest.cancel()
        elif self.idle:
            next(iter(self.idle)).abort()
        else:
            return False
        self.evicted += 1
        return True

    def _complain(self, event: str, **facts: Any) -> None:
        """Log at most one line in ten seconds: whoever floods us would flood the log too."""
        now = time.monotonic()
        if now - self._complained_at >= _COMPLAIN_SECONDS:
            self._complained_at = now
            _log.warning(event, listener=self.name, open=self.connections, evicted=self.evicted, **facts)


def _give_up_after(connection: socket.socket, seconds: float) -> None:
    """Let the kernel end a connection whose reader takes nothing for so long: its answers would stay in our memory."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
