"""The heart: what we know and what was answered in; what we know now, what to do, and one sentence out.

Theory of operation. `State` is everything the loop remembers. Workers ask Kafka and put answers into a queue; the loop
hands them over in batches. Each answer moves the state by one of the functions below, which may add instructions.
Nothing here blocks, fails or reads a clock, so an outage is a row in a test.

What must always hold:
- a snapshot has >= 1 broker and only ever holds answers of the pinned cluster;
- the partitions of a topic never get fewer without a new topic id;
- the generation only grows, and it grows exactly when the content of the snapshot changes;
- no answer, an empty answer, a foreign answer: the snapshot stays.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from discovery.core import suspicion as doubt
from discovery.core.answers import (
    Answer,
    MetadataAnswer,
    MetadataFailure,
    NewBootstrap,
    OffsetsAnswer,
    ProbeOutcome,
    StuckCall,
    TopicIdsAnswer,
)
from discovery.core.diff import Event, EventKind, diff
from discovery.core.errors import FailureKind
from discovery.core.model import Broker, BrokerAddress, ClusterId, Generation, LoopState, Snapshot, Verdict
from discovery.core.pin import Conflict, choose_pin
from discovery.core.policy import Policy
from discovery.core.quarantine import judged, revived
from discovery.core.sentence import describe
from discovery.core.shrink import brake
from discovery.core.state import AddressState, State
from discovery.core.topics import merge_topics
from discovery.core.verdict import conclude

_FAILURES_BEFORE_REBUILD = 3
_NO_REBUILD = frozenset({FailureKind.AUTH, FailureKind.TLS})
_TOPIC_GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Publish:
    """Serve this snapshot from now on."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Persist:
    """Write this snapshot to disk, before it is published."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class RebuildClient:
    """Throw the pooled client away and make one with this list."""

    bootstrap: tuple[BrokerAddress, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell people and counters."""

    event: Event


Instruction = Publish | Persist | RebuildClient | Announce


@dataclass(frozen=True, slots=True)
class Decision:
    """What `decide` concludes."""

    state: State
    instructions: tuple[Instruction, ...]
    sentence: str


@dataclass(slots=True)
class _Turn:
    """One call of `decide` in progress: the only mutable thing here, and it does not leave this module."""

    state: State
    policy: Policy
    now: float
    wall: float
    instructions: list[Instruction] = field(default_factory=list)

    def announce(self, kind: EventKind, subject: str, sentence: str) -> None:
        self.instructions.append(Announce(Event(kind, subject, sentence)))

    def rebuild(self, reason: str) -> None:
        bootstrap = self.state.living or tuple(
            a for a, known in self.state.addresses.items() if known.verdict is not Verdict.FOREIGN_CLUSTER
        )
        self.state = replace(self.state, client_built=True, metadata_failures=0)
        self.instructions.append(RebuildClient(bootstrap, reason))


def decide(state: State, answers: Iterable[Answer], policy: Policy, *, now: float, wall: float) -> Decision:
    """Take in a batch of answers, 0..n, in the order they came.

    Args:
        state: What was known.
        answers: Untrusted.
        policy: Limits.
        now: Monotonic seconds; not before any earlier call's.
        wall: Seconds since the epoch; may jump, only stamped into snapshots.

    Returns:
        The new state, instructions in the order they must be performed, and the cycle's sentence.

    Runs: anywhere (pure, total); about 20 us and 10 us per address.
    """
    turn = _Turn(state, policy, now, wall)
    for answer in answers:
        _take(turn, answer)
    _settle_pin(turn)
    if turn.state.pin is not None and not turn.state.client_built and turn.state.living:
        turn.rebuild("the first living broker was found")
    turn.state = replace(turn.state, loop_state=_loop_state(turn), fatal=_fatal(turn.state))
    return Decision(turn.state, tuple(turn.instructions), describe(turn.state))


def _take(turn: _Turn, answer: Answer) -> None:
    match answer:
        case ProbeOutcome():
            _on_probe(turn, answer)
        case MetadataAnswer():
            _on_metadata(turn, answer)
        case MetadataFailure():
            _on_metadata_failure(turn, answer)
        case TopicIdsAnswer():
            turn.state = replace(
                turn.state,
                topic_ids={**turn.state.topic_ids, **answer.topic_ids},
                doubts=doubt.answered(turn.state.doubts, answer),
            )
        case OffsetsAnswer():
            _on_offsets(turn, answer)
        case StuckCall():
            turn.announce(EventKind.STUCK_CALL, answer.name, f"{answer.name} did not return in {answer.seconds:.1f} s")
            turn.rebuild(f"{answer.name} is stuck")
        case NewBootstrap():
            _on_bootstrap(turn, answer)
        case _:
            assert_never(answer)


