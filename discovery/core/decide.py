"""The transition function: state and answers in; the next state, what to do, what to ask and one sentence out.

Theory of operation. `State` is everything the loop remembers, and only this module writes it. Workers ask Kafka and put
answers into a queue; the loop hands them over in batches. Each answer moves the state by one of the functions below,
which may add instructions, and events for people, which steer nothing. At the end comes what is due to be asked
(`asking.py`). Nothing here blocks, fails or reads a clock, so an outage is a row in a test.

What must always hold:
- a snapshot has >= 1 broker and only ever holds answers of the pinned cluster;
- the partitions of a topic never get fewer without a new topic id;
- the generation only grows, and it grows exactly when the content of the snapshot changes;
- no answer, an empty answer, a foreign answer: the snapshot stays;
- offsets are those of the present leader of the topic that the snapshot shows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from discovery.core import suspicion
from discovery.core.answers import (
    Answer,
    CallEnded,
    MetadataAnswer,
    MetadataFailure,
    NewBootstrap,
    NotSaved,
    OffsetsAnswer,
    ProbeOutcome,
    StuckCall,
    TopicIdsAnswer,
)
from discovery.core.asking import ask, divide, idle_seconds, silent_leaders
from discovery.core.diff import Event, EventKind, diff, recreated_topics
from discovery.core.errors import FailureKind
from discovery.core.model import (
    Broker,
    BrokerAddress,
    ClusterId,
    Generation,
    LoopState,
    Snapshot,
    TopicName,
    TopicPartition,
    Verdict,
)
from discovery.core.offsets import not_less
from discovery.core.pin import Conflict, PinSource, choose_pin
from discovery.core.policy import Policy
from discovery.core.quarantine import awaited, judged, revived
from discovery.core.questions import Agenda, AskOffsets, Call, LeaderKey, Vet, Wanted, partitions_by_leader
from discovery.core.sentence import describe
from discovery.core.shrink import brake
from discovery.core.state import AddressState, State, initial_state, without_id
from discovery.core.topics import merge_topics
from discovery.core.verdict import conclude

_FAILURES_BEFORE_REBUILD = 3
_NO_REBUILD = frozenset({FailureKind.AUTH, FailureKind.TLS})
_TOPIC_GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Persist:
    """Write this snapshot to disk, before the decision is shown."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class RebuildClient:
    """Throw the pooled client away and make one with this list."""

    bootstrap: tuple[BrokerAddress, ...]
    reason: str
    client: int
    """Its number."""


