"""What the driver's reader decides from the feed's memory: first offsets, the next end, tasks."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from discovery.config.clock import SystemClock
from discovery.core.clock import Clock
from discovery.core.errors import KafkaUnreachableError, LedgerFencedError, StateError
from discovery.core.model import BrokerAddress, TopicPartition
from discovery.core.pin import PinSource
from discovery.feed.base import FeedView, SourceFeed
from discovery.spark.source.collection import without_collection
from discovery.spark.source.commits import CommitReport, Committer
from discovery.spark.source.cuts.arbiter import Ticket
from discovery.spark.source.cuts.planned import CutReport, Cuts
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.bounded import Target, fresh_view
from discovery.spark.source.planning.bounds import STARTING, ByTimestamp
from discovery.spark.source.planning.committed import ask_group, committed_start
from discovery.spark.source.planning.guard import LossGuard, refuse_rewinds
from discovery.spark.source.planning.offsets import (
    COMMITTED,
    LATEST,
    Offsets,
    OffsetsJson,
    Remembered,
    same_or,
    to_json,
)
from discovery.spark.source.planning.pace import Pace
from discovery.spark.source.planning.plan import Limits, OnParked, describe, plan_end
from discovery.spark.source.planning.start import (
    existing,
    first_offsets,
    is_settled,
    moved,
    moving,
    refuse_out_of_range,
)
from discovery.spark.source.planning.tasks import Task, pack, ranges_between
from discovery.spark.source.planning.timestamps import offsets_by_time
from discovery.spark.source.waiting import Patience
from discovery.store.topic_ids import TopicIdStore

_log = logging.getLogger("kafka_discovery.source")
_SAY_PARKED_SECONDS = 2.0
"""Least time between two lines about parked partitions: leaders move one by one."""
_LOOKS_PER_SECOND = 5
_IDS_SECONDS = 10.0
"""How long a replay waits for the ids of topics that were read before; nobody may have the right to tell them."""
_NOTE_AGAIN_SECONDS = 1.0
_FLUSH_SECONDS = 5.0
"""How long a bounded run waits for its last commit to the group before it ends."""
_UNCONFIRMED = "it was cut, and whether it still reaches as far is not confirmed yet"
CHECKPOINT = "the checkpoint's offsets"


class Planner:
    """One query's memory between Spark's calls. One thread; owns no thread, socket or file."""

    def __init__(
        self,
        feed: SourceFeed,
        options: SourceOptions,
        clock: Clock | None = None,
        *,
        cuts: Cuts | None = None,
        ids: TopicIdStore | None = None,
        refuse_start: Callable[[Offsets], None] | None = None,
    ) -> None:
        """Plan over a feed that was started.

        Args:
            feed: Tells what Kafka has.
            options: The user's.
            clock: The system's if None.
            cuts: Opened; None: nothing is ever cut.
            ids: Keeps the topic ids of a named source; None: nobody.
            refuse_start: Looks once at the offsets from which a checkpoint goes on, and raises where they would lose
                records; None: nobody.
        """
        self.feed = feed
        self.options = options
        self.cuts = cuts
        self.plans_made = 0
        """How often a plan was really computed, not answered from the last one."""
        self._clock = clock or SystemClock()
        self._isolation = options.interest.isolation
        self._patience = Patience(feed, options, self._clock)
        self._guard = LossGuard(feed, options, self._clock, ids=ids)
        self._pace = Pace(options, self._clock)
        self._target: Target | None = None
        self._one_batch = False
        self._first: OffsetsJson | None = None
        self._begins: OffsetsJson = {}
        self._stood: Mapping[str, Any] | None = None
        self._asked: tuple[Any, ...] | None = None
        self._answered: OffsetsJson = {}
        self._parsed = Remembered()
        self._reported: tuple[int, OffsetsJson] | None = None
        self._checked: tuple[Any, ...] | None = None
        self._parked: frozenset[TopicPartition] = frozenset()
        self._say_parked_after = float("-inf")
        self._acked = -1
        self._note_after = float("-inf")
        self._resumed = False
        self._refuse_start = refuse_start
        self._was_read: set[TopicPartition] = set()
        """Partitions that are parked now and were not when this run began."""
        self._held: Mapping[TopicPartition, str] = {}
        """What stays out of the plan because of its cut, and why."""
        commits = options.commit_offsets and options.group
        self.stands: Offsets = {}
        """Where the sink is: the end of the last batch that Spark recorded, less what was cut."""
        self.planned: Mapping[str, Any] = {}
        """The end of the newest plan, as Spark was given it."""
        self.parked: Mapping[TopicPartition, str] = {}
        """What the newest plan left out, and why."""
        self.batch_since: float | None = None
        """When the batch that runs now was made into tasks, in seconds since the epoch; None: none runs."""
        self.batch: tuple[Task, ...] = ()
        """The tasks of the batch that runs now."""
        self.late_records = 0
        """How many records waited in partitions that were parked, when these could be read again."""
        self.committer = Committer(feed, commits, self._clock) if commits else None

    @property
    def available_now(self) -> bool:
        """Whether the query ends at fixed offsets."""
        return self._target is not None

    def initial_offsets(self) -> OffsetsJson:
        """Say where a new query begins; the same at every call.

        Spark keeps this nowhere until its first batch is done: a restart before that asks again. So where a partition's
        start might be another one by then it is only marked here (LATEST) and fixed by the first plan, whose batch is
        empty and stands in Spark's log.

        Raises:
            KafkaUnreachableError: nobody answered within `startupTimeout`; carries a verdict per address.
            ConfigError: the subscribed topics do not exist, or `startingOffsets` names other partitions.

        Runs: driver; blocks <= `startupTimeout`.
        """
        if self._first is None:
            begins, moves = self._begin(self._first_view())
            self._begins = to_json(begins)
            self._first = to_json({**begins, **dict.fromkeys(moves, LATEST)})
        if self.cuts is not None:
            self.cuts.note_first(self._first)
        return self._first

    def _first_view(self) -> FeedView:
        view = self._patience.usable_view(lambda v: is_settled(v, self.options.interest))
        if view.partitions:
            return view
        # Topics that are only not known yet would be taken for new ones and read from their beginning.
        view = fresh_view(self.feed, self._clock, self._patience, wait_seconds=self.options.startup_timeout_seconds)
        if not view.partitions:
            _log.warning("no topic matches %r yet; the query waits for one", self.options.interest.pattern)
        return self._patience.usable_view(lambda v: is_settled(v, self.options.interest))

    def _begin(self, view: FeedView) -> tuple[Offsets, frozenset[TopicPartition]]:
        start, interest, option = self.options.stream_start, self.options.interest, STARTING.offsets
        if isinstance(start, ByTimestamp):
            option = start.option
            start = offsets_by_time(
                start, view, self.feed, self._clock, wait_seconds=self.options.startup_timeout_seconds
            )
        moves = moving(start, existing(view))
        if start == COMMITTED:
            start = self._group_start(view)
        first = first_offsets(view, interest, start, option=option)
        if self.options.fail_on_data_loss and start is self.options.stream_start:
            refuse_out_of_range(first, view, interest, option=option)
        return first, moves

    def _group_start(self, view: FeedView) -> Offsets:
        group = self.options.group or ""
        wait_seconds = self.options.startup_timeout_seconds
        committed = ask_group(group, existing(view), self.feed, self._clock, wait_seconds=wait_seconds)
        fallback = self.options.starting_fallback
        return committed_start(committed, view, self.options.interest, group=group, fallback=fallback)

    def fix_target(self) -> None:
        """Fix where the query ends: the end of every partition by a fresh answer.

        Raises:
            KafkaUnreachableError: nobody answered within the budget; carries a verdict per address.

        Runs: driver, once; blocks <= `startupTimeout`, then <= 60 s.
        """
        self._patience.usable_view(lambda v: is_settled(v, self.options.interest))
        self._target = Target(self.feed, self.options, self._clock, self._patience)
        self._asked = None

    def fix_once(self) -> None:
        """Fix the one batch of Trigger.Once: all there is, with some time for partitions that cannot be read now.

        Raises:
            KafkaUnreachableError: nobody answered within the budget; carries a verdict per address.

        Runs: driver, once; blocks <= `startupTimeout`, then <= 120 s.
        """
        # What moves is at its end and has nothing to read; only a group's place must stand in the log before its use.
        self._one_batch = self.options.stream_start != COMMITTED
        if self._target is None:
            self.fix_target()
        if self._target is not None:
            self._target.wait_for_debts(self._patience)

    def latest_offsets(self, start: Mapping[str, Any], max_rows: int | None) -> Mapping[str, Any]:
        """Say where the next batch ends; the `start` object itself when there is nothing new.

        Raises:
            DataLossError: records are gone, confirmed by a fresh answer, and `failOnDataLoss` is true.
            KafkaUnreachableError: waiting will not help, or a bounded run cannot reach its end.

        Runs: driver; from memory, unless records seem lost or a bounded run waits.
        """
        self.feed.note_plan()
        self.batch_since, self.batch = None, ()
        self._check_start(start)
        if self.cuts is not None:
            self.cuts.batch_is_over()
        only_begins = start == self._first != self._begins and not self._one_batch
        # A query that only begins has nothing to take over from an earlier one of its name.
        self._resumed = self._resumed or only_begins
        end = self._begins if only_begins else self._next_end(start, max_rows)
        if self._target is not None and end is start:
            end = self._wait_for_the_rest(self._target, start, max_rows)
            if end is start and self.committer is not None and not self.committer.flush(_FLUSH_SECONDS):
                _log.warning("the last commit to group %s did not go through in time", self.options.group)
        self.planned = end if self.cuts is None else self._noted(self.cuts, start, end)
        return self.planned

    def _noted(self, cuts: Cuts, start: Mapping[str, Any], end: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell Spark of a new query's first batch only once it is in the ledger; until then nothing is new."""
        deadline = None if self._target is None else self._clock.monotonic() + self._target.wait_seconds
        while self._clock.monotonic() >= self._note_after or deadline is not None:
            try:
                cuts.note_planned(end)
            except LedgerFencedError:
                raise
            except StateError as error:
                self._note_after = self._clock.monotonic() + _NOTE_AGAIN_SECONDS
                if deadline is not None and self._clock.monotonic() >= deadline:
                    # Here "nothing new" would end the query as a success.
                    raise
                _log.warning("the first batch waits for the ledger of cuts: %s", error)
                if deadline is not None:
                    self.feed.wait(self.feed.view().version, _NOTE_AGAIN_SECONDS)
            else:
                return end
        return start

    def _stands(self, start: Mapping[str, Any]) -> None:
        """Spark has recorded everything before `start`, which it asks to plan from."""
        if start == self._stood:
            return
        self._stood = start
        stood = self._parse(start)
        self.stands = stood if self.cuts is None else self.cuts.delivered(stood)
        if self.committer is not None and start != self._first:
            self.committer.stands(self.stands)

    def cut_report(self) -> CutReport:
        """Say what cuts have shown; any thread."""
        return CutReport() if self.cuts is None else self.cuts.report()

    def commit_report(self) -> CommitReport | None:
        """Say how committing to a group goes; None: nothing is committed."""
        return None if self.committer is None else self.committer.report

    def report(self) -> OffsetsJson | None:
        """Return the known end of every followed partition, for the query's progress.

        Runs: driver; from memory.
        """
        view = self.feed.view()
        if self._reported is None or self._reported[0] != view.version:
            ends = {tp: p.end_offset(self._isolation) for tp, p in view.partitions.items()}
            self._reported = (view.version, to_json({tp: end for tp, end in ends.items() if end is not None}))
        return self._reported[1] or None

    def tasks(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> tuple[tuple[Task, ...], tuple[BrokerAddress, ...], Ticket | None]:
        """Cut a planned batch into tasks and name the brokers that are alive now.

        The first call after a restart replays a batch: then it waits for a living broker as a start does.

        Returns:
            The tasks, the brokers, and how tasks ask where their ranges end; None: as planned.

        Raises:
            KafkaUnreachableError: nobody answered within `startupTimeout`.
            DataLossError: the plan goes back although nothing was cut and `failOnDataLoss` is true.
            StateError: the plan contradicts the ledger of cuts.

        Runs: driver, once per batch.
        """
        self.batch_since = self._clock.wall()
        self._check_start(start, end)
        with without_collection():
            first, last = self._parse(start), self._parse(end)
        view = self._patience.current()
        if not self._resumed:
            # Tasks before any plan: a batch of an earlier run, be it the very first one, for which Spark asks again
            # where the query begins.
            view, foreign = self._before_a_replay(last)
            last = {tp: until for tp, until in last.items() if tp not in foreign}
        if self.cuts is not None:
            first = self.cuts.true_start(first, end)
        if self.options.fail_on_data_loss and not self.options.restart_recreated:
            refuse_rewinds(first, last, is_cut=self.cuts.is_rewind if self.cuts is not None else None)
        if self.cuts is None:
            self.batch = self._pack(first, last, view)
            return self.batch, view.bootstrap, None
        hold = self.options.on_parked is OnParked.HOLD
        self.batch, ticket = self.cuts.activate(
            start, end, view, make_tasks=lambda: self._pack(first, last, view), hold=hold
        )
        return self.batch, view.bootstrap, ticket

    def _check_start(self, *offsets: Mapping[str, Any]) -> None:
        if self._refuse_start is not None and self._first is None:
            for stood in offsets:
                self._refuse_start(self._parse(stood))
        self._refuse_start = None

    def _before_a_replay(self, last: Offsets) -> tuple[FeedView, frozenset[TopicPartition]]:
        """Wait for life, and find what was recreated since the batch was planned: its old range is read nowhere."""
        self._resumed = True
        view = self._patience.usable_view(
            lambda v: all(tp in v.partitions and v.partitions[tp].topic_id is not None for tp in last)
        )
        if view.left_cluster is not None:
            raise StateError(
                f"{moved(view)}, and the checkpoint has planned its first batch; correct the list"
                f"{PinSource.SAVED.if_wanted}"
            )
        self._guard.resume(last, view)
        view = self._patience.wait(self._guard.identifies, _IDS_SECONDS)
        return view, self._guard.refuse_recreated(last, view)

    def _pack(self, first: Offsets, last: Offsets, view: FeedView) -> tuple[Task, ...]:
        new = [tp for tp in last if tp not in first and last[tp] > 0]
        earliest = {tp: p.start_offset for tp in new if (p := view.partitions.get(tp)) and p.start_offset is not None}
        if self.cuts is not None:
            earliest |= self.cuts.known_starts()
        leaders = {tp: p.leader_id for tp, p in view.partitions.items()}
        topic_ids = {tp: p.topic_id for tp, p in view.partitions.items()}
        least, most = self.options.min_partitions, self.options.max_records_per_partition
        with without_collection():
            ranges = ranges_between(first, last, earliest, leaders, topic_ids)
            return pack(ranges, partitions=len(last), min_partitions=least, max_records=most)

    def _next_end(self, start: Mapping[str, Any], max_rows: int | None) -> Mapping[str, Any]:
        view = self._patience.current()
        self._patience.require_live_broker(view)
        asked = (view.version, max_rows, start, self._pace.is_due())
        if (*asked, self._tick()) != self._asked:
            # The answer is kept only once it is complete: a failed plan must not be answered from memory.
            self._asked = None
            with without_collection():
                self._answered = self._plan(self._parse(start), view, max_rows)
            self._asked = (*asked, self._tick())
            self._stands(start)
            self._ack(view)
            self.feed.report(self._parse(start))
        return same_or(start, self._answered)

    def _tick(self) -> int | None:
        """What is held, or waits for somebody to confirm its loss, may be free again without any news of Kafka."""
        is_open = self._held or self._checked is None
        return int(self._clock.monotonic() * _LOOKS_PER_SECOND) if is_open else None

    def _plan(self, start: Offsets, view: FeedView, max_rows: int | None) -> OffsetsJson:
        self.plans_made += 1
        rewinds = self.cuts.rewinds(start) if self.cuts is not None else {}
        if not rewinds:
            return self._plan_rest(start, view, max_rows)
        # First the rewind stands in Spark's log, then loss and retention are judged from there.
        rest = {tp: offset for tp, offset in start.items() if tp not in rewinds}
        self._checked = None
        planned = self._parse(self._plan_rest(rest, view, max_rows, without=rewinds.keys()))
        self._checked = None
        return to_json({**start, **planned, **rewinds})

    def _plan_rest(
        self, start: Offsets, view: FeedView, max_rows: int | None, *, without: Collection[TopicPartition] = ()
    ) -> OffsetsJson:
        """Plan what does not go back now; a fresh view knows the others again, and they are no new partitions."""
        view, resets = _without(view, without), dict[TopicPartition, int]()
        if not self._resumed:
            self._resumed = True
            if self._first is None:
                self._guard.resume(start, view)
        self._guard.note_stand(start)
        cut_ends = self.cuts.gone_back() if self.cuts is not None else {}
        self._held = {}
        if (shape := _shape(view)) != self._checked or cut_ends:
            self._checked = None
            checked = self._guard.check(start, view, on_reset=self._move_target, cut_ends=cut_ends)
            view, resets = _without(checked.view, (checked.unsure - cut_ends.keys()).union(without)), checked.resets
            self._held = dict.fromkeys(checked.unsure & cut_ends.keys(), _UNCONFIRMED)
            self._checked = shape if checked.settled else None
            self._guard.learn(start, view)
        if self.cuts is not None:
            self._held = self.cuts.held(cut_ends.keys() - self._held.keys(), view) | self._held
            view, resets = self._hold(view), {tp: to for tp, to in resets.items() if tp not in self._held}
        plan = plan_end(start, view.partitions, self._limits(max_rows), resets=resets)
        if plan.suspect and not resets:
            checked = self._guard.check(start, view, on_reset=self._move_target)
            view = self._hold(_without(checked.view, checked.unsure.union(without)))
            plan = plan_end(start, view.partitions, self._limits(max_rows), resets=checked.resets)
            resets = checked.resets
        self._count_late(start, plan.parked, view)
        self._say_parked(plan.parked)
        # A bounded run reads to its target, so there no batch is too small; nor is one that steps over lost records.
        held_back = self._target is None and not resets and not self._pace.allows(plan.backlog)
        ends = start if held_back else plan.end
        end = to_json(ends)
        self._parsed.learn(end, ends)  # the next `start` is this end, as a copy
        return end

    def _hold(self, view: FeedView) -> FeedView:
        """Park what a cut keeps out of the plan."""
        if not self._held:
            return view
        known = {tp: view.partitions[tp] for tp in self._held if tp in view.partitions}
        parked = {tp: replace(p, parked_reason=p.parked_reason or self._held[tp]) for tp, p in known.items()}
        return replace(view, partitions={**view.partitions, **parked})

    def _move_target(self, tp: TopicPartition, end: int) -> None:
        if self._target is not None:
            self._target.move(tp, end)

    def _limits(self, max_rows: int | None) -> Limits:
        return Limits(
            isolation=self._isolation,
            max_offsets=max_rows,
            on_parked=self.options.on_parked,
            target=None if self._target is None else self._target.ends,
            owed=frozenset() if self._target is None else self._target.owed,
        )

    def _parse(self, start: Mapping[str, Any]) -> Offsets:
        return self._parsed.offsets(start, what=CHECKPOINT)

    def _ack(self, view: FeedView) -> None:
        if view.generation != self._acked:
            self.feed.ack(view.generation)
            self._acked = view.generation

    def _count_late(self, start: Offsets, parked: Mapping[TopicPartition, str], view: FeedView) -> None:
        """Count what comes late: the records of partitions that had been read, were parked and can be read again."""
        if parked.keys() == self.parked.keys():
            return
        for tp in self._was_read - parked.keys():
            known = view.partitions.get(tp)
            end = None if known is None else known.end_offset(self._isolation)
            if end is not None:
                self.late_records += max(0, end - start.get(tp, end))
                self._was_read.discard(tp)
        if self.plans_made > 1:
            self._was_read |= {tp for tp in parked.keys() - self.parked.keys() if start.get(tp, -1) >= 0}

    def _say_parked(self, parked: Mapping[TopicPartition, str]) -> None:
        self.parked = parked
        now = self._clock.monotonic()
        if parked.keys() == self._parked or now < self._say_parked_after:
            return
        self._parked, self._say_parked_after = frozenset(parked), now + _SAY_PARKED_SECONDS
        holds = parked and self.options.on_parked is OnParked.HOLD
        text = describe(parked.items()) if parked else "none"
        _log.warning("partitions parked: %s%s", text, ", the query holds (onParked=hold)" if holds else "")

    def _wait_for_the_rest(self, target: Target, start: Mapping[str, Any], max_rows: int | None) -> Mapping[str, Any]:
        """Nothing is readable now: that is the end only if every partition has reached its target."""
        deadline = self._clock.monotonic() + target.wait_seconds
        while True:
            if target.settle_debts():
                self._asked = None
            end = self._next_end(start, max_rows)
            missing = target.missing(self._parse(start), gone=self._guard.gone())
            if end is not start or not missing:
                return end
            now = self._clock.monotonic()
            if now >= deadline:
                raise KafkaUnreachableError(target.why_unfinished(missing, self.parked))
            self.feed.wait(self.feed.view().version, min(deadline - now, 1.0))


def _shape(view: FeedView) -> tuple[Any, ...]:
    """What losses depend on, but for offsets: an id that is asked for comes later than the generation it belongs to."""
    unidentified = frozenset(tp.topic for tp, partition in view.partitions.items() if partition.topic_id is None)
    return view.generation, view.missing_topics, unidentified


def _without(view: FeedView, partitions: Collection[TopicPartition]) -> FeedView:
    """Leave partitions out of what is planned: they keep their offsets."""
    if not partitions:
        return view
    return replace(view, partitions={tp: p for tp, p in view.partitions.items() if tp not in partitions})
