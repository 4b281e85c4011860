"""A byte-level proxy before real brokers that loses, delays, repeats or replaces single requests and replies.

Besides, all answers of a broker may be made slow.

Clients find it by metadata: in the answers that name brokers, each broker's port is replaced by the proxy's for it,
which keeps every length. Everything else passes untouched, except what a rule takes out: the next so many requests of
one kind. Loopback only.
"""

import contextlib
import queue
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Self

from tests.support.ports import free_port

HOST = "127.0.0.1"
_NAMED = HOST.encode()
_CONNECT_SECONDS = 5.0
_END_SECONDS = 5.0


class Api(IntEnum):
    """Kafka's numbers of the requests that a transaction needs, and of those that read."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS = 24
    ADD_OFFSETS = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


class Code(IntEnum):
    """Errors that brokers answer when they are not ready."""

    COORDINATOR_LOAD_IN_PROGRESS = 14
    NOT_COORDINATOR = 16
    CONCURRENT_TRANSACTIONS = 51
    UNSTABLE_OFFSET_COMMIT = 88


@dataclass(kw_only=True)
class Rule:
    """What happens to the next `count` requests of one kind; `hits` tells how many it met."""

    api: Api
    count: int = 1
    broker: int | None = None
    """Whose requests alone; None: any broker's."""
    lose_reply: bool = False
    """The broker does it; the client loses its connection instead of hearing so."""
    hold_reply: bool = False
    """The client gets the answer, and all later ones of its connection, when `release` is set."""
    hold_request: bool = False
    """The client loses its connection; the broker gets the request when `release` is set."""
    repeat_request: bool = False
    """The broker gets it once more, when `release` is set."""
    delay_reply_seconds: float = 0.0
    answer: Code | None = None
    """The broker never sees it; the client gets this error."""
    hits: int = 0
    release: threading.Event = field(default_factory=threading.Event)
    delivered: threading.Event = field(default_factory=threading.Event)
    """The held or repeated request has been answered by the broker."""


