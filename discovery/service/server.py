"""The process: sockets first, then the loops; signals, reloads, and an end within five seconds."""

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from discovery.config.logs import event_log
from discovery.config.threads import in_thread
from discovery.core.errors import BUG_PHRASE, ConfigError, DiscoveryError
from discovery.service.app import api_app, probe_app
from discovery.service.health import live, ready
from discovery.service.limits import LimitedProtocol, protocol
from discovery.service.listener import Listener
from discovery.service.metrics import registry
from discovery.service.notify import Notifier
from discovery.service.service import Service

_ANSWER_SECONDS = 1.5
"""How long running requests may take once the end was asked for."""
_LOOPS_SECONDS = 2.0
_LOOK_SECONDS = 2.0
"""How often the configuration and the files it names are looked at."""
_BACKLOG = 4_096
_log = event_log("discovery.service")


class _Server(uvicorn.Server):
    """uvicorn without listeners and signal handlers of its own: two of them run here, and the end is ours to order."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: Listener,
        listening: socket.socket,
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        super().__init__(config)
        self._tls = tls
        self._listener = listener
        self._listening = listening
        self._leaving = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; connections are accepted by our own listener, which counts them."""
        del sockets
        self.servers = []
        self._listening.listen(_BACKLOG)
        self.started = True

    async def main_loop(self) -> None:
        """Accept until the end; uvicorn's own looks ten times a second for signals, a date and limits not used here."""
        accepting = asyncio.ensure_future(self._listener.run(self._listening, self._protocol, tls=self._tls))
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            await self.on_tick(0)
            await asyncio.wait({accepting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if accepting.done():
                accepting.result()
        finally:
            accepting.cancel()
            leaving.cancel()
            self._listening.close()

    def leave(self) -> None:
        """Order the end. Runs: the event loop's thread."""
        self.should_exit = True
        self._leaving.set()

    def _protocol(self) -> LimitedProtocol:
        made = self.config.http_protocol_class(config=self.config, server_state=self.server_state, app_state={})  # type: ignore[call-arg]
        assert isinstance(made, LimitedProtocol)  # noqa: S101 - the class this server was configured with
        return made


async def serve(
    service: Service,
    *,
    on_listening: Callable[[str, str], None],
    notifier: Notifier | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        service: What to serve; opened and stopped here.
        on_listening: Hears the addresses of the API and of the probes, `host:port`, once both answer.
        notifier: The supervisor that wants to know when we are ready and that we live; None: nobody.

    Raises:
        ConfigError: an address cannot be listened on, a file cannot be read, client options are refused.
        StateError: another service holds the state folder.

    Runs: the main thread; returns within 5 s of the signal.
    """
    seen = await in_thread(partial(service.look, service.settings))  # a change since they were read must not be missed
    stop = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()
    _on_signals(service, stop, tasks)
    if not await _until(service.open(), stop):
        return
    settings, supervisor = service.settings, notifier or Notifier()

    async def live() -> None:
        await _until_started(api, probes)
        service.open_endpoint()
        service.listening = True
        on_listening(_named(api_socket), _named(probe_socket))
        supervisor.tell("READY=1")  # before Kafka answers: units that wait for us must not wait for it
        if supervisor.address is not None:
            tasks.add(asyncio.ensure_future(supervisor.keep_alive(lambda: _status(service))))
        await service.start()
        await _watch_files(service, seen)

    with (
        _listen(settings.api.host, settings.api.port, "api") as api_socket,
        _listen(settings.probes.host, settings.probes.port, "probes") as probe_socket,
    ):
        api = _server(service, api_app(service), service.api_listener, api_socket, lambda: service.opened.tls)
        probes = _server(service, probe_app(service, registry(service)), service.probe_listener, probe_socket)
        running = [asyncio.ensure_future(server.serve()) for server in (api, probes)]
        try:
            await _until(live(), stop, *running)
        finally:
            supervisor.tell("STOPPING=1")
            for task in tasks:
                task.cancel()
            service.release_waiters()
            api.leave()
            probes.leave()
            await asyncio.gather(service.stop(_LOOPS_SECONDS), *running, return_exceptions=True)
            _log.info("stopped")


async def _until(work: Coroutine[Any, Any, None], stop: asyncio.Event, *running: asyncio.Task[None]) -> bool:
    """Do the work until its end, the order to end, or the end of what must go on meanwhile, whichever is first.

    Returns:
        Whether the work was done.

    Raises:
        Exception: what the work, or what must go on, raised.
    """
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping, *running}, return_when=asyncio.FIRST_COMPLETED)
        for one in (working, *running):
            if one.done():
                one.result()
        return working.done()
    finally:
        working.cancel()
        stopping.cancel()


def _status(service: Service) -> tuple[bool, str]:
    """Say whether the loops turn, and how each cluster is doing."""
    health = service.health()
    return all(check.ok for check in live(health)), "; ".join(check.reason for check in ready(health))


def _server(
    service: Service,
    app: ASGIApp,
    listener: Listener,
    listening: socket.socket,
    tls: Callable[[], ssl.SSLContext | None] = lambda: None,
) -> _Server:
    api = service.settings.api
    config = uvicorn.Config(
        app,
        http=protocol(
            header_max_bytes=api.header_max_bytes,
            request_timeout_seconds=api.request_timeout_seconds,
            idle=listener.idle,
            opened=listener.opened,
        ),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=listener.limit + 1,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_ANSWER_SECONDS,  # type: ignore[arg-type]
    )
    config.load()
    return _Server(config, listener, listening, tls)


@contextlib.contextmanager
def _listen(host: str, port: int, section: str) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named; else every answer's second half waits 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"{section}.port: {host}:{port} cannot be listened on: {error.strerror or error};"
                f" choose another {section}.host or {section}.port"
            ) from error
        listener.setblocking(False)
        yield listener


def _named(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _until_started(*servers: _Server) -> None:
    while not all(server.started for server in servers):  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.005)


def _on_signals(service: Service, stop: asyncio.Event, tasks: set[asyncio.Task[None]]) -> None:
    """Signals only set flags or start tasks; nothing is done inside a handler."""
    loop = asyncio.get_running_loop()

    def reload() -> None:
        task = asyncio.ensure_future(_reload(service, "SIGHUP"))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)


async def _reload(service: Service, asked_by: str) -> None:
    try:
        await asyncio.shield(service.reload(asked_by))  # half of one would leave loops that nobody stops
    except (DiscoveryError, OSError):
        return  # logged and counted where it happened
    except Exception:  # noqa: BLE001 - a reload must never end the service
        _log.exception("bug", sentence=BUG_PHRASE, where=f"reload after {asked_by}")


async def _watch_files(service: Service, seen: object) -> None:
    """Reload when a file's content changes, for ever; looked at, not subscribed to: Kubernetes swaps links."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        found = await in_thread(service.look)
        if found != seen:
            seen = found
            await _reload(service, "a change of a file")
