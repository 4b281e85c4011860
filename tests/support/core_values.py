"""Small factories for values of the core: tests say only what matters to them."""

from dataclasses import replace

from discovery.core.answers import MetadataAnswer, ProbeOutcome
from discovery.core.decide import Decision, decide
from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    ClusterId,
    PartitionMetadata,
    Snapshot,
    TopicId,
    TopicMetadata,
    TopicName,
    Verdict,
)
from discovery.core.policy import Policy
from discovery.core.state import State, initial_state

OURS = ClusterId("ours")
THEIRS = ClusterId("theirs")
POLICY = Policy()


def address(number: int) -> BrokerAddress:
    return BrokerAddress(f"b{number}", 9092)


def broker(number: int) -> Broker:
    return Broker(broker_id=BrokerId(number), address=address(number))


def brokers(*numbers: int) -> tuple[Broker, ...]:
    return tuple(broker(n) for n in numbers)


def topic(
    name: str = "t", partitions: int = 3, *, topic_id: str | None = None, leader: int | None = 1
) -> TopicMetadata:
    led_by = None if leader is None else BrokerId(leader)
    return TopicMetadata(
        name=TopicName(name),
        topic_id=None if topic_id is None else TopicId(topic_id),
        partitions=tuple(PartitionMetadata(partition=p, leader_id=led_by) for p in range(partitions)),
    )


def answer(
    *numbers: int,
    topics: tuple[TopicMetadata, ...] = (),
    unknown: tuple[str, ...] = (),
    cluster: ClusterId | None = OURS,
    complete: bool = False,
) -> MetadataAnswer:
    return MetadataAnswer(
        cluster_id=cluster,
        brokers=brokers(*numbers),
        topics=topics,
        unknown_topics=tuple(TopicName(name) for name in unknown),
        complete=complete,
    )


def alive(number: int, *listed: int, cluster: ClusterId = OURS) -> ProbeOutcome:
    return ProbeOutcome(address=address(number), cluster_id=cluster, brokers=brokers(*(listed or (number,))))


def dead(number: int, verdict: Verdict = Verdict.REFUSED) -> ProbeOutcome:
    return ProbeOutcome(address=address(number), failure=verdict)


def run(state: State, *answers: object, now: float = 0.0, policy: Policy = POLICY) -> Decision:
    return decide(state, answers, policy, now=now, wall=1_000.0 + now)  # type: ignore[arg-type]


def settled(count: int = 3, *topics: TopicMetadata) -> State:
    """A state with `count` living brokers, pinned, with a snapshot of the given topics."""
    numbers = tuple(range(1, count + 1))
    state = initial_state([address(n) for n in numbers], salt=7)
    state = run(state, *(alive(n, *numbers) for n in numbers)).state
    state = run(state, answer(*numbers, topics=topics)).state
    return replace(state, suspicions={})  # as where nobody tells an id


def snapshot_of(state: State) -> Snapshot:
    assert state.snapshot is not None
    return state.snapshot