class KafkaProxy:
    """Stands before every broker of a cluster; a context manager. Rules may be set from any thread at any time."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        self._brokers = {number: int(address.rpartition(":")[2]) for number, address in addresses.items()}
        self._listeners: dict[int, socket.socket] = {}
        self.slow: dict[int, float] = {}
        """Seconds by which each answer of a broker comes later, the first of a connection too; may change any time."""
        self.carried: Counter[int] = Counter()
        """How many connections have carried a request, by its kind."""
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        for number in self._brokers:
            listener = socket.create_server((HOST, free_port()))
            listener.settimeout(0.1)
            self._listeners[number] = listener
        for number in self._brokers:
            self._spawn(partial(self._accept, number))
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for rule in self._rules:
            rule.release.set()
        # A connection that comes now ends itself: it looks at `_stopping` after it has entered its sockets here.
        for open_socket in (*self._listeners.values(), *self._sockets):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()
        deadline = time.monotonic() + _END_SECONDS
        for thread in tuple(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{self._port(number)}" for number in self._brokers)

    def rule(self, rule: Rule) -> Rule:
        """Put a rule in force; earlier ones go first."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def _port(self, number: int) -> int:
        return int(self._listeners[number].getsockname()[1])

    def _spawn(self, act: Callable[[], None]) -> None:
        thread = threading.Thread(target=act, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, number: int) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(OSError):
                client, _ = self._listeners[number].accept()
                client.settimeout(None)
                self._spawn(partial(self._serve, client, number))

    def _serve(self, client: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), client, self._upstream(number) as upstream:
            self._sockets += [client, upstream]
            if self._stopping.is_set():
                return
            waiting: dict[bytes, tuple[int, Rule | None]] = {}
            carried: set[int] = set()
            self._spawn(lambda: self._replies(client, upstream, waiting, number))
            for frame in frames(client):
                self._note(frame, carried)
                self._request(frame, client, upstream, waiting, number)
        for end in (client, upstream):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _upstream(self, number: int) -> socket.socket:
        upstream = socket.create_connection((HOST, self._brokers[number]), timeout=_CONNECT_SECONDS)
        upstream.settimeout(None)
        return upstream

    def _request(
        self,
        frame: bytes,
        client: socket.socket,
        upstream: socket.socket,
        waiting: dict[bytes, tuple[int, Rule | None]],
        number: int,
    ) -> None:
        api, version = struct.unpack(">hh", frame[:4])
        correlation = frame[4:8]
        rule = self._taken(api, number)
        if rule is not None and (rule.hold_request or rule.repeat_request):
            self._spawn(lambda: self._late(rule, frame, number))
        if rule is not None and rule.hold_request:
            raise OSError("held up")
        if rule is not None and rule.answer is not None and api != Api.OFFSET_FETCH:
            _send(client, correlation + refusal(Api(api), version, rule.answer))
            return
        waiting[correlation] = (api, rule)
        _send(upstream, frame)

    def _note(self, frame: bytes, carried: set[int]) -> None:
        (api,) = struct.unpack(">h", frame[:2])
        if api not in carried:
            carried.add(api)
            with self._lock:
                self.carried[api] += 1

    def _taken(self, api: int, number: int) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.api == api and rule.broker in (None, number) and rule.hits < rule.count:
                    rule.hits += 1
                    return rule
        return None

    def _late(self, rule: Rule, frame: bytes, number: int) -> None:
        rule.release.wait()
        with contextlib.suppress(OSError), self._upstream(number) as late:
            self._sockets.append(late)
            if self._stopping.is_set():
                return
            _send(late, frame)
            next(frames(late), None)
            rule.delivered.set()

    def _replies(
        self,
        client: socket.socket,
        upstream: socket.socket,
        waiting: dict[bytes, tuple[int, Rule | None]],
        number: int,
    ) -> None:
        sending: queue.SimpleQueue[tuple[float, bytes] | None] = queue.SimpleQueue()
        self._spawn(lambda: self._send_later(client, sending))
        with contextlib.suppress(OSError):
            for frame in frames(upstream):
                api, rule = waiting.pop(frame[:4], (-1, None))
                if rule is not None and rule.hold_reply:
                    rule.release.wait()
                if rule is not None and rule.delay_reply_seconds:
                    time.sleep(rule.delay_reply_seconds)
                if rule is not None and rule.lose_reply:
                    break
                if rule is not None and rule.answer is not None:
                    frame = patched_offsets(frame, rule.answer)  # noqa: PLW2901 - the same answer with an error
                if api in {Api.METADATA, Api.FIND_COORDINATOR}:
                    frame = self._renamed(frame)  # noqa: PLW2901 - the same answer with our ports
                sending.put((time.monotonic() + self.slow.get(number, 0.0), frame))
        sending.put(None)
        with contextlib.suppress(OSError):
            upstream.shutdown(socket.SHUT_RDWR)

    def _send_later(self, client: socket.socket, sending: "queue.SimpleQueue[tuple[float, bytes] | None]") -> None:
        """Send each answer at its time: a slow broker answers late, and not fewer requests a second."""
        with contextlib.suppress(OSError):
            while (item := sending.get()) is not None:
                self._stopping.wait(max(0.0, item[0] - time.monotonic()))
                _send(client, item[1])
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _renamed(self, frame: bytes) -> bytes:
        for number, port in self._brokers.items():
            frame = frame.replace(_NAMED + struct.pack(">i", port), _NAMED + struct.pack(">i", self._port(number)))
        return frame


def frames(connection: socket.socket) -> Iterator[bytes]:
    """Yield whole frames without their length until the other side closes."""
    with connection.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            yield stream.read(int.from_bytes(head, "big"))


def refusal(api: Api, version: int, code: Code) -> bytes:
    """Return the answer of a broker that is not ready, without the correlation id.

    Only kinds and versions that the client speaks: InitProducerId 4 (flexible), EndTxn 1, AddOffsetsToTxn 0.
    """
    throttle = struct.pack(">i", 0)
    match api, version:
        case (Api.INIT_PRODUCER_ID, 2 | 3 | 4):
            return b"\x00" + throttle + struct.pack(">hqh", code, -1, -1) + b"\x00"
        case (Api.END_TXN | Api.ADD_OFFSETS, 0 | 1):
            return throttle + struct.pack(">h", code)
        case _:
            raise AssertionError(f"the proxy cannot answer {api.name} of version {version}")


def patched_offsets(frame: bytes, code: Code) -> bytes:
    """Return an OffsetFetch answer (versions 6 to 9, one group) that carries an error for the group."""
    return frame[:-4] + struct.pack(">h", code) + frame[-2:]


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(struct.pack(">i", len(frame)) + frame)
