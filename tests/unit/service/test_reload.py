"""A configuration comes in as a whole or not at all; and the end does not wait for what is only beginning."""

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from discovery.config.clock import SystemClock
from discovery.config.provenance import Effective
from discovery.config.settings import Settings
from discovery.core.errors import ConfigError, StateError
from discovery.feed.embedded import EmbeddedFeed
from discovery.service.cluster import FeedMaker
from discovery.service.server import serve
from discovery.service.service import Service
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.service import Running, maker_over, running, settings_of

TOKEN = "a-token-of-sixteen"  # noqa: S105
A, B = "cluster-a-b1:9092", "cluster-b-b1:9092"
Play = Callable[[Running], Awaitable[None]]


class Reluctant(FeedMaker):
    """Makes loops; those on a list with `locked` in it pass every check and fail when they begin."""

    __slots__ = ()

    def __call__(self, settings: Any, policy: Any, **more: Any) -> EmbeddedFeed:
        if more["state_dir"] is not None and "locked" in str(settings.bootstrap_servers):
            raise StateError("held by another process")
        return super().__call__(settings, policy, **more)


def play(tmp_path: Path, before: dict[str, str], after: Callable[[], Settings], story: Play) -> None:
    """Run a story on a service of these clusters whose next configuration is what `after` returns, or raises."""

    async def main() -> None:
        network = FakeNetwork()
        FakeCluster(network)
        FakeCluster(network, cluster_id="cluster-b")
        (tmp_path / "token").write_text(TOKEN)
        settings = settings_of(before, tmp_path, api={"token_file": tmp_path / "token"})
        again = lambda: Effective(settings=after(), origins={})  # noqa: E731
        async with (
            asyncio.timeout(60),
            running(network, settings, reload_from=again, maker=maker_over(network, Reluctant)) as one,
        ):
            one.api.headers["Authorization"] = f"Bearer {TOKEN}"
            await story(one)

    asyncio.run(main())


