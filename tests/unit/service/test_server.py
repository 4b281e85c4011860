"""How the service listens."""

import asyncio
import socket
from pathlib import Path

import pytest

from discovery.core.errors import ConfigError
from discovery.service.server import _listen, _until
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.service import running, settings_of


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


def test_given_a_service_with_an_endpoint_when_it_logs_then_the_lines_name_the_cluster(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        network = FakeNetwork()
        FakeCluster(network)
        settings = settings_of(
            {"main": "cluster-a-b1:9092", "other": "b:9092"},
            tmp_path,
            endpoint={"enabled": True, "port": 0, "cluster": "main"},
        )
        async with running(network, settings) as one:
            one.service.open_endpoint()

    with caplog.at_level("INFO", "discovery"):
        asyncio.run(main())
    ours = [getattr(record, "facts", {}) for record in caplog.records if record.name == "discovery.endpoint"]
    assert [facts.get("cluster") for facts in ours] == ["main"] * len(ours)
    assert len(ours) >= 2, "it listened, and stopped"


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
