"""Single turns of the loop, over the cluster in memory."""

import re
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from discovery.core.answers import MetadataAnswer
from discovery.core.decide import Decision
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, Snapshot, TopicId, TopicName, TopicPartition
from discovery.core.policy import Policy
from discovery.core.state import initial_state
from discovery.loop.calls import ThreadedCalls
from discovery.loop.cycle import Cycle
from tests.support.fakes.calls import InlineCalls
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.cycle import turned
from tests.support.fakes.gateway import FakeGateway
from tests.support.helpers import eventually

TOPIC = TopicName("t")


class Disk:
    """Keeps what was to be saved; `full` refuses."""

    def __init__(self) -> None:
        self.full = True
        self.tried = 0
        self.saved: Snapshot | None = None

    def save(self, snapshot: Snapshot, addresses: tuple[BrokerAddress, ...]) -> bool:
        self.tried += 1
        self.saved = None if self.full else snapshot
        return not self.full


def running(
    network: FakeNetwork,
    cluster: FakeCluster,
    disk: Disk,
    *topics: TopicName,
    **parts: Any,
) -> tuple[Cycle, Callable[[float], None]]:
    """A cycle over a cluster, and what lets it run for so many seconds."""
    state = initial_state(cluster.addresses.values(), interest=Interest(topics=topics or (TOPIC,)))
    return turned(network, state, persistence=disk, **parts)


def test_given_a_view_that_could_not_be_saved_when_there_is_room_again_then_it_is_saved_without_a_change() -> None:
    network, disk = FakeNetwork(), Disk()
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)
    cycle, run = running(network, cluster, disk)
    run(5)
    tried = disk.tried
    run(5)
    assert disk.tried <= tried + 1, "not at every turn"
    disk.full = False
    run(11)
    assert disk.saved is not None
    assert cycle.state.snapshot is not None
    assert disk.saved.generation == cycle.state.snapshot.generation
    tried = disk.tried
    run(30)
    assert disk.tried == tried


class Ids:
    """How the ids of topics are answered: `hidden` are not, `failures` calls fail first, after a while."""

    def __init__(self, network: FakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[set[TopicName]] = []
        self.hidden: dict[TopicName, int] = {}
        """In how many answers a topic is left out."""
        self.failures = 0
        real = FakeGateway.describe_topic_ids

        def described(
            gateway: FakeGateway, topics: Collection[TopicName], *, timeout_seconds: float
        ) -> Mapping[TopicName, TopicId]:
            self.calls.append(set(topics))
            if len(self.calls) <= self.failures:
                network.clock.advance(5.2)
                raise GatewayError(FailureKind.TRANSIENT, "nobody answered")
            seen = real(gateway, topics, timeout_seconds=timeout_seconds)
            hidden = {name for name in topics if self.hidden.get(name, 0) > 0}
            self.hidden |= {name: self.hidden[name] - 1 for name in hidden}
            return {name: topic_id for name, topic_id in seen.items() if name not in hidden}

        monkeypatch.setattr(FakeGateway, "describe_topic_ids", described)


def test_given_a_broker_that_does_not_know_a_topic_yet_when_its_id_is_asked_then_soon_again_for_that_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, other = FakeNetwork(), TopicName("u")
    cluster, ids = FakeCluster(network), Ids(network, monkeypatch)
    for name in (TOPIC, other):
        cluster.create_topic(name, 2)
    ids.hidden = {TOPIC: 2}
    cycle, run = running(network, cluster, Disk(), TOPIC, other)
    run(2)
    assert ids.calls == [{TOPIC, other}, {TOPIC}, {TOPIC}]
    assert cycle.state.snapshot is not None
    assert all(topic.topic_id is not None for topic in cycle.state.snapshot.topics.values())


def test_given_an_id_that_nobody_tells_when_asked_then_not_for_ever_and_another_one_is_not_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, other = FakeNetwork(), TopicName("u")
    cluster, ids = FakeCluster(network), Ids(network, monkeypatch)
    cluster.create_topic(TOPIC, 2)
    ids.hidden = {TOPIC: 10_000, other: 2}
    cycle, run = running(network, cluster, Disk(), TOPIC, other)
    run(10)
    assert 10 < len(ids.calls) < 25
    ids.calls.clear()
    run(30)
    assert len(ids.calls) <= 30 / Policy().topic_ids_interval_seconds + 1
    cluster.create_topic(other, 2)
    run(3)
    assert cycle.state.snapshot is not None
    assert cycle.state.snapshot.topics[other].topic_id is not None


def test_given_a_first_question_that_hangs_when_it_failed_then_the_ids_are_asked_soon_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = FakeNetwork()
    cluster, ids = FakeCluster(network), Ids(network, monkeypatch)
    cluster.create_topic(TOPIC, 2)
    ids.failures, ids.hidden = 1, {TOPIC: 2}
    cycle, run = running(network, cluster, Disk())
    run(8)
    assert cycle.state.snapshot is not None
    assert cycle.state.snapshot.topics[TOPIC].topic_id is not None


def test_given_a_question_under_way_when_all_ids_are_due_then_they_are_asked_as_soon_as_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = FakeNetwork()
    cluster, ids = FakeCluster(network), Ids(network, monkeypatch)
    cluster.create_topic(TOPIC, 2)
    busy = [False]

    class Held(InlineCalls):
        """Ends no question for ids while it is busy."""

        def start(self, key: str, work: Callable[[], object], *, limit_seconds: float) -> bool:
            held.extend([work] if (holds := busy[0] and key.startswith("topic ids")) else ())
            return holds or super().start(key, work, limit_seconds=limit_seconds)

    held: list[Callable[[], object]] = []
    _, run = running(network, cluster, Disk(), calls=Held())
    run(2)
    busy[0] = True
    ids.calls.clear()
    run(2 * Policy().topic_ids_interval_seconds)
    assert (len(held), ids.calls) == (1, [])
    busy[0] = False
    held[0]()
    run(1)
    assert ids.calls == [{TOPIC}, {TOPIC}]


def test_given_a_leader_that_owes_an_answer_when_a_second_passed_then_that_is_shown_though_nothing_came() -> None:
    network, frozen = FakeNetwork(), [False]
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 1)
    shown: list[Decision] = []

    class Frozen(InlineCalls):
        def start(self, key: str, work: Callable[[], object], *, limit_seconds: float) -> bool:
            return frozen[0] or super().start(key, work, limit_seconds=limit_seconds)

    _, run = running(network, cluster, Disk(), calls=Frozen(), show=shown.append)
    run(2)
    assert not shown[-1].state.offsets.unanswered
    frozen[0] = True
    run(2)
    assert shown[-1].state.offsets.unanswered.keys() == {TopicPartition(TOPIC, 0)}


