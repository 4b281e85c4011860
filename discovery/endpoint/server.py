"""The endpoint: listens on loopback and leads each client to a guarded broker. A thread and an event loop of its own.

A thread of its own, for a full pipe must not delay the API, nor a big page of the API a client's first byte.
"""

import asyncio
import contextlib
import contextvars
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from discovery.config.descriptors import allow, is_ours
from discovery.config.logs import event_log
from discovery.core.errors import BUG_PHRASE, ConfigError
from discovery.core.model import BrokerAddress
from discovery.endpoint.counting import ENDING, LIMIT, NO_UPSTREAM, Counts
from discovery.endpoint.guards import Guards, Prover
from discovery.endpoint.limits import Limits
from discovery.endpoint.names import Finding
from discovery.endpoint.pipe import Pipe
from discovery.endpoint.race import race
from discovery.feed.base import FeedView

_BACKLOG = 1_024
_REAP_SECONDS = 5.0
_START_SECONDS = 30.0
_QUIET_SECONDS = 0.2
"""An exchange is over when nothing has moved for so long."""
_COMPLAIN_SECONDS = 10.0
_BREATH_SECONDS = 0.05
_SPARE_FILES = 256
_log = event_log("discovery.endpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointView:
    """An endpoint at one moment."""

    address: str
    ready: tuple[BrokerAddress, ...]
    sticky: BrokerAddress | None
    connections: int
    findings: tuple[Finding, ...]


class Endpoint:
    """Owns the listener from `start` to `stop`. Thread-safe; the constructor does no I/O."""

    def __init__(self, view: Callable[[], FeedView | None], prover: Prover, limits: Limits | None = None) -> None:
        """Remember where the picture of the cluster comes from; `view` must answer from memory."""
        self.limits = limits or Limits()
        self.counts = Counts()
        self.address = ""
        """`host:port`, once started."""
        self._view = view
        self._prover = prover
        self._guards: Guards | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._pipes: set[Pipe] = set()
        self._waiting = 0
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._complained_at = float("-inf")

    def start(self) -> str:
        """Listen; returns the address, `host:port`.

        Raises:
            ConfigError: the address cannot be listened on.

        Runs: any thread, once; blocks for milliseconds.
        """
        listener = _listen(self.limits.host, self.limits.port)
        wanted = 2 * self.limits.connections_max + _SPARE_FILES  # each client needs two
        if (allowed := allow(wanted)) < wanted:
            _log.warning("few_files", limit=allowed, wanted=wanted, remedy="raise the limit of open files (ulimit -n)")
        host, port = listener.getsockname()[:2]
        self.address = str(BrokerAddress(host, port))
        up = threading.Event()
        context = contextvars.copy_context()  # what is on the caller's log lines is on all of the endpoint's
        self._thread = threading.Thread(
            target=context.run, args=(self._run, listener, up), name="kafka-discovery endpoint", daemon=True
        )
        self._thread.start()
        if not up.wait(_START_SECONDS):
            raise ConfigError(f"endpoint: {self.address} did not begin to serve within {_START_SECONDS:g} s; try again")
        _log.info("endpoint_listening", address=self.address)
        return self.address

    def stop(self) -> None:
        """Take no more clients, let exchanges under way end, close the rest; a second call does nothing.

        Runs: any thread; blocks <= `drain_seconds` + 1.
        """
        loop, stop, thread = self._loop, self._stop, self._thread
        if loop is None or stop is None or thread is None:
            return
        with contextlib.suppress(RuntimeError):  # its loop is closed already
            loop.call_soon_threadsafe(stop.set)
        thread.join(self.limits.drain_seconds + 2.0)

    def shown(self) -> EndpointView:
        """Return what it does at this moment; from memory."""
        guards = self._guards
        return EndpointView(
            address=self.address,
            ready=tuple(address for address, _ in guards.ready) if guards else (),
            sticky=guards.sticky if guards else None,
            connections=len(self._pipes),
            findings=tuple(guards.findings.values()) if guards else (),
        )

    def use_prover(self, prover: Prover) -> None:
        """Prove brokers in another way from now on: other client options. Runs: any thread."""
        self._prover = prover
        if self._guards is not None:
            self._guards.prover = prover

    def wait_ready(self, seconds: float) -> bool:
        """Wait until a client would be led to a broker; False after the timeout. Runs: any thread but its own."""
        loop, guards = self._loop, self._guards
        if loop is None or guards is None:
            return False
        return bool(asyncio.run_coroutine_threadsafe(guards.wait_ready(seconds), loop).result(seconds + 5))

    def _run(self, listener: socket.socket, up: threading.Event) -> None:
        with listener:
            asyncio.run(self._serve(listener, up))

    async def _serve(self, listener: socket.socket, up: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._guards = Guards(self._view, self._prover, self.limits, self.counts, on_lost=self._cut)
        self._guards.port = listener.getsockname()[1]
        up.set()
        self._loop.add_reader(listener, self._accept, listener)
        tasks = [asyncio.ensure_future(supervised(work, self._stop)) for work in (self._guards.run, self._reap)]
        await self._stop.wait()
        self._loop.remove_reader(listener)
        listener.close()
        await self._drain()
        for task in [*tasks, *(one for one in asyncio.all_tasks() if one is not asyncio.current_task())]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _log.info("endpoint_stopped", address=self.address)

    def _accept(self, listener: socket.socket) -> None:
        """Take one client. A callback: `sock_accept` that is cancelled loses the client it has just taken."""
        loop = asyncio.get_running_loop()
        try:
            client, _ = listener.accept()
        except BlockingIOError:  # it went away
            return
        except OSError as error:  # out of descriptors, most likely: those who wait stay in the queue
            self._complain("cannot_accept", error=str(error))
            loop.remove_reader(listener)
            loop.call_later(0.1, self._accept_again, listener)
            return
        task = asyncio.ensure_future(self._serve_client(client))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)
        task.add_done_callback(lambda _: client.close())  # also where it was cancelled before it began

    def _accept_again(self, listener: socket.socket) -> None:
        if self._stop is not None and not self._stop.is_set():
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    async def _serve_client(self, client: socket.socket) -> None:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._pipes) + self._waiting >= self.limits.connections_max:
            self._turn_away(LIMIT, limit=self.limits.connections_max)
            return
        pipe = await self._pipe(client)
        if pipe is None:
            return
        self._pipes.add(pipe)
        try:
            await pipe.run()
        finally:
            self._pipes.discard(pipe)
            self.counts.open_now[str(pipe.address)] -= 1

    async def _pipe(self, client: socket.socket) -> Pipe | None:
        """Find the client its broker; nothing is read from it before."""
        assert self._guards is not None  # noqa: S101 - made before anybody is accepted
        loop, limits, guards = asyncio.get_running_loop(), self.limits, self._guards
        began = loop.time()
        self._waiting += 1
        try:
            while (left := began + limits.hold_seconds - loop.time()) > 0:
                ready = guards.ready or await guards.wait_ready(left)
                won = await race(
                    ready[: limits.attempts_max],
                    every_seconds=limits.attempt_every_seconds,
                    timeout_seconds=limits.attempt_timeout_seconds,
                    on_failure=self._failed,
                )
                if won is not None and guards.still_stands(won[0], dict(ready)[won[0]]):
                    return self._joined(client, *won, seconds=loop.time() - began)
                if won is not None:
                    won[1].close()
                await asyncio.sleep(_BREATH_SECONDS)
        finally:
            self._waiting -= 1
        self._turn_away(NO_UPSTREAM, waited_seconds=limits.hold_seconds)
        return None

    def _joined(
        self, client: socket.socket, address: BrokerAddress, upstream: socket.socket, *, seconds: float
    ) -> Pipe:
        assert self._guards is not None  # noqa: S101 - as above
        if self._guards.sticky != address:
            before, self._guards.sticky = self._guards.sticky, address
            _log.info("upstream_chosen", upstream=str(address), before=str(before) if before else None)
        self.counts.connected(str(address), seconds)
        now = asyncio.get_running_loop().time()
        return Pipe(client=client, upstream=upstream, address=address, counts=self.counts, moved_at=now)

    def _failed(self, address: BrokerAddress, error: BaseException) -> None:
        self.counts.connect_failures[str(address)] += 1
        if is_ours(error):  # no fault of the broker's
            self._complain("cannot_connect", error=str(error))
        elif self._guards is not None:
            self._guards.broken(address)

    def _cut(self, address: BrokerAddress) -> None:
        """End all pipes to a broker that is gone: their clients connect again and get another one."""
        for pipe in [pipe for pipe in self._pipes if pipe.address == address]:
            pipe.close()

    def _turn_away(self, reason: str, **facts: Any) -> None:
        self.counts.turned_away[reason] += 1
        self._complain("client_turned_away", reason=reason, total=self.counts.turned_away[reason], **facts)

    def _complain(self, event: str, **facts: Any) -> None:
        """Log at most one line in ten seconds: clients try again many times a second."""
        now = time.monotonic()
        if now - self._complained_at >= _COMPLAIN_SECONDS:
            self._complained_at = now
            _log.warning(event, **facts)

    async def _reap(self) -> None:
        """Close what has been idle for too long."""
        while True:
            await asyncio.sleep(min(_REAP_SECONDS, self.limits.idle_seconds / 4))
            oldest = asyncio.get_running_loop().time() - self.limits.idle_seconds
            for pipe in [pipe for pipe in self._pipes if pipe.moved_at < oldest]:
                pipe.close()

    async def _drain(self) -> None:
        """Close each pipe once it is quiet; all of them when time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.drain_seconds
        while self._pipes and loop.time() < deadline:
            for pipe in [pipe for pipe in self._pipes if loop.time() - pipe.moved_at > _QUIET_SECONDS]:
                pipe.close()
            await asyncio.sleep(0.02)
        self.counts.turned_away[ENDING] += self._waiting
        for pipe in list(self._pipes):
            pipe.close()
        await asyncio.sleep(0)


async def supervised(work: Callable[[], object], stop: asyncio.Event) -> None:
    """Run something that must not end; an exception nobody expected is logged, and it starts again."""
    while not stop.is_set():
        try:
            await work()  # type: ignore[misc]
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - clients of many processes hang on this one thread
            _log.exception("bug", sentence=BUG_PHRASE, where="the bootstrap endpoint")
            await asyncio.sleep(0.5)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"endpoint.port: {host}:{port} cannot be listened on: {error.strerror or error}; is another endpoint"
            " running on this host? choose another endpoint.port (0: any free one)"
        ) from error
    return listener
