"""The TCP service beside the driver through which workers ask where their ranges end."""

import contextlib
import hmac
import logging
import secrets
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

from discovery.core.errors import BUG_PHRASE, ArbiterError, LedgerFencedError, StateError, WireError
from discovery.spark.source.cuts.coordinator import RangeCoordinator
from discovery.spark.source.cuts.rules import Batch
from discovery.spark.source.cuts.wire import (
    MAGIC,
    TOKEN_BYTES,
    pack_ends,
    receive,
    receive_frame,
    send_frame,
    unpack_ends,
)

_log = logging.getLogger("kafka_discovery.source")
_MAX_CONNECTIONS = 512
"""Of workers, which have shown the token; as many more may not have shown it yet."""
_MOST_CHARACTERS = 300
_READ_SECONDS = 5.0
"""How long one connection may keep a thread waiting for its next byte."""


class CoordinatorServer:
    """Answers workers on daemon threads. Who does not know the token gets no answer; garbage costs its connection."""

    def __init__(self, coordinator: RangeCoordinator, *, host: str | None = None, port: int = 0) -> None:
        """Remember what to serve; opens nothing.

        Args:
            coordinator: Who decides.
            host: Where workers will connect; a loopback name is bound alone, for any other all addresses are, since
                a driver's public name need not be an address of this host. None: all.
            port: 0 for any free one.
        """
        self.token = secrets.token_bytes(TOKEN_BYTES)
        self._coordinator = coordinator
        self._host = host
        self._wanted_port = port
        self._server: _Server | None = None

    @property
    def port(self) -> int:
        """Return where it listens."""
        assert self._server is not None  # noqa: S101 - ensured by the caller
        return int(self._server.socket.getsockname()[1])

    def start(self) -> None:
        """Listen and serve in the background.

        Raises:
            StateError: the port cannot be had.

        Runs: driver, once.
        """
        try:
            self._server = _Server(_listen(self._host, self._wanted_port), self._coordinator, self.token)
        except OSError as error:
            raise StateError(
                f"coordinatorPort: cannot listen on {self._wanted_port}: {error}; name a free port, or leave it out"
            ) from error
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="cut-coordinator", daemon=True).start()

    def stop(self) -> None:
        """Listen no more; a second call does nothing."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _listen(host: str | None, port: int) -> socket.socket:
    if host is not None and _is_loopback(host):
        return socket.create_server((host, port))
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("0.0.0.0", port))  # noqa: S104 - workers come from other hosts; the token guards it


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.")


class _Server(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """Threads of `socketserver` over a socket that listens already."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, coordinator: RangeCoordinator, token: bytes) -> None:
        super().__init__(listener.getsockname(), _Handler)
        self.socket = listener
        self.coordinator = coordinator
        self.token = token
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._unproven: dict[socket.socket, None] = {}
        """Who has not shown the token yet, the oldest first."""
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self.socket.fileno()

    def get_request(self) -> tuple[socket.socket, Any]:
        return self.socket.accept()

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - the base class's signature
        """Let everybody in; where too many have shown nothing, the oldest of them goes."""
        with self._lock:
            if len(self._unproven) >= _MAX_CONNECTIONS:
                oldest = next(iter(self._unproven))
                del self._unproven[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._unproven[request] = None
        return True

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._unproven.pop(request, None)

    @contextlib.contextmanager
    def slot(self, request: socket.socket) -> Iterator[None]:
        """Count a connection as a worker's, once it has shown the token.

        Raises:
            WireError: too many workers ask, for too long.
        """
        self._forget(request)
        if not self._slots.acquire(timeout=_READ_SECONDS):
            raise WireError(f"{_MAX_CONNECTIONS} workers ask at once")
        try:
            yield
        finally:
            self._slots.release()

    def close_request(self, request: Any) -> None:
        self._forget(request)
        request.close()

    def server_close(self) -> None:
        self.socket.close()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        _log.exception("%s: a question of a worker failed", BUG_PHRASE)


class _Handler(socketserver.BaseRequestHandler):
    """One question, one answer."""

    server: _Server

    def handle(self) -> None:
        connection: socket.socket = self.request
        connection.settimeout(_READ_SECONDS)
        try:
            greeting = receive(connection, len(MAGIC) + TOKEN_BYTES)
            if not hmac.compare_digest(greeting, MAGIC + self.server.token):
                return
            with self.server.slot(connection):
                send_frame(connection, self._answer(receive_frame(connection)))
        except (WireError, OSError) as error:
            _log.debug("a connection to the coordinator came to nothing: %s", error)

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        coordinator = self.server.coordinator
        asked, starts = unpack_ends(question.get("ranges")), unpack_ends(question.get("starts", []))
        plan = question.get("plan")
        if not isinstance(plan, int):
            raise WireError("no plan")
        if isinstance(said := question.get("plain_engine"), str):
            coordinator.plain_engine = said[:_MOST_CHARACTERS]
        settle = coordinator.decide if question.get("do") == "decide" else coordinator.known
        try:
            ends = settle(plan, asked, _batch(question), starts)
        except (ArbiterError, LedgerFencedError) as error:
            return {"refused": str(error)}
        except StateError as error:
            return {"failed": str(error)}
        return {"ends": pack_ends(ends)}


def _batch(question: dict[str, Any]) -> Batch | None:
    query, number = question.get("query"), question.get("batch")
    return Batch(query, number) if isinstance(query, str) and isinstance(number, int) else None
