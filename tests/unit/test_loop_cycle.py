"""Single turns of the loop, over the cluster in memory."""

from discovery.core.model import BrokerAddress, Snapshot, TopicName
from discovery.core.policy import Policy
from discovery.core.state import initial_state
from discovery.loop.cycle import Cycle
from discovery.loop.interest import Interest
from tests.fakes.calls import InlineCalls
from tests.fakes.cluster import FakeCluster, FakeNetwork
from tests.fakes.gateway import FakeGatewayFactory, FakeVetter

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


def test_given_a_view_that_could_not_be_saved_when_there_is_room_again_then_it_is_saved_without_a_change() -> None:
    network, disk = FakeNetwork(), Disk()
    cluster = FakeCluster(network)
    cluster.create_topic(TOPIC, 2)
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