def _on_probe(turn: _Turn, outcome: ProbeOutcome) -> None:
    known = turn.state.addresses.get(outcome.address)
    if known is None:
        return  # retired while it was being asked
    if outcome.tcp_only and outcome.failure is None:
        turn.state = turn.state.with_address(outcome.address, replace(known, asked_at=turn.now))
        return
    # A saved view that nobody confirmed is no peer: all its brokers may have been replaced.
    agreed = turn.state.snapshot if turn.state.confirmed_at is not None else None
    verdict, detail = conclude(outcome, pin=turn.state.pin, snapshot=agreed)
    after = judged(known, outcome, verdict, detail, state=turn.state, policy=turn.policy, now=turn.now)
    turn.state = turn.state.with_address(outcome.address, after)
    if after.verdict is not known.verdict:
        _announce_verdict(turn, outcome.address, after)
    if verdict is Verdict.ALIVE:
        if turn.state.first_answer_at is None:
            turn.state = replace(turn.state, first_answer_at=turn.now)
        _learn(turn, outcome.brokers)


def _on_bootstrap(turn: _Turn, answer: NewBootstrap) -> None:
    """Take another list: its addresses are asked at once, those taken off it are forgotten unless they are brokers."""
    state = turn.state
    if answer.addresses == state.configured:
        return
    brokers = {b.address for b in state.snapshot.brokers} if state.snapshot else set()
    off = set(state.configured) - set(answer.addresses) - brokers
    kept = {a: known for a, known in state.addresses.items() if a not in off}
    # What rests or was rejected gets another chance: that is what a user who edits the list is after.
    listed = {a: kept[a] if a in kept and kept[a].alive else AddressState() for a in answer.addresses}
    turn.state = replace(state, configured=answer.addresses, addresses={**kept, **listed})
    names = ", ".join(map(str, answer.addresses))
    turn.announce(EventKind.BOOTSTRAP_CHANGED, "bootstrap", f"the bootstrap list is now {names}")


def _announce_verdict(turn: _Turn, address: BrokerAddress, known: AddressState) -> None:
    assert known.verdict is not None  # noqa: S101 - ensured by the caller
    if known.verdict is Verdict.FOREIGN_CLUSTER:
        turn.announce(EventKind.CLUSTER_MISMATCH, str(address), f"{address} {known.detail}")
    detail = f" ({known.detail})" if known.detail else ""
    text = f"{address} is {known.verdict.value.replace('_', ' ')}{detail}"
    turn.announce(EventKind.VERDICT_CHANGED, str(address), text)


def _learn(turn: _Turn, brokers: Iterable[Broker]) -> None:
    """Make candidates of brokers somebody named; they are asked at once."""
    fresh = {b.address: AddressState() for b in brokers if b.address not in turn.state.addresses}
    if fresh:
        turn.state = replace(turn.state, addresses={**turn.state.addresses, **fresh})


def _settle_pin(turn: _Turn) -> None:
    state = turn.state
    if state.pin is not None or state.first_answer_at is None:
        return
    listed = [state.addresses[address] for address in state.configured]
    votes = {a: k.cluster_id for a, k in zip(state.configured, listed, strict=True) if k.alive and k.cluster_id}
    choice = choose_pin(
        votes,
        silent=sum(known.verdict is None for known in listed),
        waited_seconds=turn.now - state.first_answer_at,
        settle_seconds=turn.policy.settle_seconds,
    )
    if choice is None:
        return
    if isinstance(choice, Conflict):
        turn.state = replace(state, fatal=choice.sentence)
        return
    turn.state = replace(state, pin=choice.cluster_id, pin_source="answers", fatal=None)
    turn.announce(EventKind.CLUSTER_PINNED, choice.cluster_id, f"this is cluster {choice.cluster_id}")
    _reject_others(turn, choice.cluster_id)