Instruction = Persist | RebuildClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What `decide` concludes."""

    state: State
    instructions: tuple[Instruction, ...]
    """In the order they must be performed."""
    calls: tuple[Call, ...]
    """What to ask now."""
    sentence: str
    idle_seconds: float
    """How long nothing is due."""
    events: tuple[Event, ...] = ()
    """For people and counters."""
    taken: tuple[Answer, ...] = ()
    """The answers that were taken in."""
    touched: frozenset[TopicPartition] = frozenset()
    """Partitions whose offsets were answered, or not."""


@dataclass(slots=True)
class _Turn:
    """One call of `decide` in progress: the only mutable thing here, and it does not leave this module."""

    state: State
    agenda: Agenda
    """Of the state to come."""
    policy: Policy
    now: float
    wall: float
    instructions: list[Instruction] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    taken: list[Answer] = field(default_factory=list)
    touched: set[TopicPartition] = field(default_factory=set)
    distrusted: bool = False
    """An answer of another cluster came: nobody knows since when, this batch included."""

    def announce(self, kind: EventKind, subject: str, sentence: str) -> None:
        self.events.append(Event(kind, subject, sentence))

    def rebuild(self, reason: str) -> None:
        bootstrap = self.state.living or tuple(
            a for a, known in self.state.addresses.items() if known.verdict is not Verdict.FOREIGN_CLUSTER
        )
        # What the discarded client was asked is asked again, through the new one.
        self.agenda.calls = {name: q for name, q in self.agenda.calls.items() if isinstance(q, Vet)}
        self.agenda.ids_pressed_until = {}
        self.state = replace(self.state, client=self.state.client + 1, metadata_failures=0)
        self.instructions.append(RebuildClient(bootstrap, reason, self.state.client))


def decide(
    state: State,
    answers: Iterable[Answer],
    policy: Policy,
    *,
    now: float,
    wall: float,
    wanted: Wanted | None = None,
) -> Decision:
    """Take in a batch of answers, 0..n, in the order they came, and say what to do and to ask.

    Args:
        state: What was known.
        answers: Untrusted.
        policy: Limits.
        now: Monotonic seconds; not before any earlier call's.
        wall: Seconds since the epoch; may jump, only stamped into snapshots.
        wanted: Whose end offsets must be fresh; None: all that is followed.

    Returns:
        The new state, what to do, what to ask, and the cycle's sentence.

    Runs: anywhere (pure, total); about 20 us and 10 us per address.
    """
    turn = _Turn(state, state.agenda.copy(), policy, now, wall)
    for answer in answers:
        _take(turn, answer)
    _note_silence(turn)
    _outvote(turn)
    _settle_pin(turn)
    if turn.state.pin is not None and not turn.state.client and turn.state.living:
        turn.rebuild("the first living broker was found")
    loop_state, fatal = _loop_state(turn), _fatal(turn.state)
    if turn.state.save_again_at is not None and now >= turn.state.save_again_at:
        _persist(turn)
    division = divide(turn.state.division, turn.state.leaders, wanted)
    after = replace(
        turn.state,
        loop_state=loop_state,
        fatal=fatal,
        division=division,
        agenda=turn.agenda,
        suspicions=suspicion.expired(turn.state.suspicions, now=now),
    )
    calls = ask(after, turn.agenda, wanted, policy, now=now)
    return Decision(
        state=after,
        instructions=tuple(turn.instructions),
        calls=calls,
        sentence=describe(after),
        idle_seconds=idle_seconds(after, wanted, policy, now=now),
        events=tuple(turn.events),
        taken=tuple(turn.taken),
        touched=frozenset(turn.touched),
    )


def _take(turn: _Turn, answer: Answer) -> None:
    if isinstance(answer, CallEnded):
        _on_end(turn, answer)
        return
    turn.taken.append(answer)
    match answer:
        case ProbeOutcome():
            _on_probe(turn, answer)
        case MetadataAnswer():
            _on_metadata(turn, replace(answer, topics=turn.state.interest.followed(answer.topics)))
        case MetadataFailure():
            _on_metadata_failure(turn, answer)
        case TopicIdsAnswer():
            _on_topic_ids(turn, answer)
        case OffsetsAnswer():
            _on_offsets(turn, answer)
        case StuckCall():
            turn.agenda.calls.pop(answer.name, None)
            turn.announce(EventKind.STUCK_CALL, answer.name, f"{answer.name} did not return in {answer.seconds:.1f} s")
            turn.rebuild(f"{answer.name} is stuck")
        case NewBootstrap():
            _on_bootstrap(turn, answer)
        case NotSaved():
            # A full disk may have room again, and the process that wrote a shared view may be gone.
            turn.state = replace(turn.state, save_again_at=turn.now + answer.wait_seconds)
        case _:
            assert_never(answer)


def _on_end(turn: _Turn, ended: CallEnded) -> None:
    """Take the answer in only if it came through the present client: a discarded one may speak for another cluster."""
    question = turn.agenda.calls.pop(ended.name, None)
    answer = ended.answer
    if answer is None or ended.client != turn.state.client:
        return
    if isinstance(answer, OffsetsAnswer) and isinstance(question, AskOffsets):
        _note_attempt(turn, question, answer)
        spoke, answer = bool(answer.offsets), _limited(answer, question.partitions)
        if spoke and not answer.offsets:
            return  # all of it is outdated, which is no silence
    _take(turn, answer)


def _on_probe(turn: _Turn, outcome: ProbeOutcome) -> None:
    _release(turn, outcome.address)
    known = turn.state.addresses.get(outcome.address)
    if known is None:
        return  # retired while it was being asked
    if outcome.tcp_only and outcome.failure is None:
        turn.state = turn.state.with_address(outcome.address, replace(known, asked_at=turn.now))
        return
    everybody_was_dead = not turn.state.living
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
        if not known.alive:
            _forgive(turn, outcome.address)
        if everybody_was_dead and turn.state.client and turn.state.metadata_failures:
            turn.rebuild(f"{outcome.address} answers again, the first one after an outage of all")


def _forgive(turn: _Turn, address: BrokerAddress) -> None:
    """Ask the leader at this address at once: its silence was that of a broker that was not there."""
    broker_ids = (
        {b.broker_id for b in turn.state.snapshot.brokers if b.address == address} if turn.state.snapshot else ()
    )
    for key, asked in turn.agenda.leaders.items():
        if asked.failures and key.leader_id in broker_ids:
            turn.agenda.leaders[key] = replace(asked, failures=0)


def _release(turn: _Turn, address: BrokerAddress) -> None:
    """Let an address be asked again although others of its round are still silent."""
    for name, question in turn.agenda.calls.items():
        if isinstance(question, Vet) and address in question.addresses:
            turn.agenda.calls[name] = replace(question, addresses=question.addresses - {address})


def _on_bootstrap(turn: _Turn, answer: NewBootstrap) -> None:
    """Take another list: its addresses are asked at once, those taken off it are forgotten unless they are brokers."""
    state = turn.state
    if answer.addresses == state.configured:
        return
    brokers = {b.address for b in state.snapshot.brokers} if state.snapshot else set()
    off = set(state.configured) - set(answer.addresses) - brokers
    kept = {a: known for a, known in state.addresses.items() if a not in off}
    # What is quarantined or was rejected gets another chance: that is what a user who edits the list is after.
    listed = {a: kept[a] if a in kept and kept[a].alive else AddressState() for a in answer.addresses}
    turn.state = replace(state, configured=answer.addresses, addresses={**kept, **listed})
    names = ", ".join(map(str, answer.addresses))
    turn.announce(EventKind.BOOTSTRAP_CHANGED, "bootstrap", f"the bootstrap list is now {names}")


def _announce_verdict(turn: _Turn, address: BrokerAddress, known: AddressState) -> None:
    assert known.verdict is not None  # noqa: S101 - checked by the caller
    if known.verdict is Verdict.FOREIGN_CLUSTER:
        turn.announce(EventKind.CLUSTER_MISMATCH, str(address), f"{address} {known.detail}")
        _distrust_answers(turn)
    detail = f" ({known.detail})" if known.detail else ""
    text = f"{address} is {known.verdict.value.replace('_', ' ')}{detail}"
    turn.announce(EventKind.VERDICT_CHANGED, str(address), text)


def _distrust_answers(turn: _Turn) -> None:
    """Forget offsets and ids: nobody knows since when the wrong cluster has been answering, this batch included."""
    turn.distrusted = True
    turn.state = replace(
        turn.state,
        offsets=turn.state.offsets.emptied(),
        topic_ids={},
        suspicions=suspicion.unanswered(turn.state.suspicions),
    )


def _learn(turn: _Turn, brokers: Iterable[Broker]) -> None:
    """Make candidates of brokers somebody named; they are asked at once."""
    fresh = {b.address: AddressState() for b in brokers if b.address not in turn.state.addresses}
    if fresh:
        turn.state = replace(turn.state, addresses={**turn.state.addresses, **fresh})


def _may_outvote(state: State) -> bool:
    is_new = state.list_outvotes and state.pin_source is PinSource.SAVED
    return is_new and state.confirmed_at is None and not state.living


def _outvote(turn: _Turn) -> None:
    """Leave a saved view whose brokers are gone where every listed address belongs to one other cluster."""
    state = turn.state
    if not _may_outvote(state) or any(known.verdict is None for known in state.addresses.values()):
        return
    listed = [state.addresses[address] for address in state.configured]
    clusters = {k.cluster_id if k.verdict is Verdict.FOREIGN_CLUSTER else None for k in listed}
    if len(clusters) != 1 or None in clusters:
        return
    text = f"the saved view of cluster {state.pin} is left: its brokers are gone, and the list names {clusters.pop()}"
    turn.announce(EventKind.CLUSTER_MISMATCH, "bootstrap", text)
    fresh = initial_state(state.configured, interest=state.interest, salt=state.salt)
    turn.state = replace(fresh, left=state.snapshot, client=state.client)


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
    turn.state = replace(state, pin=choice.cluster_id, pin_source=PinSource.ANSWERS, fatal=None)
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
        _distrust_answers(turn)
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
            turn.agenda.ids_at = turn.now  # a new id would explain it
    assert turn.state.pin is not None  # noqa: S101 - checked by the caller
    before = old or turn.state.left
    content = Snapshot(
        generation=before.generation if before else turn.state.floor,
        cluster_id=turn.state.pin,
        brokers=brokers,
        topics=merged.topics,
        tombstones=merged.tombstones,
        confirmed_wall=turn.wall,
    )
    _learn(turn, brokers)
    named = [topic.name for topic in answer.topics]
    known = old.topics.keys() | old.tombstones.keys() if old else set[TopicName]()
    returned = {t for t in named if t in turn.state.absences or (old is not None and t in old.tombstones)}
    if old is not None and turn.state.confirmed_at is None:
        # A saved view: its topics may have been recreated while nobody looked.
        returned |= {t for t in named if t in old.topics and t not in turn.state.topic_ids}
    # Without an id that a new one could differ from, a topic is as good as new.
    new = {t for t in without_id(content, turn.state.topic_ids) if t not in known or t in returned}
    doubts = suspicion.raised(suspicion.settled(turn.state.suspicions), new, now=turn.now, first=True)
    turn.state = replace(
        turn.state,
        confirmed_at=turn.now,
        confirmed_client=turn.state.client,
        metadata_failures=0,
        complaint="",
        absences=merged.absences,
        suspicions=suspicion.raised(doubts, returned - new, now=turn.now),
    )
    _serve(turn, old, content)


def _merge_brokers(turn: _Turn, listed: tuple[Broker, ...]) -> tuple[Broker, ...]:
    held = {b.broker_id: b for b in turn.state.snapshot.brokers} if turn.state.snapshot else {}
    named = {b.broker_id: b for b in listed}
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
    """Serve the new content if anything but the time of its confirmation changed; else only note that."""
    if old is not None and replace(content, confirmed_wall=old.confirmed_wall) == old:
        turn.state = replace(turn.state, snapshot=content)
        return
    new = replace(content, generation=Generation(content.generation + 1))
    held = old.topics if old else {}
    led_before = turn.state.leading
    turn.state = replace(
        turn.state,
        snapshot=new,
        leaders=partitions_by_leader(new, turn.state.interest),
        without_id=without_id(new, turn.state.topic_ids),
    )
    addresses = awaited(turn.state.addresses, turn.state.leading - led_before)
    turn.state = replace(turn.state, addresses=addresses)
    turn.agenda.forget_leaders(turn.state.leaders)
    for topic in recreated_topics(old, new):
        _forget_topic(turn, topic)
    if new.topics.keys() - held.keys():
        turn.agenda.ids_at = turn.now
    turn.events += diff(old, new)
    _persist(turn)


def _persist(turn: _Turn) -> None:
    snapshot = turn.state.snapshot
    assert snapshot is not None  # noqa: S101 - there is one to save
    turn.state = replace(turn.state, save_again_at=None)
    turn.instructions.append(Persist(snapshot))


def _forget_topic(turn: _Turn, topic: TopicName) -> None:
    """Drop the offsets of a topic that was recreated, and what is still under way: its old offsets mean nothing now."""
    turn.state = replace(turn.state, offsets=turn.state.offsets.without_topic(topic))
    _outdate(turn, lambda tp: tp.topic == topic)


def _outdate(turn: _Turn, is_outdated: Callable[[TopicPartition], bool]) -> None:
    """Let what is under way about such partitions count no more."""
    for name, question in turn.agenda.calls.items():
        if isinstance(question, AskOffsets) and any(map(is_outdated, question.partitions)):
            left = tuple(tp for tp in question.partitions if not is_outdated(tp))
            turn.agenda.calls[name] = replace(question, partitions=left)


def _on_metadata_failure(turn: _Turn, failure: MetadataFailure) -> None:
    failures = turn.state.metadata_failures + 1
    turn.state = replace(turn.state, metadata_failures=failures, complaint=failure.detail)
    if failure.kind in _NO_REBUILD:
        return  # another client would be refused as well
    if failures % _FAILURES_BEFORE_REBUILD == 0 and turn.state.client:
        text = f"{failures} metadata requests in a row failed: {failure.detail}"
        turn.announce(EventKind.CLIENT_REBUILT, "metadata", text)
        _suspect_all(turn)
        turn.rebuild(text)


def _on_topic_ids(turn: _Turn, answer: TopicIdsAnswer) -> None:
    """Note which topics were left out: a lagging broker is asked again soon, one that never answers is not."""
    state = turn.state
    topic_ids = {**state.topic_ids, **answer.topic_ids}
    lacking = without_id(state.snapshot, topic_ids)
    until = turn.now + turn.policy.topic_ids_interval_seconds
    turn.agenda.ids_pressed_until = {name: turn.agenda.ids_pressed_until.get(name, until) for name in lacking}
    turn.state = replace(
        state,
        topic_ids=topic_ids,
        without_id=lacking,
        suspicions=suspicion.answered(state.suspicions, answer),
    )
    if state.snapshot is None or state.client != state.confirmed_client:
        return  # who speaks through this client is not proved yet
    held = state.snapshot.topics
    named = {t: replace(held[t], topic_id=i) for t, i in answer.topic_ids.items() if t in held and not held[t].topic_id}
    first_ids = {**answer.topic_ids, **state.first_ids}
    turn.state = replace(turn.state, first_ids=first_ids, suspicions=suspicion.named(turn.state.suspicions, named))
    if named:
        # Not only with the next metadata: a topic may be recreated before, and only its first id shows that.
        _serve(turn, state.snapshot, replace(state.snapshot, topics={**held, **named}))


def _on_offsets(turn: _Turn, answer: OffsetsAnswer) -> None:
    """A leader that reports offsets is alive; one that reports none must prove itself at once."""
    leader = turn.state.snapshot.broker(answer.leader_id) if turn.state.snapshot else None
    known = turn.state.addresses.get(leader.address) if leader else None
    if leader is None or known is None:
        return
    if answer.offsets:
        after = revived(known, now=turn.now)
        if after is not known:
            _announce_verdict(turn, leader.address, after)
        elif known.alive and turn.now - (known.asked_at or 0.0) >= turn.policy.interval_seconds / 2:
            after = replace(known, asked_at=turn.now)  # who answers need not be asked whether it accepts connections
    else:
        after = replace(known, proved_at=None)
    if after != known:
        turn.state = turn.state.with_address(leader.address, after)
    if not turn.distrusted:
        # What it leads no more its next leader is asked for; nobody would ask this one, or answer, again.
        _note_offsets(turn, _limited(answer, turn.state.leaders.get(answer.leader_id, ())))


def _note_attempt(turn: _Turn, question: AskOffsets, answer: OffsetsAnswer) -> None:
    """Note how it went: a leader that reports nothing is asked with back-off, a slow one patiently."""
    key = LeaderKey(question.leader_id, question.seldom)
    before = turn.agenda.leaders[key]
    failures = 0 if answer.offsets else before.failures + 1
    turn.agenda.leaders[key] = replace(before, failures=failures)
    turn.agenda.took_seconds[question.leader_id] = answer.elapsed_seconds


def _note_silence(turn: _Turn) -> None:
    for question, seconds in tuple(silent_leaders(turn.agenda, turn.policy, now=turn.now)):
        detail = f"no answer within {round(seconds, 1):g} s"
        _on_offsets(
            turn,
            OffsetsAnswer(leader_id=question.leader_id, asked=question.partitions, offsets={}, detail=detail),
        )


def _note_offsets(turn: _Turn, answer: OffsetsAnswer) -> None:
    state, answer = turn.state, _in_order(turn, answer)
    turn.touched.update(answer.asked)
    # Whoever was asked before this leader's term was heard of may answer for an earlier one.
    if newer := state.offsets.newer_terms(answer):
        _outdate(turn, newer.__contains__)
    turn.state = replace(
        state,
        offsets=state.offsets.with_answer(answer, now=turn.now),
        suspicions=suspicion.raised(state.suspicions, suspicion.went_back(state.offsets, answer), now=turn.now),
    )


def _in_order(turn: _Turn, answer: OffsetsAnswer) -> OffsetsAnswer:
    """Keep the ends of a later question: the answers to a refresh wait for each other, the loop's come in meanwhile."""
    if answer.asked_at is None or not answer.offsets:
        return answer
    newest, about = turn.agenda.newest.get(answer.leader_id, (answer.asked_at, ()))
    if answer.asked_at >= newest:
        turn.agenda.newest[answer.leader_id] = answer.asked_at, answer.offsets.keys()
        return answer
    known = turn.state.offsets.offsets
    offsets = {
        tp: not_less(now, before) if tp in about and (before := known.get(tp)) is not None else now
        for tp, now in answer.offsets.items()
    }
    return replace(answer, offsets=offsets)


