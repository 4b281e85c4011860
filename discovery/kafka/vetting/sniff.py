"""A look at the first bytes an address answers, for when librdkafka was cut off and cannot say why."""

import socket
import struct
from enum import Enum

_API_VERSIONS = 18
_CORRELATION = 0x6B64
_REQUEST_BODY = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION, -1)
_REQUEST = struct.pack(">i", len(_REQUEST_BODY)) + _REQUEST_BODY
"""ApiVersions v0 without a client id: every broker since 0.10 answers it, before any login."""

_TLS_ALERT = b"\x15\x03"
_ENOUGH_BYTES = 8
_MAX_RESPONSE_BYTES = 1_000_000


class Sniffed(Enum):
    """What the first bytes look like."""

    KAFKA = "answers as Kafka does"
    TLS = "answers with a TLS alert"
    OTHER = "answers with something that is not Kafka"
    CLOSED = "closes the connection without an answer"
    SILENT = "does not answer"


def sniff(endpoint: tuple[str, int], *, timeout_seconds: float) -> Sniffed:
    """Send one ApiVersions request in plain text and look at the answer.

    Runs: a thread of the vetting; blocks <= about timeout_seconds per read, three at most.
    """
    data = b""
    try:
        with socket.create_connection(endpoint, timeout=timeout_seconds) as connection:
            connection.sendall(_REQUEST)
            while len(data) < _ENOUGH_BYTES and (more := connection.recv(64)):
                data += more
    except TimeoutError:
        return _classify(data) if data else Sniffed.SILENT
    except OSError:
        pass
    return _classify(data) if data else Sniffed.CLOSED


def _classify(data: bytes) -> Sniffed:
    if data.startswith(_TLS_ALERT):
        return Sniffed.TLS
    if len(data) < _ENOUGH_BYTES:
        return Sniffed.OTHER
    size, correlation = struct.unpack(">ii", data[:_ENOUGH_BYTES])
    return Sniffed.KAFKA if correlation == _CORRELATION and 0 < size < _MAX_RESPONSE_BYTES else Sniffed.OTHER
