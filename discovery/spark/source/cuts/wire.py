"""How workers and the driver talk: a greeting that proves the token, then length-bounded JSON frames."""

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from discovery.core.errors import WireError
from discovery.core.model import TopicName, TopicPartition

MAGIC = b"KDC1"
TOKEN_BYTES = 32
MAX_FRAME_BYTES = 16 << 20
"""About 200 000 ranges in one task."""
_LENGTH = struct.Struct("!I")


def send_frame(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message.

    Runs: any thread; blocks <= the socket's timeout.
    """
    payload = json.dumps(message, separators=(",", ":")).encode()
    connection.sendall(_LENGTH.pack(len(payload)) + payload)


def receive_frame(connection: socket.socket) -> dict[str, Any]:
    """Receive one message.

    Raises:
        WireError: too long, too slow, not an object, or the end of the stream.
        OSError: a broken connection.

    Runs: any thread; blocks <= the socket's timeout for each part.
    """
    (length,) = _LENGTH.unpack(receive(connection, _LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {length} bytes is longer than {MAX_FRAME_BYTES}")
    try:
        message = json.loads(receive(connection, length))
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise WireError("not an object")
    return message


def receive(connection: socket.socket, count: int) -> bytes:
    """Receive exactly so many bytes, all of them within the socket's timeout: a trickle must not hold a thread.

    Raises:
        WireError: the peer hung up, or was too slow.
        OSError: the connection broke.
    """
    timeout_seconds = connection.gettimeout()
    deadline = time.monotonic() + (timeout_seconds or float("inf"))
    content = bytearray()
    while len(content) < count:
        try:
            part = connection.recv(min(count - len(content), 1 << 16)) if time.monotonic() < deadline else None
        except TimeoutError:
            part = None
        if part is None:
            raise WireError(f"{len(content)} of {count} bytes came in {timeout_seconds:g} s")
        if not part:
            raise WireError("the peer hung up")
        content += part
    return bytes(content)


def pack_ends(ends: Mapping[TopicPartition, int]) -> list[list[Any]]:
    """Write offsets by partition for a frame.

    Runs: anywhere (pure).
    """
    return [[tp.topic, tp.partition, end] for tp, end in ends.items()]


def unpack_ends(raw: Any) -> dict[TopicPartition, int]:
    """Read offsets by partition.

    Raises:
        WireError: another shape.

    Runs: anywhere (pure).
    """
    try:
        return {TopicPartition(TopicName(str(topic)), int(partition)): int(end) for topic, partition, end in raw}
    except (TypeError, ValueError) as error:
        raise WireError(f"not offsets by partition: {error}") from error
