"""Whose end offsets are kept fresh."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from discovery.config.settings import ClusterSettings
from discovery.core.answers import MetadataAnswer
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, Isolation, TopicName, TopicPartition
from discovery.core.policy import Policy
from discovery.core.questions import Wanted
from discovery.core.state import initial_state
from discovery.feed.rhythm import Rhythm
from discovery.kafka.base import LATEST, OffsetAndEpoch, OffsetSpec
from discovery.service.cluster import Cluster, FeedMaker
from tests.support.fakes.clock import FakeClock
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.cycle import turned
from tests.support.fakes.gateway import FakeGateway, FakeVetter

READ, IDLE = TopicName("read"), TopicName("idle")
BOTH = Interest(pattern="", both_ends=True)
Asked = Counter[tuple[TopicName, Isolation]]


class CountingGateway(FakeGateway):
    """Counts how often the ends of each topic were asked for."""

    def __init__(self, network: FakeNetwork, bootstrap: Sequence[BrokerAddress], asked: Asked) -> None:
        super().__init__(network, bootstrap)
        self._asked = asked

    def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_seconds: float,
    ) -> Mapping[TopicPartition, OffsetAndEpoch]:
        if spec == LATEST:
            self._asked.update({(tp.topic, isolation) for tp in partitions})
        return super().list_offsets(partitions, spec, isolation=isolation, timeout_seconds=timeout_seconds)


class MetadataGateway(FakeGateway):
    """Counts how often metadata was asked for."""

    def __init__(self, network: FakeNetwork, bootstrap: Sequence[BrokerAddress], asked: list[float]) -> None:
        super().__init__(network, bootstrap)
        self._asked = asked

    def fetch_metadata(self, topics: Collection[TopicName] | None, *, timeout_seconds: float) -> MetadataAnswer:
        self._asked.append(self.network.clock.monotonic())
        return super().fetch_metadata(topics, timeout_seconds=timeout_seconds)


class CountingVetter:
    """Counts the connections to each broker."""

    def __init__(self, network: FakeNetwork) -> None:
        self._vetter = FakeVetter(network)
        self.connections = Counter[BrokerAddress]()

    def vet(self, addresses: Collection[BrokerAddress], **how: Any) -> None:
        self.connections.update(addresses)
        self._vetter.vet(addresses, **how)


def _asked_within_30_seconds(wanted: Wanted | None) -> Asked:
    network = FakeNetwork()
    cluster = FakeCluster(network)
    for topic in (READ, IDLE):
        cluster.create_topic(topic, 2)
    counted: Asked = Counter()
    cycle, run = turned(
        network,
        initial_state(cluster.addresses.values(), interest=BOTH),
        factory=lambda bootstrap: CountingGateway(network, bootstrap, counted),
        demand=lambda: wanted,
    )
    run(30)
    assert cycle.state.snapshot is not None
    assert (cycle.calm_seconds > 0) is (wanted == ())
    return counted


def test_given_readers_when_they_come_and_go_then_the_cluster_tells_whose_ends_were_not_fresh() -> None:
    clock = FakeClock()
    settings = ClusterSettings(bootstrap_servers=(BrokerAddress("b1", 9092),))
    cluster = Cluster("main", settings, Policy(), clock=clock, maker=FeedMaker(), events_max=10)
    plain = Interest(topics=(READ,))
    assert cluster.demand() == ()
    assert cluster.followed(plain, Isolation.READ_UNCOMMITTED), "nobody read before"
    assert not cluster.followed(plain, Isolation.READ_UNCOMMITTED)
    assert cluster.followed(plain, Isolation.READ_COMMITTED), "the other end was asked for seldom"
    assert cluster.demand() == (plain, replace(plain, isolation=Isolation.READ_COMMITTED))
    clock.advance(seconds=20)
    assert not cluster.followed(plain, Isolation.READ_UNCOMMITTED)
    clock.advance(seconds=20)
    assert not cluster.followed(plain, Isolation.READ_UNCOMMITTED)
    assert cluster.demand() == (plain,), "one reader went away"
    clock.advance(seconds=31)
    assert cluster.demand() == ()


def test_given_more_readers_than_are_distinguished_when_they_ask_then_everything_is_kept_fresh() -> None:
    settings = ClusterSettings(bootstrap_servers=(BrokerAddress("b1", 9092),))
    cluster = Cluster("main", settings, Policy(), clock=FakeClock(), maker=FeedMaker(), events_max=10)
    for number in range(100):
        cluster.followed(Interest(topics=(TopicName(f"t{number}"),)), None)
    assert cluster.scope in cluster.demand()
    assert len(cluster.demand()) <= 64
    assert not cluster.followed(Interest(topics=(READ,)), None), "it is in everything"


def test_given_one_topic_that_is_read_when_the_loop_turns_then_the_ends_of_the_other_are_asked_for_seldom() -> None:
    asked = _asked_within_30_seconds((Interest(topics=(READ,)),))
    leaders = 2
    assert asked[READ, Isolation.READ_UNCOMMITTED] > 100
    assert asked[READ, Isolation.READ_COMMITTED] <= 4 * leaders, "nobody reads it"
    assert asked[IDLE, Isolation.READ_UNCOMMITTED] <= 4 * leaders


def test_given_a_reader_with_a_slow_trigger_when_it_plans_then_each_leader_was_asked_once_shortly_before() -> None:
    network = FakeNetwork()
    cluster = FakeCluster(network)
    cluster.create_topic(READ, 2)
    counted: Asked = Counter()
    rhythm = Rhythm(network.clock)
    cycle, _ = turned(
        network,
        initial_state(cluster.addresses.values(), interest=Interest(topics=(READ,))),
        policy=Policy(idle_interval_seconds=10),
        factory=lambda bootstrap: CountingGateway(network, bootstrap, counted),
        rests_seconds=rhythm.rests_seconds,
    )
    key = (READ, Isolation.READ_UNCOMMITTED)
    next_plan = network.clock.monotonic()
    for plan in range(23):
        before = dict(counted)
        next_plan += 1.0
        while (left := next_plan - network.clock.monotonic()) > 0:
            network.clock.advance(min(max(cycle.turn(), 0.001), left))
        rhythm.note_plan()
        if plan == 2:
            counted.clear()
        elif plan > 2:
            assert counted[key] > before.get(key, 0), "every plan knows what came since the last one"
    assert counted[key] <= 2 * (20 + 3), "two leaders, once per plan, and now and then for lag"


@pytest.mark.parametrize(("gap_seconds", "at_most"), [(0.2, 8), (1.0, 8), (5.0, 16), (20.0, 10)])
def test_given_a_reader_when_nothing_happens_then_brokers_are_connected_to_as_often_as_its_trigger_needs(
    gap_seconds: float, at_most: int
) -> None:
    connections, _ = _asked_per_minute(gap_seconds)
    assert max(connections) <= at_most, "of the leader, which answers for the plans, too"


@pytest.mark.parametrize(("gap_seconds", "at_most"), [(0.2, 202), (1.0, 105), (5.0, 70), (60.0, 62)])
def test_given_a_reader_when_nothing_happens_then_metadata_is_asked_for_once_a_second_between_plans(
    gap_seconds: float, at_most: int
) -> None:
    _, metadata = _asked_per_minute(gap_seconds)
    assert 0 < metadata <= at_most, "every 300 ms where a plan may come at any moment"


def _asked_per_minute(gap_seconds: float) -> tuple[list[float], float]:
    """Return the connections to each broker, the fewest first, and the requests for metadata."""
    network = FakeNetwork()
    cluster = FakeCluster(network)
    cluster.create_topic(READ, 1)
    rhythm, vetter = Rhythm(network.clock), CountingVetter(network)
    metadata: list[float] = []
    cycle, _ = turned(
        network,
        initial_state(cluster.addresses.values(), interest=Interest(topics=(READ,))),
        policy=Policy(idle_interval_seconds=10),
        factory=lambda bootstrap: MetadataGateway(network, bootstrap, metadata),
        vetter=vetter,
        rests_seconds=rhythm.rests_seconds,
    )
    next_plan = network.clock.monotonic()
    warm, counted = 4, round(120 / gap_seconds)
    minutes = counted * gap_seconds / 60
    for plan in range(warm + counted):
        if plan == warm:
            vetter.connections.clear()
            metadata.clear()
        next_plan += gap_seconds
        while (left := next_plan - network.clock.monotonic()) > 0:
            network.clock.advance(min(max(cycle.turn(), 0.001), left))
        rhythm.note_plan()
    assert set(vetter.connections) == set(cluster.addresses.values())
    return sorted(found / minutes for found in vetter.connections.values()), len(metadata) / minutes


def test_given_nobody_who_reads_when_the_loop_turns_then_all_ends_are_asked_for_seldom() -> None:
    assert set(_asked_within_30_seconds(()).values()) <= set(range(9))


def test_given_a_loop_without_readers_of_its_own_when_it_turns_then_both_ends_of_all_are_fresh() -> None:
    assert min(_asked_within_30_seconds(None).values()) > 100