def test_given_a_new_view_when_taken_then_it_is_saved_before_it_is_shown() -> None:
    network, disk = FakeNetwork(), Disk()
    disk.full = False
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)
    shown: list[Snapshot | None] = []

    def show(decision: Decision) -> None:
        shown.append(decision.state.snapshot)
        assert disk.saved == shown[-1] or disk.saved is not None

    _, run = running(network, cluster, disk, show=show)
    run(2)
    assert shown[-1] is not None


def test_given_a_turn_that_failed_when_the_next_comes_then_what_ended_in_it_is_asked_again() -> None:
    network = FakeNetwork()
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)
    cycle, run = running(network, cluster, Disk())
    run(2)
    cycle.inbox.put(Broken())  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        run(5)
    assert_that_it_goes_on(cluster, cycle, run)


def test_given_a_turn_that_failed_after_it_decided_when_the_next_comes_then_it_asks() -> None:
    network, failures = FakeNetwork(), [0]
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)

    def show(_: Decision) -> None:
        if failures[0]:
            failures[0] -= 1
            raise AssertionError("nobody expected this")

    cycle, run = running(network, cluster, Disk(), show=show)
    run(2)
    failures[0] = 20
    for _ in range(20):
        with pytest.raises(AssertionError):
            run(5)
    assert_that_it_goes_on(cluster, cycle, run)


def assert_that_it_goes_on(cluster: FakeCluster, cycle: Cycle, run: Callable[[float], None]) -> None:
    """New ends and new partitions are heard of."""
    cluster.append(TOPIC, 0, 9)
    cluster.add_partitions(TOPIC, 3)
    run(2)
    assert cycle.state.offsets.offsets[TopicPartition(TOPIC, 0)].high_watermark == 9
    assert TopicPartition(TOPIC, 2) in cycle.state.offsets.offsets


class Broken:
    """No answer that anybody knows."""


