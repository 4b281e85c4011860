"""Does the process behind an address still answer? Asked without credentials, over a connection of its own."""

import asyncio
import contextlib
import ssl
import struct
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from discovery.config.descriptors import is_ours
from discovery.endpoint.race import Resolved

_API_VERSIONS, _CORRELATION = 18, 0x6B65
_BODY = struct.pack(">hhih", _API_VERSIONS, 0, _CORRELATION, -1)
_REQUEST = struct.pack(">i", len(_BODY)) + _BODY
"""ApiVersions v0: every broker answers it before any login."""
_HEAD_BYTES = 8


async def is_answering(resolved: Resolved, host: str, *, tls: ssl.SSLContext | None, timeout_seconds: float) -> bool:
    """Tell whether somebody who speaks the right protocol answers in time.

    A frozen broker accepts connections, for its kernel does that; so an answer is wanted. Behind TLS an alert or a
    close will do: a broker that refuses our certificate lives. Want of descriptors on this side says nothing, so it
    counts as well.

    Args:
        resolved: Where to ask.
        host: The broker's name, for listeners that show a certificate by name (SNI).
        tls: With the client's certificate, where there is one: else each check is a failed login at the broker.
        timeout_seconds: For all of it.

    Runs: the endpoint's event loop; at most the timeout.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            async with _opened(resolved, host, tls) as (reader, writer):
                try:
                    writer.write(_REQUEST)
                    head = await reader.readexactly(_HEAD_BYTES)
                except (asyncio.IncompleteReadError, ConnectionError):
                    return tls is not None  # it shook hands before it closed
    except ssl.SSLError:
        return True
    except OSError as error:  # TimeoutError among them
        return is_ours(error)
    return bool(struct.unpack(">i", head[4:])[0] == _CORRELATION)


async def certificate(resolved: Resolved, host: str, *, tls: ssl.SSLContext, timeout_seconds: float) -> bytes | None:
    """Return the broker's certificate, unverified, as it would show it to any client; None if it shows none.

    Runs: the endpoint's event loop; at most the timeout.
    """
    with contextlib.suppress(OSError):
        async with asyncio.timeout(timeout_seconds):
            async with _opened(resolved, host, tls) as (_, writer):
                found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                return found
    return None


def unverified(connection: Mapping[str, object]) -> ssl.SSLContext:
    """Return how to ask a TLS listener whether it lives: with the client's certificate, if it has one.

    Nothing secret is sent, so who answers is not verified; the proof by librdkafka has done that.

    Args:
        connection: librdkafka's properties.

    Runs: anywhere; reads the files that are named, and writes a certificate given as text to one of its own.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _show_own(context, connection)
    return context


def checks_names(connection: Mapping[str, object]) -> bool:
    """Tell whether a broker must show its own name, by these properties of librdkafka.

    Runs: anywhere (pure).
    """
    wanted = str(connection.get("ssl.endpoint.identification.algorithm", "https")).lower()
    return wanted == "https" and str(connection.get("enable.ssl.certificate.verification", "true")).lower() == "true"


def verifying(connection: Mapping[str, object]) -> ssl.SSLContext:
    """Return how to see whether a TLS listener shows its name in a certificate of a trusted authority.

    Runs: anywhere; reads the files that librdkafka's properties name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    location, pem = connection.get("ssl.ca.location"), connection.get("ssl.ca.pem")
    if location is not None:
        is_folder = Path(str(location)).is_dir()
        context.load_verify_locations(capath=str(location)) if is_folder else context.load_verify_locations(
            str(location)
        )
    elif pem is not None:
        context.load_verify_locations(cadata=str(pem))
    else:
        context.load_default_certs()
    _show_own(context, connection)
    return context


async def impostor(resolved: Resolved, host: str, *, tls: ssl.SSLContext, timeout_seconds: float) -> str | None:
    """Return why the listener is not the broker of this name; None: it has shown that it is.

    Raises:
        OSError: it does not answer, or descriptors are short on this side.

    Runs: the endpoint's event loop; at most the timeout.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            async with _opened(resolved, host, tls):
                pass
    except ssl.SSLCertVerificationError as error:
        return f"it does not show the name {host}: {error.verify_message}"
    return None


def _show_own(context: ssl.SSLContext, connection: Mapping[str, object]) -> None:
    """Log in by certificate, where there is one."""
    given = {name: str(value) for name, value in connection.items()}
    chain, key = given.get("ssl.certificate.location"), given.get("ssl.key.location")
    with tempfile.TemporaryDirectory() as folder:  # for its owner's eyes alone
        if "ssl.certificate.pem" in given and "ssl.key.pem" in given:
            chain, key = f"{folder}/own.pem", None
            Path(chain).write_text(f"{given['ssl.certificate.pem']}\n{given['ssl.key.pem']}\n", encoding="utf-8")
        if chain is not None:
            with contextlib.suppress(OSError):  # then without: the broker's alert is an answer too
                context.load_cert_chain(chain, key, password=given.get("ssl.key.password", ""))


@contextlib.asynccontextmanager
async def _opened(
    resolved: Resolved, host: str, tls: ssl.SSLContext | None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    protocol = _Protocol(reader)
    try:
        transport, _ = await loop.create_connection(
            lambda: protocol, *resolved.address, ssl=tls, server_hostname=host if tls else None
        )
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)  # held: its `__del__` closes
        yield reader, writer
    finally:
        protocol.abort()


class _Protocol(asyncio.StreamReaderProtocol):
    """Knows its connection even where `create_connection` is cancelled once it is made, and would return none."""

    _made: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        self._made = transport
        super().connection_made(transport)

    def abort(self) -> None:
        """End it at once: TLS waits for the other side's farewell, perhaps beyond the end of our loop."""
        if self._made is not None:
            self._made.abort()
