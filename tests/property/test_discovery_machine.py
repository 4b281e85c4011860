"""The whole loop, without threads, against a simulated cluster to which anything may happen."""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from discovery.core.decide import Decision
from discovery.core.diff import EventKind
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, LoopState, Snapshot, TopicName, TopicPartition
from discovery.core.state import initial_state
from discovery.store.codec import Saved, decode, encode
from tests.support.fakes.cluster import FakeCluster, FakeNetwork, Health
from tests.support.fakes.cycle import turned

TOPIC = TopicName("t")
BROKERS = st.integers(1, 5)
SETTLED_SECONDS = 150.0
"""Longer than the longest quarantine and the next proof after it."""


class Disk:
    """Persistence through the real codec."""

    def __init__(self) -> None:
        self.content: bytes | None = None

    def save(self, snapshot: Snapshot, addresses: tuple[BrokerAddress, ...]) -> bool:
        self.content = encode(Saved(snapshot=snapshot, known_addresses=frozenset(addresses)))
        return True

    def load(self) -> Snapshot | None:
        return decode(self.content).snapshot if self.content else None


class DiscoveryMachine(RuleBasedStateMachine):
    """Rules are faults; invariants are promises; `heal` asks for convergence."""

    @initialize()
    def begin(self) -> None:
        self.network = FakeNetwork()
        self.cluster = FakeCluster(self.network, brokers=5, cluster_id="ours")
        self.other = FakeCluster(self.network, brokers=2, cluster_id="theirs")
        self.cluster.create_topic(TOPIC, 3)
        self.other.create_topic(TOPIC, 9)
        self.configured = tuple(self.cluster.addresses[i] for i in (1, 2, 3))
        self.foreign: set[int] = set()
        self.disk = Disk()
        self.last: Snapshot | None = None
        self.decisions: list[Decision] = []
        self.start()
        self.run(5.0)

    def start(self) -> None:
        state = initial_state(self.configured, interest=Interest(topics=(TOPIC,)), snapshot=self.disk.load(), salt=11)
        self.cycle, _ = turned(self.network, state, persistence=self.disk, show=self.show)

    def show(self, decision: Decision) -> None:
        """Check every decision against the one before: promises hold at each step, not only at the end."""
        self.decisions = [decision]
        new, old = decision.state.snapshot, self.last
        kinds = {event.kind for event in decision.events}
        if old is not None:
            assert new is not None
            assert new.brokers
            assert new.generation >= old.generation
            assert new.cluster_id == "ours"
            before, after = old.topics.get(TOPIC), new.topics.get(TOPIC)
            if before and after and EventKind.TOPIC_RECREATED not in kinds:
                assert {p.partition for p in before.partitions} <= {p.partition for p in after.partitions}
            assert after or not before or TOPIC in new.tombstones
        self.last = new

    def run(self, seconds: float) -> None:
        until = self.network.clock.monotonic() + seconds
        while self.network.clock.monotonic() < until:
            idle = self.cycle.turn()
            assert idle <= 1.0
            self.network.clock.advance(max(idle, 0.01))

    # -- faults -------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 0.5, 2.0, 10.0, 70.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.run(seconds)

    @rule(broker=BROKERS)
    def kill(self, broker: int) -> None:
        if broker not in self.foreign:
            self.cluster.kill(broker)

    @rule(broker=BROKERS)
    def freeze(self, broker: int) -> None:
        if broker not in self.foreign:
            self.cluster.freeze(broker)

    @rule(broker=BROKERS, health=st.sampled_from([Health.FROZEN, Health.DEAD]))
    def fail_unnoticed(self, broker: int, health: Health) -> None:
        if broker not in self.foreign:
            self.cluster.silence(broker, health)

    @rule(broker=BROKERS)
    def revive(self, broker: int) -> None:
        if broker not in self.foreign:
            self.cluster.revive(broker)

    @rule(broker=BROKERS)
    def drain(self, broker: int) -> None:
        if len(self.cluster.listed) > 1:
            self.cluster.remove(broker)

    @rule(broker=BROKERS)
    def repeat_old_metadata(self, broker: int) -> None:
        self.cluster.answer_stale(broker)

    @rule(broker=BROKERS)
    def answer_empty(self, broker: int) -> None:
        self.cluster.answer_empty(broker)

    @rule(more=st.integers(1, 3))
    def add_partitions(self, more: int) -> None:
        if TOPIC in self.cluster.topics and self.cluster.listed:
            self.cluster.add_partitions(TOPIC, len(self.cluster.topics[TOPIC].partitions) + more)

    @rule(partitions=st.integers(1, 4))
    def recreate_topic(self, partitions: int) -> None:
        if TOPIC in self.cluster.topics and self.cluster.listed:
            self.cluster.recreate_topic(TOPIC, max(partitions, self.held_without_id()))
            self.repeat_no_former_life()

    @rule()
    def delete_topic(self) -> None:
        if TOPIC in self.cluster.topics:
            served = self.last.topics.get(TOPIC) if self.last else None
            if served is None or served.topic_id is None:
                self.repeat_no_former_life()
            self.cluster.delete_topic(TOPIC)

    def held_without_id(self) -> int:
        """Count the partitions that are held and could not be let go: without an id nobody knows whose they were."""
        served = self.last.topics.get(TOPIC) if self.last else None
        return len(served.partitions) if served is not None and served.topic_id is None else 0

    def repeat_no_former_life(self) -> None:
        """End stale answers: without an id a topic's former life could not be distinguished from its next one."""
        self.cluster._stale.clear()

    @rule(count=st.integers(1, 50))
    def write(self, count: int) -> None:
        if TOPIC in self.cluster.topics:
            self.cluster.append(TOPIC, 0, count)

    # Without state a single surviving address may vote for the wrong cluster: docs/decisions/0003.
    @precondition(lambda self: not self.foreign and self.disk.content)
    @rule(broker=BROKERS)
    def take_address_over(self, broker: int) -> None:
        self.cluster.make_foreign(broker, self.other)
        self.foreign.add(broker)

    @rule(seconds=st.sampled_from([-86_400.0, -1.0, 3_600.0]))
    def jump_wall_clock(self, seconds: float) -> None:
        self.network.clock.jump(seconds)

    @rule()
    def restart_with_state(self) -> None:
        self.start()

    @precondition(lambda self: not self.foreign)  # as above
    @rule()
    def restart_without_state(self) -> None:
        self.disk.content = None
        self.last = None
        if TOPIC not in self.cluster.topics:
            self.repeat_no_former_life()
        self.start()

    # -- promises -----------------------------------------------------------------------------------------------

    @invariant()
    def the_view_is_of_our_cluster_and_clients_are_not_sent_elsewhere(self) -> None:
        state = self.cycle.state
        if state.snapshot is not None:
            assert state.snapshot.cluster_id == "ours"
        if state.pin is not None:
            trusted = [a for a in state.living if self.network.owners[a][0] is self.other]
            known = {a: state.addresses[a] for a in trusted}
            assert all(k.cluster_id != "theirs" for k in known.values())

    @rule()
    def heal(self) -> None:
        """After all faults end, the truth is served within bounded time."""
        for broker in self.cluster.addresses.keys() - self.foreign:
            self.cluster.revive(broker)
            self.cluster.answer_empty(broker, empty=False)
        if TOPIC not in self.cluster.topics:
            self.cluster.create_topic(TOPIC, max(2, self.held_without_id()))
        self.run(SETTLED_SECONDS)
        snapshot = self.cycle.state.snapshot
        assert self.cycle.state.loop_state is LoopState.FRESH, self.decisions[-1].sentence
        assert snapshot is not None
        assert {b.broker_id for b in snapshot.brokers} == self.cluster.listed
        assert not snapshot.tombstones
        truth = self.cluster.topics[TOPIC]
        served = snapshot.topics[TOPIC]
        assert [p.leader_id for p in served.partitions] == [p.leader for p in truth.partitions]
        assert served.topic_id == truth.topic_id
        offsets = self.decisions[-1].state.offsets.offsets
        seen = [offsets[TopicPartition(TOPIC, p.partition)].high_watermark for p in served.partitions]
        assert seen == [p.end for p in truth.partitions]
        assert not self.decisions[-1].state.offsets.unanswered
        dead = [a for a, known in self.cycle.state.addresses.items() if not known.alive]
        assert all(self.network.owners[a][0] is self.other for a in dead), dead

    def teardown(self) -> None:
        if hasattr(self, "cycle"):
            self.heal()


TestDiscoveryMachine = DiscoveryMachine.TestCase
TestDiscoveryMachine.settings = settings(
    max_examples=settings().max_examples // 4,  # one example is hundreds of turns
    stateful_step_count=25,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking hundreds of turns takes minutes
    deadline=None,
)


def test_given_an_answer_on_its_way_when_its_topic_is_recreated_and_smaller_then_nothing_stays_unanswered() -> None:
    machine = DiscoveryMachine()
    machine.begin()
    machine.kill(broker=2)
    machine.repeat_old_metadata(broker=2)
    machine.heal()
    machine.kill(broker=4)
    machine.kill(broker=1)
    machine.answer_empty(broker=1)
    machine.repeat_old_metadata(broker=3)
    machine.heal()
    machine.let_time_pass(seconds=0.1)
    machine.recreate_topic(partitions=2)
    machine.recreate_topic(partitions=2)
    machine.heal()
    machine.teardown()
