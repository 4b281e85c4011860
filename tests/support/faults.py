"""Sockets that misbehave like dead, frozen, foreign or firewalled brokers. Loopback only, no privileges."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from random import Random

from tests.support.ports import bound_socket

HOST = "127.0.0.1"


@contextlib.contextmanager
def refused_port() -> Iterator[str]:
    """Yield an address where nobody listens and nobody will: connects are refused at once."""
    # Bound and not listening: the port stays ours and the kernel answers a SYN with RST.
    with bound_socket() as held:
        yield _address(held)


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """Yield an address whose SYNs vanish: a listener with a full accept queue that nobody accepts from."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bound_socket())
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield _address(listener)


@contextlib.contextmanager
def accept_and_hang() -> Iterator[str]:
    """Yield an address that accepts connections, reads, and never answers."""
    with _server(lambda client: None) as address:
        yield address


class Garbage(Enum):
    """What a server that is not Kafka sends."""

    HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nBad Request"
    SSH = b"SSH-2.0-OpenSSH_9.2p1\r\n"
    TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
    RANDOM = bytes(range(256)) * 4
    HUGE_LENGTH = b"\x7f\xff\xff\xff" + b"\x00" * 60
    NEGATIVE_LENGTH = b"\xff\xff\xff\xfe" + b"\x00" * 60
    ZEROES = b"\x00" * 4096
    CLOSE = b""


@contextlib.contextmanager
def garbage_speaker(kind: Garbage = Garbage.HTTP, *, greets: bool = False) -> Iterator[str]:
    """Yield an address that answers the first bytes with garbage and closes; `greets`: speaks before it is asked."""

    def talk(client: socket.socket) -> None:
        if not greets:
            client.recv(65_536)
        client.sendall(kind.value)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)

    with _server(talk, close_after=True) as address:
        yield address


class Malformed(Enum):
    """How a broker that is out of its mind answers a request of Kafka's protocol; each by a seed.

    One kind is missing: a list of API versions with a negative length, under the right correlation id, makes librdkafka
    2.16 abort the process (`rd_malloc`). No accident does that, and nothing outside librdkafka can prevent it.
    """

    RANDOM = "a frame of random bytes under the right correlation id"
    WRONG_ID = "a well-formed answer to a request nobody sent"
    CUT = "the first half of a frame, then the end"
    HUGE = "a frame that announces a gigabyte and goes on for ever"
    HUGE_COUNTS = "arrays with two billion entries"
    TRICKLE = "a right length, and then a byte now and then"


@contextlib.contextmanager
def malformed_broker(kind: Malformed, *, seed: int) -> Iterator[str]:
    """Yield an address whose broker reads requests and answers each one so."""
    random = Random(f"{kind.name} {seed}")

    def talk(client: socket.socket) -> None:
        while (request := _frame(client)) is not None:
            for part in _answer_malformed(kind, request[4:8], random):
                client.sendall(part)
            if kind is Malformed.CUT:
                return

    with _server(talk, close_after=True) as address:
        yield address


def _frame(client: socket.socket) -> bytes | None:
    """Read one request: length, key, version, correlation id, the rest."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        chunk = client.recv(65_536)
        if not chunk:
            return None
        data += chunk
    return data[4:]


def _answer_malformed(kind: Malformed, correlation: bytes, random: Random) -> Iterator[bytes]:
    body = random.randbytes(random.randint(1, 2_000))
    match kind:
        case Malformed.RANDOM:
            yield _framed(correlation + body)
        case Malformed.WRONG_ID:
            yield _framed(random.randbytes(4) + b"\x00\x00" + b"\x00" * 60)
        case Malformed.CUT:
            yield _framed(correlation + body)[: random.randint(1, 8)]
        case Malformed.HUGE:
            yield (2**30).to_bytes(4, "big") + correlation
            for _ in range(200):
                yield random.randbytes(65_536)
        case Malformed.HUGE_COUNTS:
            yield _framed(correlation + b"\x00\x00" + b"\x7f\xff\xff\xff" * 16)
        case Malformed.TRICKLE:
            yield len(correlation + body).to_bytes(4, "big") + correlation
            for byte in body[:40]:
                time.sleep(0.05)
                yield bytes([byte])


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


UNRESOLVABLE = "no-such-broker.invalid:9092"
"""A name that never resolves (RFC 6761)."""


@contextlib.contextmanager
def _server(talk: Callable[[socket.socket], None], *, close_after: bool = False) -> Iterator[str]:
    """Serve connections, one thread each, until the block ends; no thread and no socket is left behind."""
    clients: list[socket.socket] = []
    threads: list[threading.Thread] = []
    stopping = threading.Event()

    def handle(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            talk(client)
            if close_after:
                return
            while not stopping.is_set() and client.recv(65_536):
                pass

    def accept(listener: socket.socket) -> None:
        while not stopping.is_set():
            with contextlib.suppress(OSError):
                client, _ = listener.accept()
                client.settimeout(None)
                clients.append(client)
                thread = threading.Thread(target=handle, args=(client,), daemon=True)
                threads.append(thread)
                thread.start()

    with bound_socket() as listener:
        listener.listen(128)
        listener.settimeout(0.1)
        acceptor = threading.Thread(target=accept, args=(listener,), daemon=True)
        acceptor.start()
        try:
            yield _address(listener)
        finally:
            stopping.set()
            acceptor.join(5)
            for client in clients:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(5)


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()
    return f"{host}:{port}"
