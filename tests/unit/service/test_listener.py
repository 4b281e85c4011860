"""Who makes room where all places of a listener are taken."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import trustme
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from discovery.service import listener as module
from discovery.service.limits import LimitedProtocol, protocol
from discovery.service.listener import Listener

MOST = 8
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def listening(authority: trustme.CA) -> AsyncIterator[tuple[Listener, int]]:
    """A listener behind TLS that answers every request; and its port."""
    one = Listener("api", MOST, timeout_seconds=60)
    kind = protocol(idle=one.idle, opened=one.opened)
    config = uvicorn.Config(PlainTextResponse("here"), http=kind, log_config=None, lifespan="off")
    config.load()
    make: partial[LimitedProtocol] = partial(kind, config=config, server_state=ServerState(), app_state={})
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as place:
        place.setblocking(False)
        running = asyncio.ensure_future(one.run(place, make, tls=lambda: context))
        try:
            yield one, place.getsockname()[1]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for left in list(one.opened):
                left.abort()


async def answers(client: Streams) -> bool:
    """Ask once; the connection stays."""
    reader, writer = client
    writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        return (await reader.readuntil(b"here")).startswith(b"HTTP/1.1 200")
    return False


def clients_left(monkeypatch: pytest.MonkeyPatch, *, handshake_seconds: float) -> list[bool]:
    """Let three clients ask once, take every place without a word, let a fourth ask; return who is answered again."""
    monkeypatch.setattr(module, "_HANDSHAKE_SECONDS", handshake_seconds)
    authority, trusting = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusting)

    async def main() -> list[bool]:
        async with listening(authority) as (listener, port), contextlib.AsyncExitStack() as stack:

            async def client() -> Streams:
                opened = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
                stack.callback(opened[1].transport.abort)
                assert await answers(opened)
                return opened

            clients = [await client() for _ in range(3)]
            for _ in range(2 * MOST):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            clients.append(await client())
            assert listener.connections == MOST
            return [await answers(one) for one in clients]

    return asyncio.run(asyncio.wait_for(main(), 60))


def test_given_handshakes_that_do_not_end_when_full_then_clients_between_two_requests_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert clients_left(monkeypatch, handshake_seconds=0.0) == [True] * 4


def test_given_handshakes_that_have_just_begun_when_full_then_the_longest_idle_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert clients_left(monkeypatch, handshake_seconds=60.0) == [False, False, False, True]


def test_given_the_page_of_the_service_when_read_then_it_names_the_seconds_a_handshake_may_take() -> None:
    page = Path("docs/how-to/service.md").read_text(encoding="utf-8")
    assert f"a TLS handshake that takes over {module._HANDSHAKE_SECONDS:g} seconds is closed" in page
