"""How the service listens."""

import asyncio
import socket

import pytest

from discovery.core.errors import ConfigError
from discovery.service.server import _listen, _until


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


def test_given_a_listener_that_fails_when_serving_then_its_error_ends_the_service_at_once() -> None:
    async def main() -> None:
        async def fail() -> None:
            raise ConfigError("the listener cannot go on")

        cancelled = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        with pytest.raises(ConfigError, match="cannot go on"):
            await _until(work(), asyncio.Event(), asyncio.ensure_future(fail()))
        await asyncio.wait_for(cancelled.wait(), 10)

    asyncio.run(main())


def test_given_the_order_to_end_when_the_work_hangs_then_it_is_not_waited_for() -> None:
    async def main() -> bool:
        stop = asyncio.Event()
        stop.set()
        return await asyncio.wait_for(_until(asyncio.sleep(600), stop), 10)

    assert asyncio.run(main()) is False
