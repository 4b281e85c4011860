"""Whatever the answers, the core keeps its promises."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from discovery.core.answers import (
    Answer,
    MetadataAnswer,
    MetadataFailure,
    OffsetsAnswer,
    ProbeOutcome,
    StuckCall,
    TopicIdsAnswer,
)
from discovery.core.backoff import fraction_of, full_jitter
from discovery.core.budget import Deadline
from discovery.core.decide import Decision, Persist, decide
from discovery.core.diff import EventKind
from discovery.core.errors import FailureKind
from discovery.core.model import (
    BrokerId,
    ClusterId,
    PartitionMetadata,
    PartitionOffsets,
    Snapshot,
    TopicId,
    TopicMetadata,
    TopicName,
    TopicPartition,
    Verdict,
)
from discovery.core.quarantine import due
from discovery.core.state import initial_state
from discovery.core.verdict import conclude
from discovery.store.codec import Saved, decode, encode
from tests.support.core_values import POLICY, address, brokers

NUMBERS = st.integers(1, 6)
CLUSTERS = st.sampled_from([ClusterId("ours"), ClusterId("theirs"), None])
FAILURES = st.sampled_from([v for v in Verdict if v not in (Verdict.ALIVE, Verdict.FOREIGN_CLUSTER, Verdict.STALE)])
NAMES = st.sampled_from([TopicName("t"), TopicName("u")])
IDS = st.sampled_from([None, TopicId("a"), TopicId("b")])
LISTED = st.lists(NUMBERS, max_size=6, unique=True).map(lambda ns: brokers(*sorted(ns)))


@st.composite
def topics(draw: st.DrawFn) -> TopicMetadata:
    indexes = draw(st.lists(st.integers(0, 5), max_size=6, unique=True))
    leaders = st.one_of(st.none(), NUMBERS.map(BrokerId))
    return TopicMetadata(
        name=draw(NAMES),
        topic_id=draw(IDS),
        partitions=tuple(PartitionMetadata(partition=i, leader_id=draw(leaders)) for i in sorted(indexes)),
    )


def as_saved(snapshot: Snapshot) -> Snapshot:
    """What a file gives back: all of it, but that every partition counts as listed until the next answer."""

    def listed(topic: TopicMetadata) -> TopicMetadata:
        return replace(topic, partitions=tuple(replace(p, is_listed=True) for p in topic.partitions))

    topics = {name: listed(topic) for name, topic in snapshot.topics.items()}
    gone = {name: replace(tombstone, topic=listed(tombstone.topic)) for name, tombstone in snapshot.tombstones.items()}
    return replace(snapshot, topics=topics, tombstones=gone)


PROBES = st.one_of(
    st.builds(ProbeOutcome, address=NUMBERS.map(address), failure=FAILURES),
    st.builds(ProbeOutcome, address=NUMBERS.map(address), cluster_id=CLUSTERS, brokers=LISTED),
    st.builds(ProbeOutcome, address=NUMBERS.map(address), tcp_only=st.just(value=True)),
)
METADATA = st.builds(
    MetadataAnswer,
    cluster_id=CLUSTERS,
    brokers=LISTED,
    topics=st.lists(topics(), max_size=2, unique_by=lambda t: t.name).map(tuple),
    unknown_topics=st.lists(NAMES, max_size=1).map(tuple),
    complete=st.booleans(),
)
PARTITION = st.builds(TopicPartition, NAMES, st.integers(0, 5))
OFFSETS = st.builds(
    OffsetsAnswer,
    leader_id=NUMBERS.map(BrokerId),
    asked=st.lists(PARTITION, max_size=3).map(tuple),
    offsets=st.dictionaries(PARTITION, st.builds(PartitionOffsets, high_watermark=st.integers(0, 9)), max_size=3),
)
ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    PROBES,
    METADATA,
    st.builds(MetadataFailure, kind=st.sampled_from(FailureKind), detail=st.just("x")),
    st.builds(TopicIdsAnswer, topic_ids=st.dictionaries(NAMES, IDS.filter(bool), max_size=2)),
    OFFSETS,
    st.builds(StuckCall, name=st.just("metadata"), seconds=st.floats(0, 99)),
)
TURNS = st.lists(st.tuples(st.floats(0, 30), st.lists(ANSWERS, max_size=4)), max_size=25)


def check_step(before: Snapshot | None, decision: Decision) -> None:
    after = decision.state.snapshot
    if before is None:
        assert after is None or (after.brokers and after.generation == 1)
        return
    assert after is not None, "a good view was replaced by none"
    assert after.brokers, "a good view was replaced by an empty one"
    assert after.cluster_id == before.cluster_id
    assert after.generation >= before.generation
    changed = any(isinstance(i, Persist) for i in decision.instructions)
    assert changed == (after.generation > before.generation)
    recreated = {event.subject for event in decision.events if event.kind is EventKind.TOPIC_RECREATED}
    for name, old in before.topics.items():
        new = after.topics.get(name)
        if new is None:
            assert name in after.tombstones, "a topic vanished without a tombstone"
        elif name not in recreated:
            assert {p.partition for p in old.partitions} <= {p.partition for p in new.partitions}


@given(TURNS, st.lists(NUMBERS, min_size=1, max_size=4, unique=True))
def test_given_any_answers_in_any_order_when_decided_then_nothing_good_is_lost(
    turns: list[tuple[float, list[Answer]]], configured: list[int]
) -> None:
    state, now = initial_state([address(n) for n in configured], salt=3), 0.0
    pin = None
    for pause, answers in turns:
        now += pause
        before = state.snapshot
        # one at a time, so that each step's promise can be checked
        for one in [*answers, None]:
            before = state.snapshot
            decision = decide(state, [one] if one is not None else [], POLICY, now=now, wall=now)
            state = decision.state
            check_step(before, decision)
            assert pin in (None, state.pin), "a pin changed"
            pin = state.pin
            assert decision.sentence
        assert all(state.addresses[a].alive for a in state.living)
        assert state.configured == tuple(address(n) for n in configured)
        assert set(state.configured) <= state.addresses.keys(), "a configured address was forgotten"
        if state.snapshot is not None:
            saved = Saved(snapshot=state.snapshot)
            assert decode(encode(saved)).snapshot == as_saved(state.snapshot)


@given(TURNS)
def test_given_any_answers_when_batched_or_single_then_the_same_state_comes_out_of_the_same_answers(
    turns: list[tuple[float, list[Answer]]],
) -> None:
    """`decide` is a function: running it twice gives the same, so an outage can be replayed."""
    outcomes = []
    for _ in range(2):
        state, now = initial_state([address(1), address(2)], salt=3), 0.0
        for pause, answers in turns:
            now += pause
            state = decide(state, answers, POLICY, now=now, wall=now).state
        outcomes.append(state)
    assert outcomes[0] == outcomes[1]


@given(TURNS, st.floats(0, 200))
def test_given_any_history_when_somebody_is_due_then_never_everybody_rests_for_more_than_the_cap(
    turns: list[tuple[float, list[Answer]]], later: float
) -> None:
    state, now = initial_state([address(1), address(2)], salt=3), 0.0
    for pause, answers in turns:
        now += pause
        state = decide(state, answers, POLICY, now=now, wall=now).state
    whom = due(state, policy=POLICY, now=now + POLICY.quarantine_cap_seconds + later)
    assert set(whom.full) | set(whom.connect) == set(state.addresses)


@given(NUMBERS, CLUSTERS, LISTED, CLUSTERS)
def test_given_any_full_probe_when_concluded_then_only_the_pinned_cluster_is_alive(
    number: int, seen: ClusterId | None, listed: tuple[object, ...], pin: ClusterId | None
) -> None:
    outcome = ProbeOutcome(address=address(number), cluster_id=seen, brokers=listed)  # type: ignore[arg-type]
    verdict, detail = conclude(outcome, pin=pin, snapshot=None)
    if verdict is Verdict.ALIVE:
        assert seen is not None
        assert pin in (None, seen)
        assert listed
    else:
        assert detail


@given(st.floats(0.001, 10), st.floats(10, 1_000), st.integers(1, 10_000), st.floats(0, 1), st.integers(1, 50))
def test_given_any_failures_when_quarantined_then_it_is_bounded_and_grows_with_them(
    base: float, cap: float, failures: int, fraction: float, more: int
) -> None:
    def rest(count: int) -> float:
        return full_jitter(base_seconds=base, cap_seconds=cap, failures=count, fraction=fraction)

    assert 0 <= rest(failures) <= cap
    assert rest(failures) <= rest(failures + more)


@given(st.integers(0, 2**32), st.text(max_size=20), st.integers(0, 1_000))
def test_given_anything_when_hashed_to_a_fraction_then_it_is_in_range_and_repeatable(
    salt: int, subject: str, count: int
) -> None:
    assert 0 <= fraction_of(salt, subject, count) < 1
    assert fraction_of(salt, subject, count) == fraction_of(salt, subject, count)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_given_a_deadline_when_time_passes_then_what_is_left_shrinks_to_nothing(now: float, budget: float) -> None:
    deadline = Deadline.after(budget, now=now)
    assert deadline.remaining(now) <= budget + 1e-6
    assert deadline.remaining(now + budget + 1) == 0.0
