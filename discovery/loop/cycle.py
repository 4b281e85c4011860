"""One turn of the loop: decide on the answers that came, perform, show, ask.

Everything here runs on one thread, the loop's; workers only put answers into the inbox. A turn never waits for Kafka,
and all that it remembers of Kafka is the state that `decide` returned.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, assert_never

from discovery.config.logs import bind, event_log
from discovery.core.answers import Answer, CallEnded, ClientAnswer, MetadataFailure, NotSaved, StuckCall
from discovery.core.clock import Clock
from discovery.core.decide import Decision, Instruction, Persist, RebuildClient, decide
from discovery.core.diff import EventKind
from discovery.core.model import BrokerAddress, Snapshot, Verdict
from discovery.core.policy import Policy
from discovery.core.questions import AskMetadata, AskOffsets, AskTopicIds, Call, Question, Vet
from discovery.core.state import State
from discovery.kafka.base import Gateway, GatewayFactory, Vetter
from discovery.loop.asking import ask_metadata, ask_offsets, ask_topic_ids
from discovery.loop.calls import Calls
from discovery.loop.demand import Demand, everything
from discovery.loop.patience import PatientClients, close_soon

_GRACE_SECONDS = 1.0
"""How much later than its timeout a call may come back before it counts as stuck."""
_CALM_SECONDS = 0.02
_REQUESTS_OF_OFFSETS = 4
"""At most: metadata of a slow leader, both ends, the starts; one after another."""
_log = event_log("discovery.loop")


class Persistence(Protocol):
    """Where snapshots are kept; `discovery.store.SnapshotStore` or nothing."""

    def save(self, snapshot: Snapshot, addresses: tuple[BrokerAddress, ...]) -> bool:
        """Write; return False when that failed."""
        ...


@dataclass(frozen=True, slots=True)
class Barrier:
    """Put behind answers by a waiter: set once they have been taken in and shown."""

    done: threading.Event


Item = Answer | Barrier


class Cycle:
    """The loop without its thread: `turn` does one step and says how long nothing needs doing."""

    def __init__(
        self,
        *,
        state: State,
        policy: Policy,
        factory: GatewayFactory,
        vetter: Vetter,
        calls: Calls,
        clock: Clock,
        persistence: Persistence | None,
        show: Callable[[Decision], None],
        demand: Demand = everything,
        rests_seconds: Callable[[], float] = float,
        patient_factory: GatewayFactory | None = None,
        log_context: Mapping[str, str] | None = None,
    ) -> None:
        """Wire the parts; asks nobody yet. `log_context` is on every line of the loop and of its calls."""
        self._log_context = dict(log_context or {})
        self._turns = 0
        self._state = state
        self._policy = policy
        self._factory = factory
        self._vetter = vetter
        self._calls = calls
        self._clock = clock
        self._persistence = persistence
        self._show = show
        self._demand = demand
        self._rests_seconds = rests_seconds
        """For how long nobody reads whatever the demand is; 0: somebody may."""
        self._sentence = ""
        self.slow_leaders = PatientClients(patient_factory or factory)
        self._lost: tuple[Answer, ...] = ()
        """Calls that ended in a turn that failed, or were never made by it: they must not be under way for ever."""
        self.inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.client: tuple[int, Gateway] | None = None
        """The present client and its number in the state; one object, for other threads read it."""
        self.turned_at = clock.monotonic()
        """When the last turn began: tells whether the loop lives."""

    @property
    def state(self) -> State:
        """What is known; read by other threads, replaced by the loop's alone."""
        return self._state

    @property
    def calm_seconds(self) -> float:
        """How long an answer may wait for others that come with it: nothing while somebody needs fresh offsets."""
        return _CALM_SECONDS if self._state.snapshot is not None and self._demand() == () else 0.0

    def turn(self, first: Item | None = None) -> float:
        """Do one step, beginning with `first` and the inbox, and return the seconds until the next thing is due.

        Runs: the loop's thread; blocks only to write the state file when the snapshot changed.
        """
        now = self.turned_at = self._clock.monotonic()
        items = (*self._lost, *self._calls.overdue(), *self._items(first))
        answers = [item for item in items if not isinstance(item, Barrier)]
        self._lost = tuple(CallEnded(name=a.name) for a in answers if isinstance(a, CallEnded | StuckCall))
        rests_seconds = self._rests_seconds()
        wanted = () if rests_seconds else self._demand()
        decision = decide(self._state, answers, self._policy, now=now, wall=self._clock.wall(), wanted=wanted)
        self._turns += 1
        generation = decision.state.snapshot.generation if decision.state.snapshot else 0
        bind(**self._log_context, cycle=self._turns, generation=generation)
        for instruction in decision.instructions:
            self._perform(instruction, decision.state)
        self._state = decision.state
        self._lost = tuple(CallEnded(name=call.name) for call in decision.calls)
        self._tell(decision)
        self.slow_leaders.keep(decision.state.agenda.asked_patiently)
        for call in decision.calls:
            self._ask(call)
            self._lost = self._lost[1:]
        for item in items:
            if isinstance(item, Barrier):
                item.done.set()
        return min(decision.idle_seconds, rests_seconds or decision.idle_seconds)

    def _items(self, first: Item | None) -> Iterator[Item]:
        if first is not None:
            yield first
        while True:
            try:
                yield self.inbox.get_nowait()
            except queue.Empty:
                return

    def _perform(self, instruction: Instruction, state: State) -> None:
        match instruction:
            case Persist(snapshot):
                if self._persistence and not self._persistence.save(snapshot, tuple(state.addresses)):
                    self.inbox.put(NotSaved())
            case RebuildClient(bootstrap, reason, number):
                old, self.client = self.client, (number, self._factory(bootstrap))
                _log.info("client_built", reason=reason, bootstrap=[str(a) for a in bootstrap])
                self.slow_leaders.keep(())
                if old is not None:
                    close_soon(old[1])
            case _:
                assert_never(instruction)

    def _tell(self, decision: Decision) -> None:
        verdicts = {str(address): known.verdict for address, known in decision.state.addresses.items()}
        for event in decision.events:
            verdict = verdicts.get(event.subject) if event.kind is EventKind.VERDICT_CHANGED else None
            failed: dict[str, Any] = {} if verdict in {None, Verdict.ALIVE} else {"error_class": verdict.value}
            _log.info(event.kind.value, subject=event.subject, sentence=event.sentence, **failed)
        is_news = decision.sentence != self._sentence
        if is_news:
            kinds = [answer.kind.value for answer in decision.taken if isinstance(answer, MetadataFailure)]
            failing: dict[str, Any] = {"error_class": kinds[-1]} if kinds else {}
            _log.info("cycle", sentence=decision.sentence, **failing)
        if is_news or decision.taken or decision.events or decision.touched:
            self._show(decision)
        self._sentence = decision.sentence

    def _ask(self, call: Call) -> None:
        number, ask = self.client[0] if self.client else 0, self._work(call.question)

        def work() -> None:
            answer = None
            try:
                answer = ask()
            finally:
                self.inbox.put(CallEnded(name=call.name, client=number, answer=answer))

        if not self._calls.start(call.name, work, limit_seconds=self._limit_seconds(call.question) + _GRACE_SECONDS):
            self.inbox.put(CallEnded(name=call.name))

    def _work(self, question: Question) -> Callable[[], ClientAnswer | None]:
        """Return what a worker does."""
        if isinstance(question, Vet):
            return partial(self._vet, question)
        assert self.client is not None  # noqa: S101 - nothing else is asked without a client
        gateway, policy, clock = self.client[1], self._policy, self._clock
        match question:
            case AskMetadata():
                return partial(ask_metadata, gateway, self._state.interest, policy, clock)
            case AskTopicIds(topics=topics):
                return partial(ask_topic_ids, gateway, topics, policy, clock)
            case AskOffsets(leader_id=leader):
                broker = self._state.snapshot.broker(leader) if question.patient and self._state.snapshot else None
                client = self.slow_leaders.take(leader, broker.address, self._state.pin) if broker else gateway
                return partial(ask_offsets, client, question, policy, clock)

    def _vet(self, question: Vet) -> None:
        """Runs: a worker's thread; each outcome is reported as it comes."""
        self._vetter.vet(
            question.addresses,
            connect_timeout_seconds=self._policy.connect_timeout_seconds,
            request_timeout_seconds=self._policy.request_timeout_seconds,
            full=question.full,
            on_outcome=self.inbox.put,
        )

    def _limit_seconds(self, question: Question) -> float:
        policy = self._policy
        match question:
            case Vet():
                return policy.connect_timeout_seconds + policy.request_timeout_seconds
            case AskMetadata():
                return 2 * policy.request_timeout_seconds
            case AskTopicIds():
                return policy.api_timeout_seconds
            case AskOffsets(patient=patient):
                timeout = policy.offsets_deadline_seconds if patient else policy.offsets_timeout_seconds
                return _REQUESTS_OF_OFFSETS * (timeout + _GRACE_SECONDS)
