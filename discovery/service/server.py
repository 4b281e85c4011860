"""The process: sockets first, then the loops; signals, reloads, and an end within five seconds."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import structlog
import uvicorn
from starlette.types import ASGIApp

from discovery.core.errors import BUG_PHRASE, ConfigError, DiscoveryError
from discovery.service.app import api_app, probe_app
from discovery.service.health import live, ready
from discovery.service.limits import protocol
from discovery.service.metrics import registry
from discovery.service.notify import Notifier
from discovery.service.service import Service
from discovery.service.workers import in_thread

_ANSWER_SECONDS = 1.5
"""How long running requests may take once the end was asked for."""
_LOOPS_SECONDS = 2.0
_LOOK_SECONDS = 2.0
"""How often the configuration file is looked at."""
_PROBE_CONNECTIONS = 256
_Stamp = tuple[int, int, int]
_log = structlog.get_logger("discovery.service")


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: two of them run here, and the end is ours to order."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """Wait for the end; uvicorn's own looks ten times a second for signals, a date and limits not used here."""
        await self.on_tick(0)
        await self._leaving.wait()

    def leave(self) -> None:
        """Order the end. Runs: the event loop's thread."""
        self.should_exit = True
        self._leaving.set()


async def serve(
    service: Service,
    *,
    config: Path | None,
    on_listening: Callable[[str, str], None],
    notifier: Notifier | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        service: What to serve; opened and stopped here.
        config: The file whose change means a reload; None: none.
        on_listening: Hears the addresses of the API and of the probes, `host:port`, once both answer.
        notifier: The supervisor that wants to know when we are ready and that we live; None: nobody.

    Raises:
        ConfigError: an address cannot be listened on, a token cannot be read, client options are refused.
        StateError: another service holds the state folder.

    Runs: the main thread; returns within 5 s of the signal.
    """
    seen = _stamp(config) if config is not None else None  # a change while we start must not be missed
    await service.open()
    stop = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()
    _on_signals(service, stop, tasks)
    settings, supervisor = service.settings, notifier or Notifier()
    with (
        _listen(settings.api.host, settings.api.port, "api") as api_socket,
        _listen(settings.probes.host, settings.probes.port, "probes") as probe_socket,
    ):
        api = _server(service, api_app(service), connections=settings.api.connections_max, tls=True)
        probes = _server(service, probe_app(service, registry(service)), connections=_PROBE_CONNECTIONS)
        running = [
            asyncio.ensure_future(api.serve([api_socket])),
            asyncio.ensure_future(probes.serve([probe_socket])),
        ]
        try:
            await _until_started(api, probes)
            service.open_endpoint()
            service.listening = True
            on_listening(_named(api_socket), _named(probe_socket))
            supervisor.tell("READY=1")  # before Kafka answers: units that wait for us must not wait for it
            if supervisor.address is not None:
                tasks.add(asyncio.ensure_future(supervisor.keep_alive(lambda: _status(service))))
            await _start_unless_stopped(service, stop)
            tasks.add(asyncio.ensure_future(_watch_file(service, config, seen)))
            await stop.wait()
        finally:
            supervisor.tell("STOPPING=1")
            for task in tasks:
                task.cancel()
            service.release_waiters()
            api.leave()
            probes.leave()
            await asyncio.gather(service.stop(_LOOPS_SECONDS), *running)
            _log.info("stopped")


async def _start_unless_stopped(service: Service, stop: asyncio.Event) -> None:
    """Begin to follow; the order to end does not wait for it."""
    starting, stopping = asyncio.ensure_future(service.start()), asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        starting.result()
    else:
        starting.cancel()


def _status(service: Service) -> tuple[bool, str]:
    """Say whether the loops turn, and how each cluster is doing."""
    health = service.health()
    return all(check.ok for check in live(health)), "; ".join(check.reason for check in ready(health))


def _server(service: Service, app: ASGIApp, *, connections: int, tls: bool = False) -> _Server:
    api = service.settings.api
    config = uvicorn.Config(
        app,
        http=protocol(header_max_bytes=api.header_max_bytes, request_timeout_seconds=api.request_timeout_seconds),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=connections,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_ANSWER_SECONDS,  # type: ignore[arg-type]
        backlog=4096,
        ssl_certfile=api.tls_certificate_file if tls else None,
        ssl_keyfile=api.tls_key_file if tls else None,
    )
    return _Server(config)


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


async def _reload(service: Service, why: str) -> None:
    try:
        await service.reload()
    except (DiscoveryError, OSError):
        return  # told and counted where it happened
    except Exception:  # noqa: BLE001 - a reload must never end the service
        _log.exception("bug", sentence=BUG_PHRASE, where=f"reload after {why}")


async def _watch_file(service: Service, config: Path | None, seen: _Stamp | None) -> None:
    """Reload when the file changes; looked at, not subscribed to: Kubernetes swaps links under it."""
    if config is None:
        return
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        stamp = await in_thread(partial(_stamp, config))
        if stamp not in (seen, None):
            seen = stamp
            await _reload(service, "a change of the file")


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)
