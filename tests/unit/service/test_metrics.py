"""What a scrape says: consistent, bounded, and nothing of what is gone."""

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_metrics

from discovery.config.metric_families import CLUSTER_LABEL, PREFIX
from discovery.core.model import LoopState
from discovery.service import metrics
from discovery.service.health import ClusterHealth, live, ready
from tests.support.fakes.cluster import FakeCluster, FakeNetwork, Health
from tests.support.fakes.service import Running, running, settings_of

P = PREFIX
EXTERNAL = {"cluster", "environment", "region", "zone", "replica", "namespace", "pod", "node", "service"}
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(one: Running) -> Series:
    """Return every series by name and labels."""
    text = (await one.probes.get("/metrics")).text
    samples = [sample for family in plain_metrics(text) for sample in family.samples]
    found = {(s.name.removeprefix(P), tuple(sorted(s.labels.items()))): s.value for s in samples}
    assert len(found) == len(samples), "a series is there twice"
    return found


def value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((name, tuple(sorted({"kafka_cluster": "main", **labels}.items()))))


def of(series: Series, name: str, label: str) -> set[str]:
    return {dict(labels)[label] for found, labels in series if found == name}


def total(series: Series, name: str) -> float:
    return sum(value for (found, _), value in series.items() if found == name)


def play(tmp_path: Path, story: Callable[[Running, FakeCluster], Awaitable[None]], **settings: Any) -> None:
    """Run a story on a service that follows one cluster and has seen its topics."""

    async def main() -> None:
        cluster = FakeCluster(FakeNetwork())
        for topic in ("a", "b", "c"):
            cluster.create_topic(topic, 2)
        made = settings_of({"main": "cluster-a-b1:9092,dead:9092"}, tmp_path, **settings)
        async with asyncio.timeout(60), running(cluster.network, made) as one:
            await until(
                one, lambda s: value(s, "snapshot_generation") and value(s, "brokers", condition="unasked") == 0
            )
            await story(one, cluster)

    asyncio.run(main())


def _is_settled(series: Series) -> bool:
    return bool(value(series, "snapshot_generation")) and value(series, "brokers", condition="unasked") == 0


async def until(one: Running, condition: Callable[[Series], object]) -> Series:
    """Scrape after each change until the condition holds; the story's time limit ends a vain wait."""
    version = 0
    while not condition(series := await scrape(one)):
        seen = await one.api.get(f"/v1/follow?version={version}&wait=2s")
        version = seen.json().get("version", 0)
    return series


def test_given_a_followed_cluster_when_scraped_then_its_numbers_are_reported(tmp_path: Path) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        series = await until(one, lambda s: value(s, "topic_partitions", topic="c") == 2)
        assert value(series, "configured_brokers", condition="healthy") == 1
        assert value(series, "advertised_brokers") == 3
        assert value(series, "brokers", condition="quarantined") == 1
        assert value(series, "state", state="fresh") == 1
        assert value(series, "state", state="failsafe") == 0
        assert value(series, "broker_up", broker="dead:9092") == 0
        assert (value(series, "cycles_total", outcome="success") or 0) > 0
        assert value(series, "cycles_total", outcome="auth") == 0
        assert value(series, "shrink_blocked_total", reason="brokers") == 0
        assert total(series, "brokers") == len(of(series, "broker_up", "broker")), "conditions that sum"
        assert total(series, "configured_brokers") == 2
        cluster.add_partitions("a", 5)
        series = await until(one, lambda s: value(s, "topic_partitions", topic="a") == 5)
        assert value(series, "partitions_added_total", topic="a") == 3

    play(tmp_path, story)


def test_given_a_removed_broker_and_a_deleted_topic_when_scraped_then_their_series_are_gone(tmp_path: Path) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        await until(one, lambda s: "cluster-a-b3:9092" in of(s, "broker_up", "broker"))
        cluster.kill(3)
        cluster.delete_topic("b")
        gone = await until(
            one,
            lambda s: (
                "cluster-a-b3:9092" not in of(s, "broker_up", "broker")
                and "b" not in of(s, "topic_partitions", "topic")
                and "cluster-a-b3:9092" not in of(s, "broker_attempts_total", "broker")
            ),
        )
        assert "dead:9092" in of(gone, "broker_up", "broker"), "a configured address stays, dead or not"
        assert "b" not in of(gone, "partitions_added_total", "topic")

    play(tmp_path, story)


def test_given_more_topics_and_consumers_than_allowed_when_scraped_then_their_series_are_bounded(
    tmp_path: Path,
) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        for name in ("x", "y"):
            await one.api.put(f"/v1/consumers/{name}", json={"acked_generation": 1})
        series = await until(one, lambda s: value(s, "topic_partitions", topic=metrics.OTHER) == 4)
        assert of(series, "topic_partitions", "topic") == {"a", metrics.OTHER}
        assert of(series, "consumer_acked_generation", "consumer") == {"x"}

    play(tmp_path, story, metrics={"topics_max": 1, "consumers_max": 1})


def test_given_a_reader_that_has_fallen_back_when_it_reports_then_status_list_and_metric_show_it(
    tmp_path: Path,
) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        for why in ("CERTIFICATE_VERIFY_FAILED", ""):
            await one.api.put("/v1/consumers/x", json={"instance": "i", "fallback": why})
            assert (await one.api.get("/v1/status")).json()["fallen_back"] == ["x"] * bool(why)
            assert [c["fallback"] for c in (await one.api.get("/v1/consumers")).json()["consumers"]] == [why]
            assert value(await scrape(one), "consumer_fallback", consumer="x") == bool(why)

    play(tmp_path, story)


