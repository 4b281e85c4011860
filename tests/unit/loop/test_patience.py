"""Clients of slow leaders: one each, for as long as the leader is slow."""

from collections.abc import Collection, Sequence

import pytest

from discovery.core.answers import MetadataAnswer
from discovery.core.errors import GatewayError
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, BrokerId, ClusterId, TopicName, TopicPartition
from discovery.core.state import initial_state
from discovery.kafka.base import LATEST
from discovery.loop.patience import LeaderClient, PatientClients
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.cycle import turned
from tests.support.fakes.gateway import FakeGateway, FakeGatewayFactory
from tests.support.helpers import eventually

TOPIC = TopicName("t")
T0 = TopicPartition(TOPIC, 0)
ONE = BrokerId(1)


def test_given_a_leader_client_when_a_topic_is_new_or_went_unanswered_then_metadata_is_asked_first() -> None:
    network = FakeNetwork()
    cluster = FakeCluster(network, cluster_id="ours")
    cluster.create_topic(TOPIC, 1)
    asked: list[object] = []

    class Counting(FakeGateway):
        def fetch_metadata(self, topics: Collection[TopicName] | None, *, timeout_seconds: float) -> MetadataAnswer:
            asked.append(topics)
            return super().fetch_metadata(topics, timeout_seconds=timeout_seconds)

    client = LeaderClient(Counting(network, (cluster.addresses[1],)), ClusterId("ours"))
    for _ in range(2):
        assert client.list_offsets([T0], LATEST, timeout_seconds=1)[T0].offset == 0
    assert len(asked) == 1
    assert not client.list_offsets([TopicPartition(TOPIC, 9)], LATEST, timeout_seconds=1)
    client.list_offsets([T0], LATEST, timeout_seconds=1)
    assert len(asked) == 2


def test_given_another_cluster_at_the_leaders_address_when_asked_then_no_offset_of_it_is_returned() -> None:
    network = FakeNetwork()
    cluster = FakeCluster(network, cluster_id="theirs")
    cluster.create_topic(TOPIC, 1)
    client = LeaderClient(FakeGateway(network, (cluster.addresses[1],)), ClusterId("ours"))
    with pytest.raises(GatewayError, match="cluster theirs instead of ours"):
        client.list_offsets([T0], LATEST, timeout_seconds=1)


def test_given_a_leader_that_moved_or_is_slow_no_more_when_kept_then_its_client_is_closed() -> None:
    factory = FakeGatewayFactory(FakeNetwork())
    clients = PatientClients(factory)
    here, there = BrokerAddress("a", 1), BrokerAddress("b", 1)
    first = clients.take(ONE, here, None)
    assert clients.take(ONE, here, None) is first
    assert clients.take(ONE, there, None) is not first
    eventually(lambda: factory.made[0].closed, 5)
    clients.keep({ONE})
    assert clients.get(ONE) is not None
    clients.keep(())
    assert clients.get(ONE) is None
    eventually(lambda: factory.made[1].closed, 5)


def test_given_a_slow_leader_when_the_loop_turns_then_a_client_of_its_own_asks_it_until_it_is_quick() -> None:
    network, took = FakeNetwork(), [3.0]
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 1)
    made: list[FakeGateway] = []

    class Slow(FakeGateway):
        def list_offsets(self, *arguments: object, **more: object) -> object:  # type: ignore[override]
            network.clock.advance(took[0])
            return super().list_offsets(*arguments, **more)  # type: ignore[arg-type]

    def pooled(bootstrap: Sequence[BrokerAddress]) -> FakeGateway:
        return Slow(network, bootstrap)

    def patient(bootstrap: Sequence[BrokerAddress]) -> FakeGateway:
        made.append(Slow(network, bootstrap))
        return made[-1]

    state = initial_state(cluster.addresses.values(), interest=Interest(topics=(TOPIC,)))
    cycle, run = turned(network, state, factory=pooled, patient_factory=patient)
    run(20)
    assert [one.bootstrap for one in made] == [(cluster.addresses[1],)]
    took[0] = 0.0
    run(10)
    assert cycle.slow_leaders.get(ONE) is None
    eventually(lambda: made[0].closed, 5)
