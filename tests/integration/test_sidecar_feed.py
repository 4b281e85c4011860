"""A reader that follows a service which is killed, frozen and restarted; only Kafka is played."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from discovery.cli.app import app
from discovery.core.errors import KafkaUnreachableError, StateError
from discovery.core.model import (
    BrokerAddress,
    ClusterId,
    Isolation,
    LoopState,
    TopicName,
    TopicPartition,
    parse_bootstrap_servers,
)
from discovery.core.policy import Policy
from discovery.feed.base import FeedView, Interest
from discovery.feed.embedded import EmbeddedFeed
from discovery.feed.leading import Limits, Mode
from discovery.feed.service_client import ServiceClient
from discovery.feed.sidecar import SidecarFeed
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.gateway import FakeGatewayFactory, FakeVetter
from tests.support.fakes.service import FAST
from tests.support.helpers import eventually
from tests.support.service import ServiceProcess

LIST = parse_bootstrap_servers("cluster-a-b1:9092,gone:9092")
DEADLINE = 30


def tp(partition: int, topic: str = "t0") -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


class Stage:
    """A service over one played cluster, and for the embedded loop a second one that looks the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.cluster = FakeCluster(FakeNetwork())
        self.cluster.create_topic("t0", 3)
        self.embedded_loops: list[tuple[BrokerAddress, ...]] = []
        self.feeds: list[SidecarFeed] = []
        self.interest = Interest(topics=(TopicName("t0"),))
        self.service = self.new_service()

    def new_service(self) -> ServiceProcess:
        program = ("-m", "tests.support.fakes.service_main")
        arguments = (str(self.folder / "state"), str(self.port), "1")
        return ServiceProcess(*arguments, log=self.folder / "service.log", program=program)

    def restart(self) -> None:
        self.service.end()
        self.service = self.new_service().start()

    def follow(self, **more: object) -> SidecarFeed:
        feed = SidecarFeed(
            ServiceClient(f"http://127.0.0.1:{self.port}"),
            **{  # type: ignore[arg-type]
                "bootstrap": LIST,
                "interest": self.interest,
                "embedded_loop": self.embedded_loop,
                "limits": Limits(silence_seconds=2.0, age_seconds=4.0, return_seconds=1.0),
                **more,
            },
        )
        self.feeds.append(feed)
        feed.start()
        return feed

    def embedded_loop(self, bootstrap: tuple[BrokerAddress, ...]) -> EmbeddedFeed:
        self.embedded_loops.append(bootstrap)
        return EmbeddedFeed(
            bootstrap=bootstrap,
            interest=self.interest,
            policy=Policy(**FAST),  # type: ignore[arg-type]
            factory=FakeGatewayFactory(self.cluster.network),
            vetter=FakeVetter(self.cluster.network),
        )

    def append(self, partition: int, records: int) -> None:
        """Write records for both to see."""
        self.cluster.append("t0", partition, records)
        self.service.say(f"append t0 {partition} {records}")

    def end(self) -> None:
        for feed in self.feeds:
            feed.stop()
        self.service.end()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        made.service.start()
        made.port = int(made.service.api.rpartition(":")[2])
        yield made
    finally:
        made.end()


def end(feed: SidecarFeed, partition: int) -> int | None:
    one = feed.view().partitions.get(tp(partition))
    return one.end_offset(Isolation.READ_UNCOMMITTED) if one else None


def until_end(feed: SidecarFeed, partition: int, offset: int) -> None:
    eventually(lambda: end(feed, partition) == offset, DEADLINE, f"end {offset}; mode {feed.mode}; {feed.view()}")


def until_mode(feed: SidecarFeed, mode: Mode) -> None:
    eventually(lambda: feed.mode is mode, DEADLINE, f"{mode}, not {feed.mode}; {feed.view().sentence}")


class Watch:
    """Sees every view a feed shows, to find one that went back."""

    def __init__(self, feed: SidecarFeed) -> None:
        self.feed = feed
        self.seen: list[FeedView] = []

    def look(self) -> bool:
        self.seen.append(self.feed.view())
        return False

    def check(self) -> None:
        for before, after in zip(self.seen, self.seen[1:], strict=False):
            assert after.version >= before.version
            assert after.generation >= before.generation
            assert after.partitions.keys() >= before.partitions.keys()


