"""What is due to be asked: addresses to vet, metadata, topic ids, offsets. Called by `decide` alone.

Each leader is asked for its offsets by itself, so that a dead one delays nobody.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from discovery.core.backoff import fraction_of
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, BrokerId, Isolation, TopicName, TopicPartition, Verdict
from discovery.core.offsets import OffsetBook
from discovery.core.policy import Policy
from discovery.core.quarantine import due
from discovery.core.questions import (
    Agenda,
    Asked,
    AskMetadata,
    AskOffsets,
    AskTopicIds,
    Call,
    Division,
    LeaderKey,
    Leaders,
    Question,
    Vet,
    Wanted,
)
from discovery.core.state import State
from discovery.core.verdict import WRONG

_NOT_WORTH_ASKING = WRONG | {Verdict.REFUSED, Verdict.UNRESOLVABLE}
_ROUNDS_OF_VETTING = 4
"""May run side by side: newly learned addresses do not wait for silent ones."""
_SLOWEST_RETRY_SECONDS = 1.0
_SELDOM_SECONDS = 10.0
"""How often ends are asked for where nobody needs them fresh: for lag on a page."""
_START_OFFSETS_INTERVAL_SECONDS = 10.0
"""Retention moves the earliest offset slowly."""
_WAKES_WHEN_IDLE = 4
"""How often per interval the loop looks up while nobody needs fresh offsets."""
_GRID_SPREAD_SECONDS = 0.1
_TITLES = {Vet: "vet", AskMetadata: "metadata", AskTopicIds: "topic ids"}
_NEVER = Asked(asked_at=float("-inf"), start_asked_at=float("-inf"), partitions=())


def ask(state: State, agenda: Agenda, wanted: Wanted | None, policy: Policy, *, now: float) -> tuple[Call, ...]:
    """Return what is asked now, and note it in the agenda.

    A question is not asked again while it is under way. Without a client only addresses are vetted.

    Runs: anywhere; O(addresses + leaders), and O(partitions) where the topics changed.
    """
    if agenda.metadata_at is None or agenda.ids_at is None:
        agenda.metadata_at = now
        agenda.ids_at = now + fraction_of(state.salt, "grid", 0) * _GRID_SPREAD_SECONDS
    questions = [*_vet(state, agenda, wanted, policy, now)]
    if state.client:
        questions += _ask_metadata(agenda, agenda.metadata_at, wanted, policy, now)
        questions += _ask_topic_ids(state, agenda, agenda.ids_at, policy, now)
        questions += _ask_leaders(state, agenda, wanted, policy, now)
    calls = tuple(Call(name=f"{_title(q)} #{n}", question=q) for n, q in enumerate(questions, agenda.calls_made + 1))
    agenda.calls_made += len(calls)
    agenda.calls |= {call.name: call.question for call in calls}
    return calls


def idle_seconds(state: State, wanted: Wanted | None, policy: Policy, *, now: float) -> float:
    """Return how long nothing is due: until the finest rhythm's next instant, so that nothing is missed by more.

    Runs: anywhere (pure).
    """
    if not state.client:
        return min(policy.settle_seconds, policy.interval_seconds) / 2
    if wanted == ():  # whoever needs fresh answers asks for them, which wakes the loop
        return policy.interval_seconds / _WAKES_WHEN_IDLE
    finest = min(policy.offsets_interval_seconds, policy.topics_interval_seconds)
    return max(0.0, min(finest / 2, (agenda_at if (agenda_at := state.agenda.metadata_at) is not None else now) - now))


def divide(held: Division, leaders: Leaders, wanted: Wanted | None) -> Division:
    """Return who is wanted and who is not: what is held while neither changed, leaders compared by object.

    Runs: anywhere (pure).
    """
    if leaders is held.leaders and wanted == held.wanted:
        return held
    if wanted is None:
        return Division(leaders=leaders, chosen=leaders)
    topics = {tp.topic for partitions in leaders.values() for tp in partitions}
    chosen = {topic for topic in topics if any(interest.wants_topic(topic) for interest in wanted)}
    return Division(leaders=leaders, wanted=wanted, chosen=_some(leaders, chosen), rest=_some(leaders, topics - chosen))


def isolations(wanted: Wanted | None, interest: Interest) -> tuple[Isolation, ...]:
    """Return which ends readers need, of those that the loop keeps.

    Runs: anywhere (pure).
    """
    if wanted is None:
        return interest.isolations
    needed = {isolation for one in wanted for isolation in one.isolations}
    return tuple(one for one in interest.isolations if one in needed)


def _title(question: Question) -> str:
    if isinstance(question, AskOffsets):
        return f"offsets {question.leader_id}{' seldom' if question.seldom else ''}"
    return _TITLES[type(question)]


def _next(at: float, interval_seconds: float, now: float) -> float:
    """Return the next instant of a grid; a late turn skips to it instead of piling up."""
    return at + interval_seconds * (1 + (now - at) // interval_seconds)


def _vet(state: State, agenda: Agenda, wanted: Wanted | None, policy: Policy, now: float) -> Iterator[Question]:
    rounds = [q.addresses for q in agenda.calls.values() if isinstance(q, Vet)]
    if len(rounds) >= _ROUNDS_OF_VETTING:
        return
    whom = due(state, policy=policy, now=now, idle=wanted == ())
    asked = frozenset[BrokerAddress]().union(*rounds)
    full = frozenset(whom.full) - asked
    every = full | (frozenset(whom.connect) - asked)
    if every:
        yield Vet(addresses=every, full=full)


def _is_under_way(agenda: Agenda, kind: type[AskMetadata | AskTopicIds]) -> bool:
    return any(isinstance(question, kind) for question in agenda.calls.values())


def _ask_metadata(
    agenda: Agenda, due_at: float, wanted: Wanted | None, policy: Policy, now: float
) -> Iterator[Question]:
    since = now - agenda.metadata_asked_at
    # A reader that needs something again does not wait for the grid.
    if now < due_at and (wanted == () or since < policy.topics_interval_seconds):
        return
    agenda.metadata_at = _next(due_at, policy.topics_interval_seconds, now)
    # One that came between two instants of the grid stands in for the next of them.
    early = since < (policy.interval_seconds if wanted == () else policy.topics_interval_seconds / 2)
    if not early and not _is_under_way(agenda, AskMetadata):
        agenda.metadata_asked_at = now
        yield AskMetadata()


def _ask_topic_ids(state: State, agenda: Agenda, due_at: float, policy: Policy, now: float) -> Iterator[Question]:
    topics = _ids_due(state, agenda, due_at, policy, now)
    if topics and not _is_under_way(agenda, AskTopicIds):
        if now >= due_at:
            agenda.ids_at = _next(due_at, policy.topic_ids_interval_seconds, now)
        agenda.ids_asked_at = now
        yield AskTopicIds(topics=topics)


def _ids_due(state: State, agenda: Agenda, due_at: float, policy: Policy, now: float) -> tuple[TopicName, ...]:
    """Return the topics whose ids are asked for now: all now and then, those in question soon again."""
    topics: Mapping[TopicName, object] = state.snapshot.topics if state.snapshot is not None else {}
    if now >= due_at:
        return tuple(topics)
    if now - agenda.ids_asked_at < policy.topics_interval_seconds:
        return ()
    suspected = {name for name, s in state.suspicions.items() if not s.id_answered and name in topics}
    pressed = {name for name in state.without_id if now < agenda.ids_pressed_until.get(name, float("inf"))}
    return tuple(suspected | pressed)


def _ask_leaders(state: State, agenda: Agenda, wanted: Wanted | None, policy: Policy, now: float) -> Iterator[Question]:
    division = state.division
    busy = {LeaderKey(q.leader_id, q.seldom) for q in agenda.calls.values() if isinstance(q, AskOffsets)}
    needed = isolations(wanted, state.interest)
    for seldom, leaders in ((False, division.chosen), (True, division.rest)):
        for leader, partitions in leaders.items():
            key = LeaderKey(leader, seldom)
            before = agenda.leaders.get(key, _NEVER)
            if key in busy or not _is_due(before, partitions, policy, now, seldom=seldom):
                continue
            if seldom and _are_read(agenda, leader, partitions, busy, now):
                continue
            if not worth_asking(leader, state):
                continue
            # A slow leader's next end must not wait behind its starts each time.
            interval = max(_START_OFFSETS_INTERVAL_SECONDS, 10 * agenda.took_seconds.get(leader, 0.0))
            old = now - before.start_asked_at >= interval
            with_start = old or _lack_start(partitions, state.offsets)
            start_asked_at = now if with_start else before.start_asked_at
            agenda.leaders[key] = replace(
                before, asked_at=now, start_asked_at=start_asked_at, partitions=partitions, overdue=False
            )
            yield AskOffsets(
                leader_id=leader,
                partitions=partitions,
                isolations=state.interest.isolations if seldom or with_start else needed,
                with_start=with_start,
                seldom=seldom,
                patient=agenda.is_slow(leader),
            )


def _is_due(before: Asked, partitions: tuple[TopicPartition, ...], policy: Policy, now: float, *, seldom: bool) -> bool:
    """A leader with a partition it was not asked about before is due at once, one often asked in vain with back-off."""
    if not _covers(before, partitions):
        return True
    since = now - before.asked_at
    if seldom and since < _SELDOM_SECONDS:
        return False
    slowed = policy.offsets_interval_seconds * 2 ** min(max(before.failures - 1, 0), 8)  # one may be a lost connection
    return bool(since >= min(slowed, max(_SLOWEST_RETRY_SECONDS, policy.offsets_interval_seconds)))


def _are_read(
    agenda: Agenda, leader: BrokerId, partitions: tuple[TopicPartition, ...], busy: Container[LeaderKey], now: float
) -> bool:
    """Tell whether a reader that rests between two plans has all of them asked for, or had lately."""
    key = LeaderKey(leader, seldom=False)
    asked = agenda.leaders.get(key, _NEVER)
    return (key in busy or now - asked.asked_at < _SELDOM_SECONDS) and _covers(asked, partitions)


def _covers(asked: Asked, partitions: tuple[TopicPartition, ...]) -> bool:
    """Tell whether all of them were asked for; mostly the same object, in every turn of the loop."""
    return asked.partitions is partitions or set(asked.partitions).issuperset(partitions)


def _lack_start(partitions: Iterable[TopicPartition], book: OffsetBook) -> bool:
    known = book.offsets
    return any((o := known.get(tp)) is None or o.start_offset is None for tp in partitions)


def silent_leaders(agenda: Agenda, policy: Policy, *, now: float) -> Iterator[tuple[AskOffsets, float]]:
    """Yield the questions that leaders owe an answer for longer than they are given, each once, and how long that is.

    A slow leader is given four times what its last answer took: a question may be three requests, one after another.
    """
    for question in agenda.calls.values():
        if isinstance(question, AskOffsets):
            key = LeaderKey(question.leader_id, question.seldom)
            asked = agenda.leaders[key]
            slowest = min(4 * agenda.took_seconds.get(key.leader_id, 0.0), policy.offsets_deadline_seconds)
            given = max(policy.leader_silence_seconds, slowest)
            if not asked.overdue and now - asked.asked_at >= given:
                agenda.leaders[key] = replace(asked, overdue=True)
                yield question, given


def worth_asking(leader: BrokerId, state: State) -> bool:
    """Tell whether a request could reach this leader, and nobody else at its address.

    librdkafka turns in a tight loop, a third of a core, while a request waits for a broker that refuses connections;
    vetting asks such an address once a cycle and sees it return.
    """
    broker = state.snapshot.broker(leader) if state.snapshot else None
    known = state.addresses.get(broker.address) if broker else None
    return known is not None and known.verdict not in _NOT_WORTH_ASKING


def _some(leaders: Leaders, topics: set[TopicName]) -> Leaders:
    kept = {leader: _of_topics(partitions, topics) for leader, partitions in leaders.items()}
    return {leader: partitions for leader, partitions in kept.items() if partitions}


def _of_topics(partitions: tuple[TopicPartition, ...], topics: set[TopicName]) -> tuple[TopicPartition, ...]:
    """Return the same object where all are of these topics: it is compared in every turn of the loop."""
    some = tuple(tp for tp in partitions if tp.topic in topics)
    return partitions if len(some) == len(partitions) else some
