"""The feed that needs nothing deployed: a loop on threads of this process."""

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import tenacity

from discovery.config.client.options import ClientOptions
from discovery.config.clock import SystemClock
from discovery.config.logs import event_log
from discovery.core.answers import CallEnded, MetadataFailure, NewBootstrap, NotSaved, OffsetsAnswer
from discovery.core.budget import Deadline
from discovery.core.clock import Clock
from discovery.core.decide import Decision
from discovery.core.errors import ConfigError, GatewayError, KafkaUnreachableError, StateError
from discovery.core.interest import Interest
from discovery.core.model import (
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    Isolation,
    Snapshot,
    TopicId,
    TopicName,
    TopicPartition,
)
from discovery.core.policy import Policy
from discovery.core.prediction.removal import RemovalFacts
from discovery.core.questions import AskOffsets
from discovery.core.state import initial_state
from discovery.feed.assemble import Assembler
from discovery.feed.base import FeedView, cold_view, verdicts
from discovery.feed.bootstrap_file import BootstrapFile
from discovery.feed.rhythm import Rhythm
from discovery.kafka.base import EARLIEST, LATEST, Gateway, GatewayFactory, OffsetSpec, Vetter
from discovery.kafka.confluent import ConfluentGatewayFactory
from discovery.kafka.survey import survey
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from discovery.loop.asking import ask_metadata, ask_offsets
from discovery.loop.calls import Key, ThreadedCalls, Value, gather
from discovery.loop.cycle import Barrier, Cycle
from discovery.loop.demand import Demand, everything
from discovery.loop.patience import close_soon
from discovery.loop.supervisor import Supervisor
from discovery.store.snapshots import SnapshotStore