def test_given_no_room_for_another_call_when_one_is_due_then_it_is_tried_again() -> None:
    network, room = FakeNetwork(), [False]
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)

    class Full(InlineCalls):
        def start(self, key: str, work: Callable[[], object], *, limit_seconds: float) -> bool:
            return room[0] and super().start(key, work, limit_seconds=limit_seconds)

    cycle, run = running(network, cluster, Disk(), calls=Full())
    run(3)
    assert cycle.state.snapshot is None
    room[0] = True
    run(3)
    assert cycle.state.snapshot is not None


CONFIGURATION_PAGE = Path(__file__).parents[3] / "docs/reference/configuration.md"


def documented(setting: str) -> float:
    """Return the default that the reference page names."""
    (row,) = re.findall(rf"^\| `{setting}` \| ([\d.]+) \|", CONFIGURATION_PAGE.read_text(), re.MULTILINE)
    return float(row)


@pytest.mark.parametrize("given_seconds", [None, 2.0], ids=["default", "explicit"])
def test_given_a_running_loop_when_a_minute_passes_then_it_asks_once_per_interval(
    monkeypatch: pytest.MonkeyPatch, given_seconds: float | None
) -> None:
    network, asked = FakeNetwork(), list[float]()
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)
    real = FakeGateway.fetch_metadata

    def counted(
        gateway: FakeGateway, topics: Collection[TopicName] | None, *, timeout_seconds: float
    ) -> MetadataAnswer:
        asked.append(network.clock.monotonic())
        return real(gateway, topics, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(FakeGateway, "fetch_metadata", counted)
    policy = Policy() if given_seconds is None else Policy(topics_interval_seconds=given_seconds)
    _, run = running(network, cluster, Disk(), policy=policy)
    run(10)
    asked.clear()
    run(60)
    wanted = 60 / (given_seconds or documented("topics_interval_seconds"))
    assert wanted - 2 <= len(asked) <= wanted + 1


def test_given_answers_slower_than_the_interval_when_asked_then_one_at_a_time_and_taken_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, release, under_way, most = FakeNetwork(), threading.Event(), list[int](), 0
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)
    calls = ThreadedCalls(network.clock, max_stuck=8, on_error=lambda _key, _error: None)
    cycle, run = running(network, cluster, Disk(), calls=calls)

    def grown() -> int:
        run(0.05)
        snapshot = cycle.state.snapshot
        return len(snapshot.topics[TOPIC].partitions) if snapshot and TOPIC in snapshot.topics else 0

    eventually(lambda: grown() == 2, 10, "the first view")
    real = FakeGateway.fetch_metadata

    def slow(gateway: FakeGateway, topics: Collection[TopicName] | None, *, timeout_seconds: float) -> MetadataAnswer:
        nonlocal most
        under_way.append(1)
        most = max(most, len(under_way))
        release.wait(30)
        under_way.pop()
        return real(gateway, topics, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(FakeGateway, "fetch_metadata", slow)
    eventually(lambda: grown() and under_way, 10, "a question under way")
    assert cycle.state.snapshot is not None
    before = cycle.state.snapshot.generation
    cluster.add_partitions(TOPIC, 4)
    run(5)  # seventeen intervals, and less than the question may take
    assert grown() == 2
    release.set()
    eventually(lambda: grown() == 4, 10, "the grown topic")
    run(5)
    eventually(lambda: not under_way, 10, "the last answer")
    assert most == 1
    assert cycle.state.snapshot.generation == before + 1, "the partitions were taken in once"
    assert calls.stuck_total == 0


def test_given_an_old_client_that_hangs_in_close_when_replaced_then_news_come_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, release, closing, closed = FakeNetwork(), threading.Event(), threading.Event(), threading.Event()
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)
    cycle, run = running(network, cluster, Disk())
    run(2)
    old = cycle.client

    def close(_: FakeGateway) -> None:
        closing.set()
        release.wait(5)
        closed.set()

    def failing(*_: object, **__: object) -> MetadataAnswer:
        raise GatewayError(FailureKind.TRANSIENT, "timed out")

    monkeypatch.setattr(FakeGateway, "close", close)
    with monkeypatch.context() as patch:
        patch.setattr(FakeGateway, "fetch_metadata", failing)
        run(2)
    cluster.add_partitions(TOPIC, 5)
    run(2)
    assert closing.wait(10)
    assert cycle.client is not old
    assert cycle.state.snapshot is not None
    assert len(cycle.state.snapshot.topics[TOPIC].partitions) == 5
    assert not closed.is_set(), "while the old client still closes"
    release.set()