def _reject_others(turn: _Turn, pin: ClusterId) -> None:
    """Judge again, against the new pin, those that were taken on trust."""
    for address, known in turn.state.addresses.items():
        if known.alive and known.cluster_id is not None and known.cluster_id != pin:
            detail = f"belongs to cluster {known.cluster_id}, not to {pin}"
            rest = turn.now + turn.policy.quarantine_cap_seconds
            after = replace(
                known,
                verdict=Verdict.FOREIGN_CLUSTER,
                detail=detail,
                since=turn.now,
                failures=1,
                quarantined_until=rest,
            )
            turn.state = turn.state.with_address(address, after)
            _announce_verdict(turn, address, after)


def _on_metadata(turn: _Turn, answer: MetadataAnswer) -> None:
    state = turn.state
    if state.pin is None:
        return  # nobody may fill a snapshot before we know whose cluster it is
    if answer.cluster_id is not None and answer.cluster_id != state.pin:
        text = f"an answer came from cluster {answer.cluster_id} instead of {state.pin}; it was dropped"
        turn.announce(EventKind.CLUSTER_MISMATCH, answer.cluster_id, text)
        _suspect_all(turn)
        turn.rebuild(text)
        return
    if not answer.brokers:
        _on_metadata_failure(turn, MetadataFailure(kind=FailureKind.EMPTY, detail="the answer named no broker"))
        return
    _accept(turn, answer)


def _suspect_all(turn: _Turn) -> None:
    """Have every address prove itself again: the answer does not say which one leads elsewhere."""
    suspects = {a: replace(known, proved_at=None) for a, known in turn.state.addresses.items()}
    turn.state = replace(turn.state, addresses=suspects)


def _accept(turn: _Turn, answer: MetadataAnswer) -> None:
    """Merge an answer of our cluster into the snapshot."""
    old = turn.state.snapshot
    brokers = _merge_brokers(turn, answer.brokers)
    merged = merge_topics(
        old,
        turn.state.absences,
        answer,
        turn.state.topic_ids,
        grace_seconds=_TOPIC_GRACE_SECONDS,
        now=turn.now,
        wall=turn.wall,
    )
    for topic in merged.shrunk:
        held = old.topics.get(topic) if old else None
        if held is not None and all(p.leader_id is not None for p in held.partitions):
            turn.announce(EventKind.SHRINK_BLOCKED, topic, f"kept partitions of {topic} that an answer left out")
    assert turn.state.pin is not None  # noqa: S101 - checked by the caller
    content = Snapshot(
        generation=old.generation if old else Generation(0),
        cluster_id=turn.state.pin,
        brokers=brokers,
        topics=merged.topics,
        tombstones=merged.tombstones,
        confirmed_wall=old.confirmed_wall if old else 0.0,
    )
    _learn(turn, brokers)
    returned = [topic.name for topic in answer.topics if topic.name in turn.state.absences]
    if old is not None and turn.state.confirmed_at is None:
        # A saved view: its topics may have been recreated while nobody looked.
        returned += [t.name for t in answer.topics if t.name in old.topics and t.name not in turn.state.topic_ids]
    turn.state = replace(
        turn.state,
        confirmed_at=turn.now,
        metadata_failures=0,
        complaint="",
        absences=merged.absences,
        doubts=doubt.raised(doubt.settled(turn.state.doubts, now=turn.now), returned, now=turn.now),
    )
    _serve(turn, old, content)


def _merge_brokers(turn: _Turn, reported: tuple[Broker, ...]) -> tuple[Broker, ...]:
    held = {b.broker_id: b for b in turn.state.snapshot.brokers} if turn.state.snapshot else {}
    named = {b.broker_id: b for b in reported}
    gone = frozenset(held.keys() - named.keys())
    braked = brake(turn.state, gone, policy=turn.policy, now=turn.now)
    if braked.blocked:
        names = ", ".join(map(str, sorted(gone)))
        turn.announce(
            EventKind.SHRINK_BLOCKED, "brokers", f"held back the loss of brokers {names} until it is confirmed"
        )
    kept = {i: b for i, b in held.items() if i not in braked.dropped} | named
    turn.state = replace(turn.state, claim=braked.claim, dropped=_dropped(turn, len(braked.dropped)))
    _retire(turn, {held[i].address for i in braked.dropped}, kept={b.address for b in kept.values()})
    return tuple(kept[i] for i in sorted(kept))