_LOCK_WAIT_SECONDS = 15.0
"""A source that is restarted may find its last process not quite gone."""
_EARLIEST, _LATEST = -2, -1
_log = event_log("discovery.feed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """How a loop itself is doing, whatever Kafka does."""

    idle_seconds: float | None
    """Since its last turn began; None: it was never started."""
    stuck_calls: int = 0
    stuck_calls_total: int = 0
    clients_built: int = 0
    bugs: int = 0
    state_write_failures: int = 0
    state_write_failing: bool = False
    """The newest view is not on disk."""


class EmbeddedFeed:
    """`PartitionFeed` and `OffsetService` over a loop in this process. Thread-safe; the constructor does no I/O."""

    def __init__(
        self,
        *,
        bootstrap: Sequence[BrokerAddress],
        interest: Interest,
        client_options: ClientOptions | None = None,
        policy: Policy | None = None,
        state_dir: Path | None = None,
        source_id: str | None = None,
        cluster_id: ClusterId | None = None,
        bootstrap_file: BootstrapFile | None = None,
        factory: GatewayFactory | None = None,
        vetter: Vetter | None = None,
        clock: Clock | None = None,
        on_decision: Callable[[Decision], None] | None = None,
        demand: Demand = everything,
        list_outvotes: bool = False,
        log_context: Mapping[str, str] | None = None,
    ) -> None:
        """Remember what to follow.

        Args:
            bootstrap: 1..n configured addresses.
            interest: Which partitions to follow.
            client_options: The user's client configuration, translated; none if None.
            policy: Limits; the defaults of `Policy` if None.
            state_dir: Where the last good view is kept; None keeps nothing.
            source_id: Names this source; one living process may hold it.
            cluster_id: The right cluster, if the user says so.
            bootstrap_file: Holds the list, at the start and while the loop runs; where it cannot be read at the
                start, `bootstrap` (then it may be empty otherwise) is used.
            factory: Makes pooled clients; librdkafka if None.
            vetter: Asks addresses; librdkafka if None.
            clock: The system's if None.
            on_decision: Hears of every decision after it is shown, on the loop's thread; must be quick.
            demand: Tells whose end offsets must be fresh at this moment.
            list_outvotes: The follower has read nothing yet: a list whose addresses all belong to one other cluster
                replaces a saved view whose brokers are gone. It is kept from the first `ack` on.
            log_context: On every line that the loop logs.
        """
        self._log_context = log_context
        self._bootstrap = tuple(bootstrap)
        self._bootstrap_file = bootstrap_file
        self._interest = interest
        self._policy = policy or Policy()
        self._cluster_id = cluster_id
        self._clock = clock or SystemClock()
        self._on_decision = on_decision
        self._demand = demand
        self._list_outvotes = list_outvotes
        self._rhythm = Rhythm(self._clock)
        self._store = SnapshotStore(state_dir, source_id=source_id) if state_dir is not None else None
        options = client_options or ClientOptions()
        if options.api_timeout_seconds is not None:
            self._policy = replace(self._policy, offsets_deadline_seconds=options.api_timeout_seconds)
        self._factory = factory or ConfluentGatewayFactory(options, self._policy)
        self._patient_factory = factory or ConfluentGatewayFactory(options, self._policy, patient=True)
        self._vetter = vetter or LibrdkafkaVetter(options, self._policy)
        self._assembler = Assembler(interest)
        self._named = source_id is not None
        self._last_run_topic_ids: dict[TopicName, TopicId] = {}
        self._changed = threading.Condition()
        self._confirmed_at: float | None = None
        self._view = cold_view(self._bootstrap, cluster_id, "cold: nobody was asked yet")
        self._starting = threading.Lock()
        self._cycle: Cycle | None = None
        self._supervisor: Supervisor | None = None
        self._calls: ThreadedCalls | None = None
        self.positions: Mapping[TopicPartition, int] = {}
        """Where its follower said it stands."""
        self.acked_generation = Generation(0)
        """The newest generation its follower said it uses."""

    def start(self) -> None:
        """See `PartitionFeed.start`. Waits up to 15 s for a named source's last holder to end."""
        with self._starting:
            if self._cycle is not None:
                return
            self._read_bootstrap_file()
            self.check()  # options librdkafka refuses are an error now, not silence later
            state = initial_state(
                self._bootstrap,
                interest=self._interest,
                snapshot=self._saved(),
                cluster_id=self._cluster_id,
                salt=int.from_bytes(os.urandom(4), "big"),
                list_outvotes=self._list_outvotes,
                floor=self._store.floor if self._store is not None else Generation(0),
            )
            self._calls = ThreadedCalls(
                self._clock, max_stuck=self._policy.max_stuck_calls, on_error=self._on_call_error
            )
            self._cycle = Cycle(
                state=state,
                policy=self._policy,
                factory=self._factory,
                vetter=self._vetter,
                calls=self._calls,
                clock=self._clock,
                persistence=self._store,
                show=self._show,
                demand=self._demand,
                rests_seconds=self._rhythm.rests_seconds,
                patient_factory=self._patient_factory,
                log_context=self._log_context,
            )
            self._supervisor = Supervisor(self._cycle)
            self._supervisor.start()
            if self._bootstrap_file is not None:
                inbox = self._cycle.inbox
                self._bootstrap_file.watch(lambda addresses: inbox.put(NewBootstrap(addresses=addresses)))

    def view(self) -> FeedView:
        """See `PartitionFeed.view`."""
        view, confirmed_at = self._view, self._confirmed_at
        if confirmed_at is None:
            return view
        return replace(view, age_seconds=self._clock.monotonic() - confirmed_at)

    def wait(self, version: int, timeout_seconds: float) -> FeedView:
        """See `PartitionFeed.wait`."""
        with self._changed:
            self._changed.wait_for(lambda: self._view.version > version, timeout_seconds)
        return self.view()

    def refresh(self, timeout_seconds: float) -> FeedView:
        """See `PartitionFeed.refresh`. Asks on threads of its own; the loop takes the answers in."""
        cycle = self._started()
        deadline = Deadline.after(timeout_seconds, now=self._clock.monotonic())
        gateway, client = self._gateway(cycle, deadline)
        metadata = partial(ask_metadata, gateway, self._interest, self._policy, self._clock)
        answer = self._gather({"metadata": metadata}, "refresh", deadline).get("metadata")
        if answer is None or isinstance(answer, MetadataFailure):
            detail = answer.detail if answer else f"no answer within {timeout_seconds:g} s"
            raise self._unreachable(f"metadata could not be refreshed: {detail}")
        cycle.inbox.put(CallEnded(client=client, answer=answer))
        self._taken_in(cycle, deadline)
        asks = [
            AskOffsets(leader_id=i, partitions=tps, isolations=self._interest.isolations, with_start=True)
            for i, tps in cycle.state.leaders.items()
        ]
        slow = {a.leader_id: own for a in asks if (own := cycle.slow_leaders.get(a.leader_id)) is not None}
        work = {
            ask.leader_id: partial(
                ask_offsets,
                slow.get(ask.leader_id, gateway),
                # Starts move slowly, and would take another of a slow leader's answers.
                replace(ask, patient=True, with_start=False) if ask.leader_id in slow else ask,
                self._policy,
                self._clock,
            )
            for ask in asks
        }
        answers = self._gather(work, "refresh", deadline)
        late: set[TopicPartition] = set()
        for ask in asks:
            answered = answers.get(ask.leader_id)
            is_slow = ask.leader_id in cycle.state.agenda.asked_patiently
            if answered is None and is_slow and not self._interest.both_ends:
                # The loop knows how long this leader takes, and parks it when that is over. Not where followers of a
                # service read the loop's view instead of this answer: they would take what it holds for fresh.
                late.update(ask.partitions)
                continue
            silence = OffsetsAnswer(
                leader_id=ask.leader_id, asked=ask.partitions, offsets={}, detail="no answer in time for a refresh"
            )
            cycle.inbox.put(CallEnded(client=client, answer=answered or silence))
        self._taken_in(cycle, deadline)
        if cycle.state.client != client:
            raise self._unreachable("the client was rebuilt during a refresh, so its answers were dropped")
        return _parked(self.view(), late)

    def check(self) -> None:
        """Find out whether the client library takes the options; asks nobody.

        Raises:
            ConfigError: it does not.
        """
        close_soon(self._factory(self._bootstrap))

    def vitals(self) -> Vitals:
        """Return how the loop itself is doing; from memory. Thread-safe."""
        cycle, calls, supervisor = self._cycle, self._calls, self._supervisor
        return Vitals(
            idle_seconds=self._clock.monotonic() - cycle.turned_at if cycle else None,
            stuck_calls=calls.stuck if calls else 0,
            stuck_calls_total=calls.stuck_total if calls else 0,
            clients_built=cycle.state.client if cycle else 0,
            bugs=supervisor.bugs if supervisor else 0,
            state_write_failures=self._store.write_failures if self._store else 0,
            state_write_failing=self._store is not None and self._store.is_failing,
        )

    def ack(self, generation: Generation) -> None:
        """See `PartitionFeed.ack`."""
        self.acked_generation = generation
        if self._view.left_cluster is not None and self._store is not None and not self._store.may_replace:
            self._store.may_replace = True
            self._started().inbox.put(NotSaved(wait_seconds=0.0))

    def note_plan(self) -> None:
        """See `PartitionFeed.note_plan`."""
        self._rhythm.note_plan()

    def report(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `PartitionFeed.report`."""
        self.positions = positions

    def stop(self) -> None:
        """See `PartitionFeed.stop`."""
        if self._bootstrap_file is not None:
            self._bootstrap_file.stop()
        if self._supervisor is not None:
            self._supervisor.stop()
        if self._cycle is not None and self._cycle.client is not None:
            close_soon(self._cycle.client[1])
            self._cycle.slow_leaders.keep(())
        if self._store is not None:
            self._store.close()

    def resolve(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        timeout_seconds: float,
        by_timestamp: bool = False,
        isolation: Isolation | None = None,
    ) -> Mapping[TopicPartition, int]:
        """See `OffsetService.resolve`; `isolation` says what "latest" means, by default as the interest does."""
        cycle = self._started()
        deadline = Deadline.after(timeout_seconds, now=self._clock.monotonic())
        gateway, _ = self._gateway(cycle, deadline)
        leader_of = {tp: leader for leader, tps in cycle.state.leaders.items() for tp in tps}
        groups: dict[tuple[BrokerId, OffsetSpec], list[TopicPartition]] = {}
        for tp, value in wanted.items():
            if tp in leader_of:
                groups.setdefault((leader_of[tp], _spec(value, by_timestamp=by_timestamp)), []).append(tp)
        seen = isolation or self._interest.isolation
        work = {key: partial(self._one_leader, gateway, groups[key], key[1], deadline, seen) for key in groups}
        answered = {key: answer for key, answer in self._gather(work, "resolve", deadline).items() if answer}
        if groups and not answered:
            raise self._unreachable(f"no leader reported an offset within {timeout_seconds:g} s")
        return {tp: offset for answer in answered.values() for tp, offset in answer.items()}

    def committed(
        self, group: str, partitions: Collection[TopicPartition], *, timeout_seconds: float
    ) -> Mapping[TopicPartition, int]:
        """See `OffsetService.committed`."""
        cycle = self._started()
        deadline = Deadline.after(timeout_seconds, now=self._clock.monotonic())
        gateway, _ = self._gateway(cycle, deadline)
        try:
            return gateway.committed_offsets(
                group, partitions, timeout_seconds=deadline.remaining(self._clock.monotonic())
            )
        except GatewayError as error:
            raise self._unreachable(f"committed offsets of group {group!r}: {error.detail}") from error

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_seconds: float) -> None:
        """See `OffsetService.commit_offsets`."""
        cycle = self._started()
        deadline = Deadline.after(timeout_seconds, now=self._clock.monotonic())
        gateway, _ = self._gateway(cycle, deadline)
        try:
            gateway.commit_offsets(group, offsets, timeout_seconds=deadline.remaining(self._clock.monotonic()))
        except GatewayError as error:
            raise self._unreachable(error.detail) from error

    def survey(
        self,
        leaving: Collection[BrokerId],
        *,
        timeout_seconds: float,
        lists: Mapping[str, tuple[BrokerAddress, ...]],
    ) -> RemovalFacts:
        """Ask everything that a removal depends on; what is not answered becomes a doubt.

        Runs: any thread but the loop's; blocks <= about twice timeout_seconds.
        """
        view = self.view()
        return survey(
            self._factory,
            self._vetter,
            view.addresses,
            leaving,
            timeout_seconds=timeout_seconds,
            lists=lists,
            cluster_id=view.cluster_id,
        )

    def _read_bootstrap_file(self) -> None:
        if self._bootstrap_file is None:
            return
        try:
            self._bootstrap = self._bootstrap_file.read()
        except ConfigError as error:
            if not self._bootstrap:
                raise
            _log.warning("bootstrap_file_unreadable", error=str(error), consequence="the listed addresses are used")

    def _saved(self) -> Snapshot | None:
        """Open the store and return the view saved last; the ids in that of a named source are those it has read."""
        if self._store is None:
            return None
        self._open_store(self._store)
        snapshot = self._store.load(self._bootstrap, cluster_id=self._cluster_id)
        if snapshot is not None and self._named:
            # A view that others save too may hold an older id than this source has read.
            topics = (*snapshot.topics.values(), *(tomb.topic for tomb in snapshot.tombstones.values()))
            self._last_run_topic_ids = {t.name: t.topic_id for t in topics if t.topic_id is not None}
            # Whoever plans before the loop shows its first decision must know them, too.
            self._view = replace(self._view, last_run_topic_ids=self._last_run_topic_ids)
        return snapshot

    def _open_store(self, store: SnapshotStore) -> None:
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(StateError),
            wait=tenacity.wait_fixed(0.25),
            stop=tenacity.stop_after_delay(_LOCK_WAIT_SECONDS),
            reraise=True,
        ):
            with attempt:
                store.open()

    def _show(self, decision: Decision) -> None:
        """Runs: the loop's thread."""
        mono_to_wall = self._clock.wall() - self._clock.monotonic()
        view = self._assembler.assemble(decision, mono_to_wall=mono_to_wall)
        if self._last_run_topic_ids:
            view = replace(view, last_run_topic_ids=self._last_run_topic_ids)
        with self._changed:
            self._view = view
            self._confirmed_at = decision.state.confirmed_at
            self._changed.notify_all()
        if self._on_decision is not None:
            self._on_decision(decision)

    def _on_call_error(self, key: str, error: Exception) -> None:
        if self._supervisor is not None:
            self._supervisor.note_bug(key, error)

    def _started(self) -> Cycle:
        self.start()
        assert self._cycle is not None  # noqa: S101 - start made it
        return self._cycle

    def _gateway(self, cycle: Cycle, deadline: Deadline) -> tuple[Gateway, int]:
        """Wait for the first living broker's client."""
        version = -1
        while True:
            if (client := cycle.client) is not None and cycle.state.snapshot is not None:
                number, gateway = client
                return gateway, number
            remaining = deadline.remaining(self._clock.monotonic())
            if remaining <= 0:
                raise self._unreachable("no living broker was found in time")
            version = self.wait(version, min(remaining, 0.1)).version

    def _taken_in(self, cycle: Cycle, deadline: Deadline) -> None:
        barrier = Barrier(threading.Event())
        cycle.inbox.put(barrier)
        if not barrier.done.wait(deadline.remaining(self._clock.monotonic()) + 1.0):
            raise self._unreachable("the discovery loop did not take the answers in")

    def _gather(self, work: Mapping[Key, Callable[[], Value]], name: str, deadline: Deadline) -> dict[Key, Value]:
        assert self._calls is not None  # noqa: S101 - made by start
        return gather(self._calls, work, name=name, deadline=deadline, clock=self._clock)

    def _one_leader(
        self,
        gateway: Gateway,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        deadline: Deadline,
        isolation: Isolation,
    ) -> Mapping[TopicPartition, int]:
        timeout = max(0.1, deadline.remaining(self._clock.monotonic()))
        try:
            answered = gateway.list_offsets(partitions, spec, isolation=isolation, timeout_seconds=timeout)
        except GatewayError as error:
            _log.info("offsets_unknown", partitions=len(partitions), error=error.detail)
            return {}
        return {tp: answer.offset for tp, answer in answered.items()}

    def _unreachable(self, what: str) -> KafkaUnreachableError:
        return KafkaUnreachableError(f"{what}; {verdicts(self.view())}")


def _parked(view: FeedView, late: Collection[TopicPartition]) -> FeedView:
    """Show what is not fresh as parked: whoever asked for a fresh answer concludes from it that records are lost."""
    known = {tp: view.partitions[tp] for tp in late if tp in view.partitions}
    waiting = {
        tp: replace(p, parked_reason=f"its leader, broker {p.leader_id}, is slow: no answer in time for a refresh")
        for tp, p in known.items()
        if p.parked_reason is None
    }
    return replace(view, partitions=MappingProxyType({**view.partitions, **waiting})) if waiting else view


def _spec(value: int, *, by_timestamp: bool) -> OffsetSpec:
    if by_timestamp:
        return OffsetSpec(timestamp_milliseconds=value)
    if value not in (_EARLIEST, _LATEST):
        raise ValueError(f"only -2 (earliest) and -1 (latest) can be resolved, not {value}")
    return EARLIEST if value == _EARLIEST else LATEST
