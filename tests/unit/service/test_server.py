"""How the service listens."""

import asyncio
import socket

from discovery.service.server import _listen


def test_given_a_listener_when_somebody_connects_then_answers_are_sent_at_once() -> None:
    async def connected() -> int:
        seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def heard(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            seen.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with _listen("127.0.0.1", 0, "api") as listener:
            listener.listen()
            async with await asyncio.start_server(heard, sock=listener):
                _, writer = await asyncio.open_connection(*listener.getsockname())
                writer.close()
                return await asyncio.wait_for(seen, 10)

    assert asyncio.run(connected()) == 1