def _dropped(turn: _Turn, count: int) -> tuple[tuple[float, int], ...]:
    recent = tuple(d for d in turn.state.dropped if turn.now - d[0] < turn.policy.api_timeout_seconds)
    return (*recent, (turn.now, count)) if count else recent


def _retire(turn: _Turn, gone: set[BrokerAddress], *, kept: set[BrokerAddress]) -> None:
    """Forget learned addresses that left with their brokers; configured ones stay and rest."""
    out = gone - kept - set(turn.state.configured)
    if out:
        left = {a: known for a, known in turn.state.addresses.items() if a not in out}
        turn.state = replace(turn.state, addresses=left)


def _serve(turn: _Turn, old: Snapshot | None, content: Snapshot) -> None:
    """Publish if anything changed; else only note that it was confirmed."""
    if content == old:
        assert old is not None  # noqa: S101 - equal to the content
        turn.state = replace(turn.state, snapshot=replace(old, confirmed_wall=turn.wall))
        return
    new = replace(content, generation=Generation(content.generation + 1), confirmed_wall=turn.wall)
    turn.state = replace(turn.state, snapshot=new, leading=_leading(new))
    turn.instructions += [Persist(new), Publish(new)]
    turn.instructions += [Announce(event) for event in diff(old, new)]


def _leading(snapshot: Snapshot) -> frozenset[BrokerAddress]:
    leaders = {partition.leader_id for topic in snapshot.topics.values() for partition in topic.partitions}
    return frozenset(broker.address for broker in snapshot.brokers if broker.broker_id in leaders)


def _on_metadata_failure(turn: _Turn, failure: MetadataFailure) -> None:
    failures = turn.state.metadata_failures + 1
    turn.state = replace(turn.state, metadata_failures=failures, complaint=failure.detail)
    if failure.kind in _NO_REBUILD:
        return  # another client would be refused as well
    if failures % _FAILURES_BEFORE_REBUILD == 0 and turn.state.client_built:
        text = f"{failures} metadata requests in a row failed: {failure.detail}"
        turn.announce(EventKind.CLIENT_REBUILT, "metadata", text)
        _suspect_all(turn)
        turn.rebuild(text)


def _on_offsets(turn: _Turn, answer: OffsetsAnswer) -> None:
    """A leader that tells offsets is alive; one that tells none must prove itself at once."""
    leader = turn.state.snapshot.broker(answer.leader_id) if turn.state.snapshot else None
    known = turn.state.addresses.get(leader.address) if leader else None
    if leader is None or known is None:
        return
    if answer.offsets:
        after = revived(known, now=turn.now)
        if after is not known:
            _announce_verdict(turn, leader.address, after)
    else:
        after = replace(known, proved_at=None)
    turn.state = turn.state.with_address(leader.address, after)


def _loop_state(turn: _Turn) -> LoopState:
    state = turn.state
    verdicts = [known.verdict for known in state.addresses.values()]
    if not state.living and Verdict.FOREIGN_CLUSTER in verdicts:
        return LoopState.REJECTING
    if state.snapshot is None:
        return LoopState.COLD
    if state.confirmed_at is None:
        return LoopState.FAILSAFE
    age = turn.now - state.confirmed_at
    if not state.living and age > turn.policy.interval_seconds:
        return LoopState.FAILSAFE
    return LoopState.STALE if age > turn.policy.staleness_seconds else LoopState.FRESH


_IF_WANTED = {
    "option": ", or the option if the move is wanted",
    "state": ", or drop the saved view if the move is wanted: `kafka-discovery state list`, then `state reset`",
    "answers": "",
}


def _fatal(state: State) -> str | None:
    """Say why waiting cannot help at a start, or None."""
    if state.pin is None:
        return state.fatal
    listed = [state.addresses[address] for address in state.configured]
    foreign = [k for k in listed if k.verdict is Verdict.FOREIGN_CLUSTER]
    if len(foreign) < len(listed) or (state.living and state.pin_source == "answers"):
        # A list that names another cluster than the one a saved view or an option says is a mistake, or a move, also
        # where brokers live that the saved view remembers: nobody wants to read them by it unawares.
        return None
    where = {
        "option": "the option clusterId says",
        "state": "the saved state says",
        "answers": "this run has agreed on",
    }
    return (
        f"all {len(listed)} listed addresses belong to cluster {foreign[0].cluster_id}, but {where[state.pin_source]} "
        f"{state.pin}; correct the list{_IF_WANTED[state.pin_source]}"
    )