def _limited(answer: OffsetsAnswer, partitions: tuple[TopicPartition, ...]) -> OffsetsAnswer:
    """Leave out of an answer, and of what it was asked for, what is not among the partitions."""
    if answer.asked is partitions:
        return answer
    still = frozenset(partitions)
    return replace(
        answer,
        asked=tuple(tp for tp in answer.asked if tp in still),
        offsets={tp: offsets for tp, offsets in answer.offsets.items() if tp in still},
    )


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


def _fatal(state: State) -> str | None:
    """Say why waiting cannot help at a start, or None."""
    if state.pin is None:
        return state.fatal
    listed = [state.addresses[address] for address in state.configured]
    foreign = [k for k in listed if k.verdict is Verdict.FOREIGN_CLUSTER]
    if _may_outvote(state) and any(known.verdict is None for known in state.addresses.values()):
        return None
    if len(foreign) < len(listed) or (state.living and state.pin_source is PinSource.ANSWERS):
        # A list that names another cluster than the one a saved view or an option says is a mistake, or a move, also
        # where brokers live that the saved view remembers: nobody wants to read them by it unawares.
        return None
    assert state.pin_source is not None  # noqa: S101 - set with the pin
    return (
        f"every listed address belongs to cluster {foreign[0].cluster_id}, "
        f"but {state.pin_source.says} {state.pin}; correct the list{state.pin_source.if_wanted}"
    )
