"""Single turns of the loop, over the cluster in memory."""

from collections.abc import Callable, Collection, Mapping

import pytest

from discovery.core.model import BrokerAddress, Snapshot, TopicId, TopicName
from discovery.core.policy import Policy
from discovery.core.state import initial_state
from discovery.loop.cycle import Cycle
from discovery.loop.interest import Interest
from tests.fakes.calls import InlineCalls
from tests.fakes.cluster import FakeCluster, FakeNetwork
from tests.fakes.gateway import FakeGateway, FakeGatewayFactory, FakeVetter

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


def running(network: FakeNetwork, cluster: FakeCluster, disk: Disk) -> tuple[Cycle, Callable[[float], None]]:
    """A cycle over a cluster, and what lets it run for so many seconds."""
    cycle = Cycle(
        state=initial_state(cluster.addresses.values()),
        policy=Policy(),
        interest=Interest(topics=(TOPIC,)),
        factory=FakeGatewayFactory(network),
        vetter=FakeVetter(network),
        calls=InlineCalls(),
        clock=network.clock,
        persistence=disk,
        show=lambda _: None,
    )

    def run(seconds: float) -> None:
        until = network.clock.monotonic() + seconds
        while network.clock.monotonic() < until:
            network.clock.advance(max(cycle.turn(), 0.01))

    return cycle, run


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


@pytest.mark.parametrize(("unanswered", "within_five_seconds"), [(2, range(3, 5)), (1000, range(10, 20))])
def test_given_a_broker_that_does_not_know_the_topic_yet_when_its_id_is_asked_then_soon_again_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, unanswered: int, within_five_seconds: range
) -> None:
    network = FakeNetwork()
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)
    cycle, run = running(network, cluster, Disk())
    real, calls = FakeGateway.describe_topic_ids, list[Collection[TopicName]]()

    def late(
        gateway: FakeGateway, topics: Collection[TopicName], *, timeout_seconds: float
    ) -> Mapping[TopicName, TopicId]:
        calls.append(topics)
        return {} if len(calls) <= unanswered else real(gateway, topics, timeout_seconds=timeout_seconds)

    monkeypatch.setattr(FakeGateway, "describe_topic_ids", late)
    run(2)
    assert all(set(asked) == {TOPIC} for asked in calls)
    assert cycle.state.snapshot is not None
    assert (cycle.state.snapshot.topics[TOPIC].topic_id is not None) == (unanswered == 2)
    run(3)
    assert len(calls) in within_five_seconds
    calls.clear()
    run(30)
    assert len(calls) <= 30 / Policy().topic_ids_interval_seconds + 2
