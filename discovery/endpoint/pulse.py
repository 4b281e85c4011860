"""Does the process behind an address still answer? Asked without credentials, over a connection of its own."""

import asyncio
import contextlib
import ssl
import struct

from discovery.endpoint.race import Resolved, connect

_API_VERSIONS, _CORRELATION = 18, 0x6B65
_BODY = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION, -1)
_REQUEST = struct.pack(">i", len(_BODY)) + _BODY
"""ApiVersions v0: every broker answers it before any login."""
_HEAD_BYTES = 8


async def pulse(resolved: Resolved, *, tls: bool, timeout_seconds: float) -> bool:
    """Tell whether somebody who speaks the right protocol answers in time.

    A frozen broker accepts connections, for its kernel does that; so an answer is wanted. Behind TLS any answer to a
    handshake will do: a broker that asks for a certificate lives.

    Runs: the endpoint's event loop; at most the timeout.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            return await (_shakes_hands(resolved) if tls else _answers(resolved, timeout_seconds))
    except (OSError, TimeoutError):
        return False


async def certificate(resolved: Resolved, *, timeout_seconds: float) -> bytes | None:
    """Return the broker's certificate, unverified, as it would show it to any client; None if it shows none.

    Runs: the endpoint's event loop; at most the timeout.
    """
    with contextlib.suppress(OSError, TimeoutError, ssl.SSLError):
        async with asyncio.timeout(timeout_seconds):
            _, writer = await asyncio.open_connection(*resolved.address, ssl=_unverified())
            try:
                secured = writer.get_extra_info("ssl_object")
                found: bytes | None = secured.getpeercert(binary_form=True)
                return found
            finally:
                writer.transport.abort()
    return None


async def _answers(resolved: Resolved, timeout_seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    connection = await connect(resolved, timeout_seconds=timeout_seconds)
    with connection:
        await loop.sock_sendall(connection, _REQUEST)
        data = b""
        while len(data) < _HEAD_BYTES:
            more = await loop.sock_recv(connection, 64)
            if not more:
                return False
            data += more
    correlation = struct.unpack(">i", data[4:_HEAD_BYTES])[0]
    return bool(correlation == _CORRELATION)


async def _shakes_hands(resolved: Resolved) -> bool:
    try:
        _, writer = await asyncio.open_connection(*resolved.address, ssl=_unverified())
    except ssl.SSLError:
        return True  # an alert is an answer
    writer.transport.abort()
    return True


def _unverified() -> ssl.SSLContext:
    """Nothing is sent to the other side, so there is nothing to protect; who it is, the vetting has proved."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
