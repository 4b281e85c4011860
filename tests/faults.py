"""Sockets that misbehave like dead, frozen, foreign or firewalled brokers. Loopback only, no privileges."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from enum import Enum

HOST = "127.0.0.1"


@contextlib.contextmanager
def refused_port() -> Iterator[str]:
    """Yield an address where nobody listens and nobody will: connects are refused at once."""
    # Bound and not listening: the port stays ours and the kernel answers a SYN with RST.
    with socket.socket() as held:
        held.bind((HOST, 0))
        yield _address(held)


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """Yield an address whose SYNs vanish: a listener with a full accept queue that nobody accepts from."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((HOST, 0))
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

    with socket.socket() as listener:
        listener.bind((HOST, 0))
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
