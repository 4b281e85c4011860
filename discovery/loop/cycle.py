"""One turn of the loop: take in what was answered, decide, perform, ask what is due.

Everything here runs on one thread, the loop's; workers only put answers into the inbox. A turn never waits for Kafka.
"""

import queue
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog

from discovery.core.answers import (
    Answer,
    MetadataAnswer,
    MetadataFailure,
    OffsetsAnswer,
    ProbeOutcome,
    TopicIdsAnswer,
)
from discovery.core.backoff import fraction_of
from discovery.core.clock import Clock
from discovery.core.decide import Announce, Decision, Instruction, Persist, Publish, RebuildClient, decide
from discovery.core.diff import Event, EventKind
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, BrokerId, Isolation, Snapshot, TopicName, TopicPartition
from discovery.core.offsets import OffsetBook
from discovery.core.policy import Policy
from discovery.core.quarantine import due
from discovery.core.state import State
from discovery.core.suspicion import raised, went_back
from discovery.kafka.base import Gateway, GatewayFactory, Vetter
from discovery.loop.asking import ask_offsets
from discovery.loop.calls import Calls
from discovery.loop.demand import Demand, Division, Wanted, everything, isolations
from discovery.loop.offsets import LeaderAsk, OffsetsSchedule, partitions_by_leader

_GRACE_SECONDS = 1.0
"""How much later than its timeout a call may come back before it counts as stuck."""
_ASK_IDS_AT_ONCE = frozenset({EventKind.SHRINK_BLOCKED, EventKind.TOPIC_ADDED, EventKind.TOPIC_RETURNED})
_WAKES_WHEN_IDLE = 4
"""How often per interval the loop looks up while nobody needs fresh offsets."""
_CALM_SECONDS = 0.02
_SAVE_AGAIN_SECONDS = 10.0
"""A full disk may have room again, and the process that wrote a shared view may be gone."""
_VETS = ("vet 0", "vet 1", "vet 2", "vet 3")
"""Rounds of vetting that may run side by side: newly learned addresses do not wait for silent ones."""
_log = structlog.get_logger("discovery.loop")


class Persistence(Protocol):
    """Where snapshots are kept; `discovery.store.SnapshotStore` or nothing."""

    def save(self, snapshot: Snapshot, addresses: tuple[BrokerAddress, ...]) -> bool:
        """Write; return False when that failed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What the loop shows after a turn."""

    state: State
    book: OffsetBook
    sentence: str
    events: tuple[Event, ...] = ()
    touched: frozenset[TopicPartition] = frozenset()
    """Partitions whose offsets were asked for and answered, or not, in this turn."""
    answers: tuple[Answer, ...] = ()
    """What was taken in: for counting."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Put behind answers by a waiter: set once they have been taken in and shown."""

    done: threading.Event


@dataclass(frozen=True, slots=True, eq=False)
class RoundOver:
    """A round of vetting ended, whatever came of it."""

    key: str
    addresses: set[BrokerAddress]


Item = Answer | tuple[int, Answer] | Barrier | RoundOver
"""What comes in; an answer of the pooled client is paired with that client's number."""