def test_given_a_service_when_followed_then_views_offsets_and_reports_go_through(stage: Stage) -> None:
    feed = stage.follow(consumer_id="query")
    stage.append(1, 7)
    until_end(feed, 1, 7)
    view = feed.view()
    assert feed.mode is Mode.SERVICE
    assert {str(a) for a in view.bootstrap} == {f"cluster-a-b{i}:9092" for i in (1, 2, 3)}
    assert view.state is LoopState.FRESH
    assert view.age_seconds < DEADLINE
    stage.service.say("add_partitions t0 5")
    eventually(lambda: tp(4) in feed.view().partitions, DEADLINE, "the new partitions")
    assert feed.resolve({tp(1): -1, tp(0): -2}, timeout_seconds=10) == {tp(1): 7, tp(0): 0}
    stage.service.say("append t0 2 3")
    assert feed.refresh(10).partitions[tp(2)].high_watermark == 3
    feed.report({tp(1): 5})
    feed.ack(feed.view().generation)

    def reported() -> object:
        (consumer,) = stage.service.json("/v1/consumers")["consumers"]
        return (consumer["id"], consumer["lag"], consumer["behind"]) == ("query", 2, False)

    eventually(reported, DEADLINE, "the report")
    (consumer,) = stage.service.json("/v1/consumers")["consumers"]
    assert consumer["bootstrap_servers"] == ["cluster-a-b1:9092", "gone:9092"]
    assert not stage.embedded_loops
    feed.stop()
    assert stage.service.json("/v1/consumers")["consumers"] == []


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_given_a_service_that_falls_silent_when_followed_then_the_embedded_loop_takes_over_and_gives_back(
    stage: Stage, how: str
) -> None:
    feed = stage.follow()
    stage.append(0, 5)
    until_end(feed, 0, 5)
    watch = Watch(feed)
    stage.service.send(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    stage.cluster.append("t0", 0, 6)
    eventually(lambda: watch.look() or end(feed, 0) == 11, DEADLINE, "the view of the embedded loop")
    until_mode(feed, Mode.EMBEDDED_LOOP)
    assert set(stage.embedded_loops[0]) >= set(LIST)
    assert len(stage.embedded_loops[0]) > len(LIST), "what the service taught is lost"
    if how == "killed":
        stage.restart()
    else:
        stage.service.send(signal.SIGCONT)
    stage.service.say("append t0 1 9")
    eventually(lambda: watch.look() or end(feed, 1) == 9, DEADLINE, "the service's view")
    until_mode(feed, Mode.SERVICE)
    watch.check()
    stage.service.say("append t0 1 1")
    until_end(feed, 1, 10)


def test_given_a_service_that_has_lost_kafka_when_followed_then_the_embedded_loop_serves_until_it_is_fresh_again(
    stage: Stage,
) -> None:
    feed = stage.follow()
    stage.append(0, 5)
    until_end(feed, 0, 5)
    watch = Watch(feed)
    for broker in (1, 2, 3):
        stage.service.say(f"silence {broker}")
    stage.cluster.append("t0", 0, 6)
    assert feed.resolve({tp(0): -1}, timeout_seconds=10) == {tp(0): 11}
    assert feed.refresh(10).partitions[tp(0)].high_watermark == 11
    eventually(lambda: watch.look() or feed.mode is Mode.EMBEDDED_LOOP, DEADLINE, "the embedded loop's view")
    stage.cluster.append("t0", 0, 1)
    until_end(feed, 0, 12)
    for broker in (1, 2, 3):
        stage.service.say(f"revive {broker}")
    stage.service.say("append t0 1 9")
    eventually(lambda: watch.look() or end(feed, 1) == 9, DEADLINE, "the service's view")
    until_mode(feed, Mode.SERVICE)
    watch.check()


def test_given_a_service_and_brokers_that_are_lost_to_both_when_followed_then_the_last_view_stays_and_ages(
    stage: Stage,
) -> None:
    feed = stage.follow()
    stage.append(0, 5)
    until_end(feed, 0, 5)
    for broker in (1, 2, 3):
        stage.cluster.silence(broker)
        stage.service.say(f"silence {broker}")
    eventually(lambda: stage.embedded_loops, DEADLINE, "the embedded loop")
    eventually(lambda: feed.view().age_seconds > 6, DEADLINE, "an age that grows")
    assert set(feed.view().partitions) == {tp(0), tp(1), tp(2)}
    assert feed.mode is Mode.SERVICE
    stage.cluster.revive(1)
    until_mode(feed, Mode.EMBEDDED_LOOP)


def test_given_a_reader_of_brokers_alone_when_it_follows_then_the_service_leads_it_without_a_partition(
    stage: Stage,
) -> None:
    stage.interest = Interest(brokers_only=True)
    feed = stage.follow()
    until_mode(feed, Mode.SERVICE)
    assert set(feed.view().bootstrap) == set(stage.cluster.addresses.values())
    assert not feed.view().partitions
    assert not feed.view().missing_topics


def test_given_a_topic_deleted_while_the_service_led_when_it_is_killed_then_the_embedded_loop_takes_over(
    stage: Stage,
) -> None:
    stage.interest = Interest(pattern="^t[0-9]$")
    stage.service.say("create_topic t1 2")
    feed = stage.follow()
    eventually(lambda: tp(1, "t1") in feed.view().partitions, DEADLINE, "the second topic")
    stage.service.say("delete_topic t1")
    eventually(lambda: feed.view().partitions[tp(1, "t1")].gone, DEADLINE, "its end")
    stage.service.send(signal.SIGKILL)
    stage.cluster.append("t0", 0, 11)
    until_end(feed, 0, 11)
    assert feed.mode is Mode.EMBEDDED_LOOP
    assert feed.view().partitions[tp(1, "t1")].gone


@pytest.mark.parametrize("meanwhile", ["nothing", "the service restarts"])
def test_given_a_query_killed_before_it_unregisters_when_it_starts_again_then_it_has_its_id_at_once(
    stage: Stage, meanwhile: str
) -> None:
    code = (
        "import sys; from discovery.feed.identity import instance_name; from discovery.feed.service_client import *\n"
        "report = {'instance': instance_name(), 'bootstrap_servers': ['127.0.0.1:1']}\n"
        "ServiceClient(sys.argv[1]).report('query', report); print('done', flush=True); input()"
    )
    command = [sys.executable, "-c", code, f"http://127.0.0.1:{stage.port}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as last:
        assert last.stdout is not None
        assert last.stdout.readline() == "done\n"
        last.kill()
    if meanwhile == "the service restarts":
        stage.restart()
    began = time.monotonic()
    stage.follow(consumer_id="query")
    assert time.monotonic() - began < 8, "a silent holder is waited for, a dead one is not"
    (consumer,) = stage.service.json("/v1/consumers")["consumers"]
    assert consumer["instance"] == stage.feeds[0]._reporter.instance


def test_given_no_service_when_started_then_the_embedded_loop_serves_until_one_appears(stage: Stage) -> None:
    stage.service.end()
    stage.cluster.append("t0", 2, 4)
    feed = stage.follow()
    until_end(feed, 2, 4)
    until_mode(feed, Mode.EMBEDDED_LOOP)
    assert feed.resolve({tp(2): -1}, timeout_seconds=10) == {tp(2): 4}
    stage.service = stage.new_service().start()
    until_mode(feed, Mode.SERVICE)


def test_given_a_service_that_restarts_between_two_questions_when_followed_then_nothing_goes_back(
    stage: Stage,
) -> None:
    feed = stage.follow()
    stage.service.say("add_partitions t0 4")
    eventually(lambda: tp(3) in feed.view().partitions, DEADLINE, "the new partition")
    watch = Watch(feed)
    for _ in range(3):
        epoch = stage.service.json("/v1/status")["epoch"]
        generation = stage.service.json("/v1/status")["generation"]
        stage.restart()
        again = stage.service.json("/v1/status")
        assert again["epoch"] != epoch
        assert again["generation"] >= generation
        began = time.monotonic()
        while time.monotonic() - began < 1:
            watch.look()
            feed.wait(feed.view().version, 0.05)
    watch.check()


@pytest.mark.parametrize(
    "wrong",
    [{"cluster_id": ClusterId("another")}, {"interest": Interest(topics=(TopicName("__consumer_offsets"),))}],
    ids=["another cluster", "a topic it does not follow"],
)
def test_given_a_service_that_cannot_be_used_when_followed_then_the_embedded_loop_begins(
    stage: Stage, wrong: dict[str, object]
) -> None:
    feed = stage.follow(**wrong)
    eventually(lambda: stage.embedded_loops, DEADLINE, "the embedded loop")
    assert feed.mode is not Mode.SERVICE


def test_given_two_readers_with_one_id_when_started_then_the_second_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discovery.feed.reporter._OWNER_SECONDS", 0.5)
    first = stage.follow(consumer_id="query")
    with pytest.raises(StateError, match="sourceId 'query': consumer 'query' is in use by"):
        stage.follow(consumer_id="query")
    first.stop()
    stage.follow(consumer_id="query")


def test_given_a_service_when_asked_by_command_then_the_list_and_the_status_are_printed(stage: Stage) -> None:
    eventually(lambda: stage.service.json("/v1/status")["brokers"]["healthy"] == 3, DEADLINE, "three brokers")
    url = ("--url", f"http://127.0.0.1:{stage.port}")
    listed = CliRunner().invoke(app, ["bootstrap", *url])
    assert set(listed.output.strip().split(",")) == {f"cluster-a-b{i}:9092" for i in (1, 2, 3)}
    found = json.loads(CliRunner().invoke(app, ["status", "--json", *url]).output)
    assert (found["state"], found["cluster_id"], found["parked"]) == ("fresh", "cluster-a", {})
    assert "cluster-a-b1:9092" in CliRunner().invoke(app, ["status", *url]).output
    stage.service.end()
    silent = CliRunner().invoke(app, ["bootstrap", *url])
    assert isinstance(silent.exception, KafkaUnreachableError)
    assert "start one with `kafka-discovery serve`" in str(silent.exception)
    alone = CliRunner().invoke(app, ["status", "--bootstrap", "127.0.0.1:1", "--timeout", "1"])
    assert "127.0.0.1:1: refused" in str(alone.exception)
