"""One client and its broker: bytes both ways until both have said all, or one of them is gone."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field

from discovery.core.model import BrokerAddress
from discovery.endpoint.counting import TO_BROKER, TO_CLIENT, Counts

_CHUNK_BYTES = 262_144
"""Taken from the socket at once; nothing is held for a connection on which nothing moves."""


@dataclass(eq=False, slots=True)
class Pipe:
    """A pair of connected sockets. Event loop's thread only."""

    client: socket.socket
    upstream: socket.socket
    address: BrokerAddress
    counts: Counts
    moved_at: float
    """Loop time of the last byte."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self) -> None:
        """Move bytes until the end; closes both sockets."""
        self._tasks = [
            asyncio.ensure_future(self._move(self.client, self.upstream, TO_BROKER)),
            asyncio.ensure_future(self._move(self.upstream, self.client, TO_CLIENT)),
        ]
        try:
            await asyncio.wait(self._tasks)
        finally:
            self.close()
            for task in self._tasks:
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await task
            self.client.close()
            self.upstream.close()

    def close(self) -> None:
        """End it now; both sides see the connection close."""
        for task in self._tasks:
            task.cancel()

    async def _move(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        loop, counted, key = asyncio.get_running_loop(), self.counts.moved_bytes, (str(self.address), direction)
        try:
            while data := await loop.sock_recv(source, _CHUNK_BYTES):
                self.moved_at = loop.time()
                counted[key] += len(data)
                await loop.sock_sendall(target, data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # A reset must reach the other side as an end, else it would wait for its own timeouts.
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