@dataclass(slots=True)
class _Rhythm:
    """A grid of instants; a late turn skips to the next one instead of piling up."""

    interval_seconds: float
    next_at: float

    def take(self, now: float) -> bool:
        if now < self.next_at:
            return False
        behind = now - self.next_at
        self.next_at += self.interval_seconds * (1 + behind // self.interval_seconds)
        return True


class Cycle:
    """The loop without its thread: `turn` does one step and says how long nothing needs doing."""

    def __init__(
        self,
        *,
        state: State,
        policy: Policy,
        interest: Interest,
        factory: GatewayFactory,
        vetter: Vetter,
        calls: Calls,
        clock: Clock,
        persistence: Persistence | None,
        show: Callable[[Picture], None],
        demand: Demand = everything,
    ) -> None:
        """Wire the parts; asks nobody yet."""
        self._state = state
        self._policy = policy
        self._interest = interest
        self._factory = factory
        self._vetter = vetter
        self._calls = calls
        self._clock = clock
        self._persistence = persistence
        self._unsaved: Snapshot | None = None
        self._save_again_at = float("-inf")
        self._show = show
        self._demand = demand
        self.inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.gateway: Gateway | None = None
        self.turned_at = clock.monotonic()
        """When the last turn began: tells whether the loop lives."""
        self._gateway_serial = 0
        self._book = OffsetBook()
        self._division = Division()
        self._schedule, self._seldom = OffsetsSchedule(policy), OffsetsSchedule(policy)
        self._leaders: tuple[object, dict[BrokerId, tuple[TopicPartition, ...]]] = (None, {})
        self._vetting: dict[str, set[BrokerAddress]] = {}
        """Addresses still being asked, by round; touched by the loop's thread alone."""
        self._sentence = ""
        now = clock.monotonic()
        spread = fraction_of(state.salt, "grid", 0) * 0.1
        self._metadata = _Rhythm(policy.topics_interval_seconds, now)
        self._metadata_asked_at = float("-inf")
        self._ids_asked_at = float("-inf")
        self._pressed_until: dict[TopicName, float] = {}
        """Until when an id that an answer left out is asked for again soon."""
        self._lacking: tuple[object, object, frozenset[TopicName]] = (None, None, frozenset())
        self._topic_ids = _Rhythm(policy.topic_ids_interval_seconds, now + spread)

    @property
    def state(self) -> State:
        """What is known; read by other threads, replaced by the loop's alone."""
        return self._state

    @property
    def gateway_serial(self) -> int:
        """Number of the present client: an answer obtained through an older one is not trusted."""
        return self._gateway_serial

    @property
    def calm_seconds(self) -> float:
        """How long an answer may wait for others that come with it: nothing while somebody needs fresh offsets."""
        return _CALM_SECONDS if self._state.snapshot is not None and self._demand() == () else 0.0

    def leaders(self) -> dict[BrokerId, tuple[TopicPartition, ...]]:
        """Return the followed partitions by leader; computed once per change of the topics."""
        snapshot = self._state.snapshot
        topics = snapshot.topics if snapshot else None
        if self._leaders[0] is not topics:
            self._leaders = (topics, partitions_by_leader(self._state, self._interest))
        return self._leaders[1]

    def turn(self, first: Item | None = None) -> float:
        """Do one step, beginning with `first` and the inbox, and return the seconds until the next thing is due.

        Runs: the loop's thread; blocks only to write the state file when the snapshot changed.
        """
        now = self.turned_at = self._clock.monotonic()
        answers, barriers = self._drain(first)
        decision = decide(self._state, answers, self._policy, now=now, wall=self._clock.wall())
        self._state = decision.state
        self._take_ids(answers, now)
        events = self._take_offsets(answers, decision, now)
        self._perform(decision.instructions)
        if self._unsaved is not None and now >= self._save_again_at:
            self._save(self._unsaved)
        self._ask(now)
        self._tell(decision, answers, events)
        for barrier in barriers:
            barrier.done.set()
        return self._idle_seconds(now)

    def _drain(self, first: Item | None) -> tuple[list[Answer], list[Barrier]]:
        stuck = self._calls.overdue()
        for call in stuck:
            self._vetting.pop(call.name, None)
        answers: list[Answer] = list(stuck)
        barriers: list[Barrier] = []
        for item in self._items(first):
            if isinstance(item, Barrier):
                barriers.append(item)
            elif isinstance(item, RoundOver):
                if self._vetting.get(item.key) is item.addresses:
                    del self._vetting[item.key]
            elif isinstance(item, tuple):
                serial, answer = item
                if serial == self._gateway_serial:  # a discarded client may speak for another cluster
                    answers.append(answer)
            else:
                answers.append(item)
                if isinstance(item, ProbeOutcome):
                    self._release(item.address)
        return answers, barriers

    def _items(self, first: Item | None) -> Iterator[Item]:
        if first is not None:
            yield first
        while True:
            try:
                yield self.inbox.get_nowait()
            except queue.Empty:
                return

    def _take_offsets(self, answers: list[Answer], decision: Decision, now: float) -> tuple[Event, ...]:
        events = tuple(i.event for i in decision.instructions if isinstance(i, Announce))
        for event in events:
            if event.kind is EventKind.TOPIC_RECREATED:
                self._book = self._book.without_topic(TopicName(event.subject))
            if event.kind is EventKind.CLUSTER_MISMATCH:
                # Nobody knows since when the wrong cluster has been answering, this batch included.
                self._book, answers = OffsetBook(epoch=self._book.epoch + 1), []
            if event.kind in _ASK_IDS_AT_ONCE:
                self._topic_ids.next_at = now  # a new id would explain it
        for answer in answers:
            if isinstance(answer, OffsetsAnswer):
                self._doubt(went_back(self._book, answer), now)
                self._book = self._book.with_answer(self._of_now(answer), now=now)
                for schedule in (self._schedule, self._seldom):
                    schedule.answered(answer.leader_id, ok=bool(answer.offsets))
        return events

    def _of_now(self, answer: OffsetsAnswer) -> OffsetsAnswer:
        """Drop questions about partitions that a recreated topic no longer has: nobody would ask, or answer, again."""
        topics = self._state.snapshot.topics if self._state.snapshot else {}
        silent = [tp for tp in answer.asked if tp not in answer.offsets and tp.topic in topics]
        held = {name: {p.partition for p in topics[name].partitions} for name in {tp.topic for tp in silent}}
        gone = {tp for tp in silent if tp.partition not in held[tp.topic]}
        return replace(answer, asked=tuple(tp for tp in answer.asked if tp not in gone)) if gone else answer

    def _doubt(self, topics: frozenset[TopicName], now: float) -> None:
        if topics:
            self._state = replace(self._state, doubts=raised(self._state.doubts, topics, now=now))

    def _perform(self, instructions: tuple[Instruction, ...]) -> None:
        for instruction in instructions:
            match instruction:
                case Persist(snapshot):
                    self._save(snapshot)
                case RebuildClient(bootstrap, reason):
                    self._rebuild(bootstrap, reason)
                case Announce(event):
                    _log.info(event.kind.value, subject=event.subject, sentence=event.sentence)
                case Publish():
                    pass  # `_tell` shows the whole picture, once per turn

    def _save(self, snapshot: Snapshot) -> None:
        saved = self._persistence is None or self._persistence.save(snapshot, tuple(self._state.addresses))
        self._unsaved = None if saved else snapshot
        self._save_again_at = self._clock.monotonic() + _SAVE_AGAIN_SECONDS

    def _rebuild(self, bootstrap: tuple[BrokerAddress, ...], reason: str) -> None:
        old, self.gateway = self.gateway, self._factory(bootstrap)
        self._gateway_serial += 1
        self._pressed_until = {}
        _log.info("client_built", reason=reason, bootstrap=[str(a) for a in bootstrap])
        if old is not None:
            threading.Thread(target=old.close, name="kafka-discovery close", daemon=True).start()

    def _ask(self, now: float) -> None:
        self._ask_addresses(now)
        if self.gateway is None:
            return
        gateway, serial = self.gateway, self._gateway_serial
        wanted = self._demand()
        idle = wanted == ()
        if self._metadata.take(now) and not (idle and now - self._metadata_asked_at < self._policy.interval_seconds):
            self._metadata_asked_at = now
            self._start(
                "metadata", lambda: self._metadata_answer(gateway, serial), 2 * self._policy.request_timeout_seconds
            )
        if without_id := self._ids_due(now):
            work = partial(self._topic_ids_answer, gateway, serial, without_id, now)
            if self._start("topic ids", work, self._policy.api_timeout_seconds):
                self._ids_asked_at = now
                self._topic_ids.take(now)
        self._ask_leaders(gateway, serial, wanted, now)

    def _ids_due(self, now: float) -> tuple[TopicName, ...]:
        """Return the topics whose ids are asked for now: all now and then, those in question soon again."""
        topics = self._state.snapshot.topics if self._state.snapshot is not None else {}
        if now >= self._topic_ids.next_at:
            return tuple(topics)
        if now - self._ids_asked_at < self._policy.topics_interval_seconds:
            return ()
        doubted = {name for name, doubt in self._state.doubts.items() if not doubt.id_answered and name in topics}
        pressed = {name for name in self._without_id() if now < self._pressed_until.get(name, float("inf"))}
        return tuple(doubted | pressed)

    def _without_id(self) -> frozenset[TopicName]:
        """Return the topics whose id nobody has answered; computed once per change of either."""
        topics, answered = self._state.snapshot.topics if self._state.snapshot else {}, self._state.topic_ids
        if self._lacking[0] is not topics or self._lacking[1] is not answered:
            lacking = frozenset(n for n, topic in topics.items() if topic.topic_id is None and n not in answered)
            self._lacking = (topics, answered, lacking)
        return self._lacking[2]

    def _take_ids(self, answers: list[Answer], now: float) -> None:
        """Note which topics an answer left out: a lagging broker is asked again soon, one that never tells is not."""
        if any(isinstance(answer, TopicIdsAnswer) for answer in answers):
            until = now + self._policy.topic_ids_interval_seconds
            self._pressed_until = {name: self._pressed_until.get(name, until) for name in self._without_id()}

    def _start(self, key: str, work: Callable[[], None], limit_seconds: float) -> bool:
        return self._calls.start(key, work, limit_seconds=limit_seconds + _GRACE_SECONDS)

    def _ask_addresses(self, now: float) -> None:
        key = next((name for name in _VETS if not self._calls.running(name)), None)
        if key is None:
            return
        wanted = due(self._state, policy=self._policy, now=now)
        asked = set[BrokerAddress]().union(*self._vetting.values())
        full = frozenset(wanted.full) - asked
        every = full | (frozenset(wanted.connect) - asked)
        limit = self._policy.connect_timeout_seconds + self._policy.request_timeout_seconds
        if every:
            pending = set(every)
            if self._start(key, lambda: self._vet(RoundOver(key, pending), every, full), limit):
                self._vetting[key] = pending

    def _release(self, address: BrokerAddress) -> None:
        """Let an address be asked again although others of its round are still silent."""
        for pending in self._vetting.values():
            pending.discard(address)

    def _vet(self, over: RoundOver, every: frozenset[BrokerAddress], full: frozenset[BrokerAddress]) -> None:
        try:
            self._vetter.vet(
                every,
                connect_timeout_seconds=self._policy.connect_timeout_seconds,
                request_timeout_seconds=self._policy.request_timeout_seconds,
                full=full,
                on_outcome=self.inbox.put,
            )
        finally:
            self.inbox.put(over)

    def _metadata_answer(self, gateway: Gateway, serial: int) -> None:
        self.inbox.put((serial, self.metadata(gateway)))

    def metadata(self, gateway: Gateway) -> MetadataAnswer | MetadataFailure:
        """Ask for the followed topics; a failure is an answer too. Runs: a worker's or a waiter's thread."""
        began = self._clock.monotonic()
        try:
            answered = gateway.fetch_metadata(
                self._interest.asked_topics, timeout_seconds=self._policy.request_timeout_seconds
            )
        except GatewayError as error:
            return MetadataFailure(
                kind=error.kind, detail=error.detail, elapsed_seconds=self._clock.monotonic() - began
            )
        return replace(self._interest.filtered(answered), elapsed_seconds=self._clock.monotonic() - began)

    def _topic_ids_answer(self, gateway: Gateway, serial: int, names: Collection[TopicName], asked_at: float) -> None:
        try:
            ids = gateway.describe_topic_ids(names, timeout_seconds=self._policy.request_timeout_seconds)
        except GatewayError as error:
            if error.kind is FailureKind.BUG:
                raise
            _log.debug("topic_ids_unknown", error=error.detail)  # unknown is never a blocker
            ids = {}
        self.inbox.put((serial, TopicIdsAnswer(topic_ids=ids, asked_at=asked_at)))

    def _ask_leaders(self, gateway: Gateway, serial: int, wanted: Wanted | None, now: float) -> None:
        chosen, rest = self._division.of(self.leaders(), wanted)
        every = self._interest.isolations
        for ask in self._schedule.due(chosen, self._book, self._state, now):
            ends = every if ask.with_start else isolations(wanted, self._interest)
            if self._ask_leader(f"offsets {ask.leader_id}", gateway, serial, ask, ends):
                self._schedule.asked(ask, now)
        for ask in self._seldom.due(rest, self._book, self._state, now, idle=True):
            if self._ask_leader(f"offsets {ask.leader_id} seldom", gateway, serial, ask, every):
                self._seldom.asked(ask, now)

    def _ask_leader(self, key: str, gateway: Gateway, serial: int, ask: LeaderAsk, ends: tuple[Isolation, ...]) -> bool:
        def work() -> None:
            self.inbox.put((serial, ask_offsets(gateway, ask, ends, self._policy)))

        return self._start(key, work, 2 * self._policy.offsets_timeout_seconds)

    def _tell(self, decision: Decision, answers: list[Answer], events: tuple[Event, ...]) -> None:
        if decision.sentence != self._sentence:
            _log.info("cycle", sentence=decision.sentence)
        if answers or events or decision.sentence != self._sentence:
            touched = frozenset(tp for a in answers if isinstance(a, OffsetsAnswer) for tp in a.asked)
            self._show(
                Picture(
                    state=self._state,
                    book=self._book,
                    sentence=decision.sentence,
                    events=events,
                    touched=touched,
                    answers=tuple(answers),
                )
            )
        self._sentence = decision.sentence

    def _idle_seconds(self, now: float) -> float:
        """Wake at the next instant of the finest rhythm: cheap, and nothing due is ever missed by more than that."""
        if self.gateway is None:
            return min(self._policy.settle_seconds, self._policy.interval_seconds) / 2
        if self._demand() == ():  # whoever needs fresh answers asks for them, which wakes the loop
            return self._policy.interval_seconds / _WAKES_WHEN_IDLE
        finest = min(self._policy.offsets_interval_seconds, self._policy.topics_interval_seconds)
        return max(0.0, min(finest / 2, self._metadata.next_at - now))