async def brokers(one: Running, cluster: str) -> set[str]:
    """Wait until the configured addresses of a cluster are judged; return them."""
    while True:
        seen = (await one.api.get(f"/v1/clusters/{cluster}/brokers")).json()["brokers"]
        configured = [broker for broker in seen if broker["configured"]]
        if configured and all(broker["condition"] != "unasked" for broker in configured):
            return {broker["address"] for broker in configured}
        await one.api.get(f"/v1/clusters/{cluster}/follow?wait=1s")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": A}, {"a": f"{A},more:1", "b": "locked:1"}),
        ({"a": A, "b": B}, {"a": f"{A},more:1", "b": f"{B},locked:1", "c": A}),
        ({"a": A, "gone": B}, {"a": f"{A},more:1", "b": "locked:1"}),
    ],
    ids=["a new cluster cannot begin", "a changed cluster cannot begin", "one of them goes"],
)
def test_given_a_configuration_of_which_a_part_fails_when_reloaded_then_nothing_of_it_is_in_force(
    tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    async def story(one: Running) -> None:
        was = {name: await brokers(one, name) for name in before}
        refused = await one.api.post("/-/reload")
        assert (refused.status_code, refused.json()["error"]) == (
            409,
            "kept the old configuration: held by another process",
        )
        assert {c["cluster"] for c in (await one.api.get("/v1/clusters")).json()["clusters"]} == set(before)
        assert {name: await brokers(one, name) for name in before} == was
        for name in before:
            assert (await one.api.post(f"/v1/clusters/{name}/refresh")).status_code == 200, "its loop turns again"
        assert one.service.opened.tokens == (TOKEN.encode(),)
        metrics = (await one.probes.get("/metrics")).text
        assert "kafka_discovery_config_reload_success 0.0" in metrics
        assert reloads(metrics) == {"taken": 0, "refused": 1}
        assert not one.service.reloads.ok

    (tmp_path / "other").write_text("another-token-of-more")
    other = {"token_file": tmp_path / "other"}
    play(tmp_path, before, lambda: settings_of(after, tmp_path, api=other), story)


def test_given_a_sound_configuration_when_reloaded_then_all_of_it_is_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(one: Running) -> None:
        epoch = (await one.api.get("/v1/clusters/a/status")).json()["epoch"]
        assert (await one.api.post("/-/reload")).json() == {"ok": True, "clusters": ["a", "c"]}
        assert await brokers(one, "a") == {A, "more:1"}
        assert (await one.api.get("/v1/clusters/a/status")).json()["epoch"] == epoch
        assert (await one.api.get("/v1/clusters/b/status")).status_code == 404
        assert await brokers(one, "c") == {B}
        assert one.service.settings.silence_seconds == one.service.registry.silence_seconds == 7
        await one.service.reload("SIGHUP")
        metrics = (await one.probes.get("/metrics")).text
        assert "kafka_discovery_config_reload_success 1.0" in metrics
        assert reloads(metrics) == {"taken": 2, "refused": 0}

    after = {"a": f"{A},more:1", "c": B}
    token = {"token_file": tmp_path / "token"}
    play(tmp_path, {"a": A, "b": B}, lambda: settings_of(after, tmp_path, silence_seconds=7, api=token), story)
    written = [record for record in caplog.records if getattr(record, "event", "") == "reloaded"]
    assert [getattr(one, "facts", {}) for one in written] == [
        {"clusters": ["a", "c"], "asked_by": "127.0.0.1"}, {"clusters": ["a", "c"], "asked_by": "SIGHUP"},
    ]  # fmt: skip


def reloads(metrics: str) -> dict[str, int]:
    found = re.findall(r'kafka_discovery_config_reloads_total\{outcome="(\w+)"\} (\d+)', metrics)
    return {outcome: int(count) for outcome, count in found}


def test_given_stores_that_break_while_a_configuration_comes_in_when_reloaded_then_nothing_of_it_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more: dict[str, Any] = {
        "api": {"token_file": tmp_path / "token"},
        "endpoint": {"enabled": True, "port": 0, "cluster": "a"},
    }

    async def story(one: Running) -> None:
        one.service.open_endpoint()
        before = one.service.settings
        monkeypatch.setattr(one.service, "_prover", broken)
        refused = await one.api.post("/-/reload")
        assert (refused.status_code, refused.json()["error"]) == (409, "kept the old configuration: no such store")
        assert one.service.settings is before
        assert set(one.service.hubs) == {"a"}

    def broken(_: Settings) -> Any:
        raise ConfigError("no such store")

    async def main() -> None:
        (tmp_path / "token").write_text(TOKEN)
        network = FakeNetwork()
        FakeCluster(network)
        after = Effective(settings=settings_of({"a": f"{A},more:1", "b": B}, tmp_path, **more), origins={})
        before = settings_of({"a": A}, tmp_path, **more)
        async with asyncio.timeout(60), running(network, before, reload_from=lambda: after) as one:
            one.api.headers["Authorization"] = f"Bearer {TOKEN}"
            await story(one)

    asyncio.run(main())


def test_given_a_configuration_that_needs_a_restart_or_none_at_all_when_reloaded_then_one_line_says_so(
    tmp_path: Path,
) -> None:
    def unreadable() -> Settings:
        raise ConfigError("the file cannot be read")

    async def story(one: Running) -> None:
        assert "cannot be read" in (await one.api.post("/-/reload")).json()["error"]

    async def restart(one: Running) -> None:
        assert "api.port: 9463 became 1, which needs a restart" in (await one.api.post("/-/reload")).json()["error"]

    play(tmp_path, {"a": A}, unreadable, story)
    restarting = {"port": 1, "token_file": tmp_path / "token"}
    play(tmp_path, {"a": A}, lambda: settings_of({"a": A}, tmp_path, api=restarting), restart)


class Stuck(FeedMaker):
    """Makes loops whose start hangs, as on a mount that does not answer."""

    __slots__ = ()

    def __call__(self, settings: Any, policy: Any, **more: Any) -> EmbeddedFeed:
        if more["state_dir"] is not None:
            threading.Event().wait(600)
        return super().__call__(settings, policy, **more)


def test_given_a_start_that_hangs_when_asked_to_end_then_the_service_answers_until_then_and_ends_in_time(
    tmp_path: Path,
) -> None:
    settings = settings_of({"a": A, "b": B}, tmp_path, api={"port": 0}, probes={"port": 0})
    service = Service(
        Effective(settings=settings, origins={}),
        clock=SystemClock(),
        maker=maker_over(FakeNetwork(), Stuck),
        reload_from=None,
    )
    seen: list[float] = []

    def end() -> None:
        seen.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(serve(service, on_listening=lambda *_: threading.Timer(0.2, end).start()))
    assert time.monotonic() - seen[0] < 5


class Ending(FeedMaker):
    """Makes loops; the one of `b` orders the end of the service when it is to begin."""

    __slots__ = ()

    def __call__(self, settings: Any, policy: Any, **more: Any) -> EmbeddedFeed:
        if more["state_dir"] is not None and more["name"] == "b":
            os.kill(os.getpid(), signal.SIGTERM)
        return super().__call__(settings, policy, **more)


def test_given_a_configuration_that_changed_before_the_first_look_when_serving_then_it_comes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discovery.service.server._LOOK_SECONDS", 0.01)
    ports: dict[str, Any] = {"api": {"port": 0}, "probes": {"port": 0}}
    changed = settings_of({"a": A, "b": B}, tmp_path, **ports)
    service = Service(
        Effective(settings=settings_of({"a": A}, tmp_path, **ports), origins={}),
        clock=SystemClock(),
        maker=maker_over(FakeNetwork(), Ending),
        reload_from=lambda: Effective(settings=changed, origins={}),
    )
    asyncio.run(asyncio.wait_for(serve(service, on_listening=lambda *_: None), 20))