async def promtool_accepts(text: str) -> None:
    """Let Prometheus' own tool check a scrape, on machines that have it (Debian: the package prometheus)."""
    if (promtool := shutil.which("promtool")) is None:
        return
    tool = await asyncio.create_subprocess_exec(
        promtool,
        "check",
        "metrics",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await tool.communicate(text.encode())
    assert (tool.returncode, said) == (0, b"")


def test_given_the_names_of_metrics_when_linted_then_they_follow_the_rules_promtool_checks() -> None:
    for family in (*metrics.FAMILIES.values(), *metrics.PROCESS.values()):
        words = family.name.split("_")
        assert re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", family.name), family
        assert not {"total", "count", "sum", "bucket", "info"} & {words[-1]}, "a suffix that the kind brings"
        assert not {"ms", "milliseconds", "minutes", "kilobytes", "percent"} & set(words), "base units only"
        assert not {"gauge", "counter", "histogram"} & set(words), "the kind is no part of a name"
        assert family.meaning.endswith((".", "?")), "help for whoever reads a scrape"
        assert "_ago" not in family.name, "timestamps instead of ages"
        assert "age" not in words, "timestamps instead of ages"
        for label in (CLUSTER_LABEL, *family.labels):
            assert re.fullmatch("[a-z][a-z_]*", label), family
            assert label not in {"le", "quantile", "job", "instance"}, "names that Prometheus itself gives"
            assert label not in EXTERNAL, "names that operators give a Prometheus, which must survive federation"


def test_given_both_formats_when_scraped_then_both_are_sound_and_every_metric_is_documented(tmp_path: Path) -> None:
    async def story(one: Running, _: FakeCluster) -> None:
        await one.api.put("/v1/consumers/x", json={"acked_generation": 1})
        await one.api.get("/v1/status")
        seen = await one.probes.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        assert seen.headers["content-type"].startswith("application/openmetrics-text")
        names = {family.name for family in open_metrics(seen.text)}  # type: ignore[no-untyped-call]
        assert names >= {"process_open_fds", "process_max_fds", "process_resident_memory_bytes"}
        ours = {name for name in names if not name.startswith("process_")}
        assert ours == {f"{P}{name}" for name in (*metrics.FAMILIES, *metrics.PROCESS)}
        await promtool_accepts((await one.probes.get("/metrics")).text)

    play(tmp_path, story)


def test_given_dead_brokers_when_scraped_then_it_is_answered_and_the_view_ages(tmp_path: Path) -> None:
    async def story(one: Running, cluster: FakeCluster) -> None:
        for broker in (1, 2, 3):
            cluster.silence(broker, Health.DEAD)
        series = await until(one, lambda s: value(s, "state", state="failsafe") == 1)
        assert (value(series, "cycles_total", outcome="transient") or 0) > 0
        confirmed = value(series, "snapshot_timestamp_seconds")
        assert confirmed is not None
        dead = [f"cluster-a-b{broker}:9092" for broker in (1, 2, 3)]
        series = await until(one, lambda s: value(s, "brokers", condition="quarantined") == 4)
        assert [value(series, "broker_up", broker=address) for address in dead] == [0, 0, 0]
        assert value(series, "brokers", condition="healthy") == 0
        status = (await one.api.get("/v1/clusters/main/status")).json()
        series = await until(one, lambda s: (value(s, "last_cycle_timestamp_seconds") or 0) > confirmed + 1)
        assert value(series, "snapshot_timestamp_seconds") == pytest.approx(confirmed, abs=0.5), "it is that old now"
        later = (await one.api.get("/v1/clusters/main/status")).json()
        assert later["age_seconds"] > status["age_seconds"] > 0
        assert all(address in later["sentence"] for address in dead)
        assert (await one.probes.get("/readyz")).status_code == 200, "an old view is served, too"
        verbose = (await one.probes.get("/readyz?verbose")).text
        assert "failsafe" in verbose
        assert re.search(r"confirmed \d+\.\d s ago", verbose)

    play(tmp_path, story)


def test_given_one_black_holed_cluster_of_two_when_served_then_the_other_is_fresh_and_has_its_own_numbers(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        network = FakeNetwork()
        cluster = FakeCluster(network)
        cluster.create_topic("t", 2)
        hole = FakeCluster(network, brokers=3, cluster_id="hole")
        for broker in (1, 2, 3):
            hole.silence(broker, Health.FROZEN)
        settings = settings_of({"main": "cluster-a-b1:9092", "hole": "hole-b1:9092,hole-b2:9092"}, tmp_path)
        async with asyncio.timeout(60), running(network, settings) as one:
            while (await one.api.get("/v1/clusters/main/status")).json()["state"] != "fresh":
                await one.api.get("/v1/clusters/main/follow?wait=1s")
            series = await scrape(one)
            assert value(series, "state", state="fresh") == 1
            assert value(series, "state", state="cold", kafka_cluster="hole") == 1
            assert (await one.probes.get("/readyz")).status_code == 200
            assert (await one.probes.get("/livez")).status_code == 200
            assert (await one.api.get("/v1/clusters/default/status")).status_code == 404
            assert {c["cluster"] for c in (await one.api.get("/v1/clusters")).json()["clusters"]} == {"main", "hole"}

    asyncio.run(main())


def test_given_a_loop_when_judged_then_it_is_dead_only_after_five_intervals_and_ready_only_with_a_view() -> None:
    def health(idle: float | None, generation: int = 1) -> ClusterHealth:
        return ClusterHealth(
            name="c",
            idle_seconds=idle,
            interval_seconds=4.0,
            generation=generation,
            state=LoopState.FAILSAFE,
            age_seconds=3.0,
        )

    assert [live([health(idle)])[0].ok for idle in (None, 0.0, 20.0, 20.1)] == [True, True, True, False]
    assert [ready([health(0.0, generation)])[0].ok for generation in (0, 1)] == [False, True]
