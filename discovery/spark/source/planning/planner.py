"""What the driver's reader asks for: first offsets, the next end, tasks. Asks the feed, has `plan` decide, performs."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from discovery.config.clock import SystemClock
from discovery.core.clock import Clock
from discovery.core.errors import KafkaUnreachableError, LedgerFencedError, StateError
from discovery.core.model import BrokerAddress, TopicPartition
from discovery.core.pin import PinSource
from discovery.feed.base import ID_ASKED, FeedView, SourceFeed
from discovery.spark.source.collection import without_collection
from discovery.spark.source.commits import CommitReport, Committer
from discovery.spark.source.cuts.arbiter import Ticket
from discovery.spark.source.cuts.left_behind import LeftBehind, RefuseStart
from discovery.spark.source.cuts.planned import CutReport, Cuts
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.beginning import begin
from discovery.spark.source.planning.bounded import Target, longest_wait_seconds, why_unread
from discovery.spark.source.planning.confirmation import UNCONFIRMED, Confirmation
from discovery.spark.source.planning.guard import Judgement, LossGuard, judge
from discovery.spark.source.planning.offsets import COMMITTED, Offsets, OffsetsJson, Remembered, to_json
from discovery.spark.source.planning.pace import Pace
from discovery.spark.source.planning.plan import OnParked, describe
from discovery.spark.source.planning.replay import refuse_rewinds
from discovery.spark.source.planning.start import is_heard, is_living, is_settled, moved
from discovery.spark.source.planning.tasks import Task, pack, ranges_between
from discovery.spark.source.planning.trigger import PlanState, plan, shape
from discovery.spark.source.waiting import Patience
from discovery.store.topic_ids import TopicIdStore

_log = logging.getLogger("kafka_discovery.source")
_SAY_PARKED_SECONDS = 2.0
"""Least time between two lines about parked partitions: leaders move one by one."""
_LOOKS_PER_SECOND = 5
_IDS_SECONDS = 10.0
"""How long a replay waits for the ids of topics that were read before; nobody may have the right to tell them."""
_HEARD_SECONDS = 6.0
"""How long it waits to hear whether leaders are slow: longer than the first question to one takes."""
_NOTE_AGAIN_SECONDS = 1.0
_FLUSH_SECONDS = 5.0
"""How long a bounded run waits for its last commit to the group before it ends."""
_LONG_TRIGGER_SECONDS = 10.0
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
        refuse_start: RefuseStart | None = None,
        confirmation: Confirmation | None = None,
    ) -> None:
        """Plan over a feed that was started.

        Args:
            feed: Tells what Kafka has.
            options: The user's.
            clock: The system's if None.
            cuts: Opened; None: nothing is ever cut.
            ids: Keeps the topic ids of a named source; None: nobody.
            refuse_start: Looks once at where a checkpoint goes on, or at the batch that it replays, and
                raises where records would be lost, or returns what workers must refuse; None: nobody.
            confirmation: Asks about cut partitions beside planning; on a thread if None.
        """
        self.feed = feed
        self.options = options
        self.cuts = cuts
        pace = Pace(least=options.min_offsets_per_trigger, delay_seconds=options.max_trigger_delay_seconds)
        self.state = PlanState(pace=pace)
        """What was decided so far."""
        self._clock = clock or SystemClock()
        self._patience = Patience(feed, options, self._clock)
        self._ids = ids
        self._saved: Mapping[TopicPartition, str] | None = None
        self._one_batch = False
        self._first: OffsetsJson | None = None
        self._begins: OffsetsJson = {}
        self._begun: LossGuard | None = None
        """Under which ids this run found where a new query begins; None: it was not asked."""
        self._stood: Mapping[str, Any] | None = None
        self._asked: tuple[Any, ...] | None = None
        self._answered: OffsetsJson = {}
        self._parsed = Remembered()
        self._reported: tuple[int, OffsetsJson] | None = None
        self._said_parked: tuple[frozenset[TopicPartition], float] = frozenset(), float("-inf")
        """Which parked partitions the log knows of, and when it may hear of others."""
        self._said_lost: tuple[str, ...] = ()
        """What was accepted last: a partition that is held is judged again and again."""
        self._acked = -1
        self._note_after = float("-inf")
        self._resumed = False
        self._refuse_start = refuse_start
        self.left_behind: LeftBehind = {}
        """What the workers of one query must refuse; never changed in place."""
        self._confirmation = confirmation or Confirmation(feed.refresh)
        self._looked_at, self._rested_seconds = self._clock.monotonic(), 0.0
        """When Spark asked last, and how long after the time before: a query with a long trigger may wait a second."""
        commits = options.commit_offsets and options.group
        self.stands: Offsets = {}
        """Where the sink is: the end of the last batch that Spark recorded, less what was cut."""
        self.planned: Mapping[str, Any] = {}
        """The end of the newest plan, as Spark was given it."""
        self.batch_since: float | None = None
        """When the batch that runs now was made into tasks, in seconds since the epoch; None: none runs."""
        self.batch: tuple[Task, ...] = ()
        """The tasks of the batch that runs now."""
        self.committer = Committer(feed, commits, self._clock) if commits else None

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
            self._begins, self._first = begin(self.feed, self.options, self._patience)
            self._begun = LossGuard().learn(self._parse(self._begins), self.feed.view())
        if self.cuts is not None:
            self.cuts.note_first(self._first)
        return self._first

    def fix_target(self, *, one_batch: bool = False) -> None:
        """Fix where a bounded query ends, once: the end of every partition by a fresh answer.

        Args:
            one_batch: Trigger.Once: it has no second batch, so partitions that cannot be read now get some time.

        Raises:
            KafkaUnreachableError: nobody answered within the budget; carries a verdict per address.

        Runs: driver; blocks <= `startupTimeout`, then <= 60 s, with `one_batch` <= 120 s.
        """
        # What moves is at its end and has nothing to read; only a group's place must stand in the log before its use.
        self._one_batch = one_batch and self.options.stream_start != COMMITTED
        wait_seconds = longest_wait_seconds(self.options)
        if self.state.target is None:
            self._patience.usable_view(lambda v: is_settled(v, self.options.interest))
            view = self._patience.ask(self.feed.refresh, wait_seconds)
            self.state = replace(self.state, target=Target.of(view, self.options.interest.isolation))
            self._asked = None
        if one_batch:
            view = self._patience.wait(lambda v: not self._owed(v), wait_seconds)
            if owed := self._owed(view):
                _log.warning("Trigger.Once reads without %s; the next run reads them", why_unread(sorted(owed), view))

    def _owed(self, view: FeedView) -> frozenset[TopicPartition]:
        """Fix the ends of partitions that can be read by now; return those that cannot."""
        target = None if self.state.target is None else self.state.target.settled(view)
        if target is not self.state.target:
            self.state, self._asked = replace(self.state, target=target), None
        return frozenset() if target is None else target.owed

    def latest_offsets(self, start: Mapping[str, Any], max_rows: int | None) -> Mapping[str, Any]:
        """Say where the next batch ends; the `start` object itself when there is nothing new.

        Raises:
            DataLossError: records are gone, confirmed by a fresh answer, and `failOnDataLoss` is true.
            KafkaUnreachableError: waiting will not help, or a bounded run cannot reach its end.

        Runs: driver; from memory, unless records seem lost, a bounded run waits, or the first call after a restart
        looks for a ledger in Kafka (<= 10 s).
        """
        self.feed.note_plan()
        now = self._clock.monotonic()
        self._rested_seconds, self._looked_at = now - self._looked_at, now
        self.batch_since, self.batch = None, ()
        if self._first is not None:
            self._refuse_start = None  # nothing was read; a first batch that is replayed comes to `tasks` alone
        elif self._refuse_start is not None and is_living(self.feed.view()):
            self._check_start(self._parse(start))
        if self.cuts is not None:
            self.cuts.batch_is_over()
        only_begins = start == self._first != self._begins and not self._one_batch
        # A query that only begins has nothing to take over from an earlier one of its name.
        if only_begins and not self._resumed and self._begun is not None:
            self._resumed = True
            self._keep(self._begun)
        end = self._begins if only_begins else self._next_end(start, max_rows)
        if self.state.target is not None and end is start:
            end = self._wait_for_the_rest(self.state.target, start, max_rows)
            if end is start and self.committer is not None and not self.committer.flush(_FLUSH_SECONDS):
                _log.warning("the last commit to group %s did not go through in time", self.options.group)
        self.planned = end if self.cuts is None else self._noted(self.cuts, start, end)
        return self.planned

    def _noted(self, cuts: Cuts, start: Mapping[str, Any], end: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell Spark of a new query's first batch only once it is in the ledger; until then nothing is new."""
        is_bounded = self.state.target is not None
        deadline = self._clock.monotonic() + longest_wait_seconds(self.options) if is_bounded else None
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
            ends = {tp: p.end_offset(self.options.interest.isolation) for tp, p in view.partitions.items()}
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

        Runs: driver, once per batch; from memory, but for the first after a restart, which looks for a ledger, too.
        """
        self.batch_since = self._clock.wall()
        with without_collection():
            first, last = self._parse(start), self._parse(end)
        view = self._patience.current()
        if not self._resumed:
            # Tasks before any plan: a batch of an earlier run, be it the very first one, for which Spark asks again
            # where the query begins.
            view, foreign = self._before_a_replay(last)
            last = {tp: until for tp, until in last.items() if tp not in foreign}
        self._check_start(first, last)
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

    def _check_start(self, first: Offsets, last: Offsets | None = None) -> None:
        """Look once, when a broker lives, whether a ledger that this start does not use has a cut for it."""
        if self._refuse_start is not None:
            self.left_behind = self._refuse_start(first, last)
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
        self._resume(last, view)
        self._patience.wait(self.state.guard.identifies, _IDS_SECONDS)
        # Tasks are made once: a client for quick leaders never reads from one that takes seconds.
        view = self._patience.wait(lambda v: is_heard(v, last), _HEARD_SECONDS)
        return view, self.state.guard.refuse_recreated(last, view, self.options)

    def _resume(self, start: Offsets, view: FeedView) -> None:
        # Kept before it is judged: the saved view, of which it may come, moves on even if this run fails.
        self._keep(self.state.guard.resume(start, view, {} if self._ids is None else self._ids.load()))

    def _keep(self, guard: LossGuard) -> None:
        """Keep the ids of what the checkpoint has read, so that a restart of a failed query fails again."""
        if guard is self.state.guard:
            return
        self.state = replace(self.state, guard=guard)
        if self._ids is not None and (ids := guard.kept_ids()) != self._saved and self._ids.save(ids):
            self._saved = ids

    def _pack(self, first: Offsets, last: Offsets, view: FeedView) -> tuple[Task, ...]:
        new = [tp for tp in last if tp not in first and last[tp] > 0]
        earliest = {tp: p.start_offset for tp in new if (p := view.partitions.get(tp)) and p.start_offset is not None}
        if self.cuts is not None:
            earliest |= self.cuts.known_starts()
        least, most = self.options.min_partitions, self.options.max_records_per_partition
        with without_collection():
            ranges = ranges_between(first, last, earliest, view.partitions, self.state.guard.topic_ids)
            return pack(ranges, partitions=len(last), min_partitions=least, max_records=most)

    def _next_end(self, start: Mapping[str, Any], max_rows: int | None) -> Mapping[str, Any]:
        view = self._patience.current()
        self._patience.require_live_broker(view)
        asked = (view.version, max_rows, start, self.state.pace.is_due(self._clock.monotonic()))
        if (*asked, self._tick()) != self._asked:
            # The answer is kept only once it is complete: a failed plan must not be answered from memory.
            self._asked = None
            with without_collection():
                self._answered = self._plan(self._parse(start), view, max_rows)
            self._asked = (*asked, self._tick())
            self._stands(start)
            if view.generation != self._acked:
                self.feed.ack(view.generation)
                self._acked = view.generation
            self.feed.report(self._parse(start))
        # The same object where it says the same: a checkpoint of the native source has another order of topics.
        return start if start == self._answered else self._answered

    def _tick(self) -> int | None:
        return int(self._clock.monotonic() * _LOOKS_PER_SECOND) if self.state.is_open else None

    def _plan(self, start: Offsets, view: FeedView, max_rows: int | None) -> OffsetsJson:
        rewinds = self.cuts.rewinds(start) if self.cuts is not None else {}
        if not rewinds:
            ends = self._plan_rest(start, view, max_rows)
        else:
            # First the rewind stands in Spark's log, then loss and retention are judged from there.
            rest = {tp: offset for tp, offset in start.items() if tp not in rewinds}
            self.state = replace(self.state, checked=None)
            ends = {**start, **self._plan_rest(rest, view, max_rows, without=rewinds.keys()), **rewinds}
            self.state = replace(self.state, checked=None)
        end = to_json(ends)
        self._parsed.learn(end, ends)  # the next `start` is this end, as a copy
        return end

    def _plan_rest(
        self,
        start: Offsets,
        view: FeedView,
        max_rows: int | None,
        *,
        without: Collection[TopicPartition] = (),
        suspect: bool = False,
    ) -> Offsets:
        """Plan what does not go back now; a fresh view knows the others again, and they are no new partitions."""
        if not self._resumed:
            self._resumed = True
            if self._begun is None:
                self._resume(start, view)
            else:
                # A target stands for the topic it was fixed on, from its beginning, too.
                self._keep(self._begun if self.state.target is not None else self._begun.behind(start))
        self._keep(self.state.guard.at(start))
        cut_ends, judged = self.cuts.gone_back() if self.cuts is not None else {}, None
        self._confirmation.note(cut_ends, self._clock.monotonic())
        if suspect or cut_ends or shape(view) != self.state.checked:
            view, judged = self._judge(start, view, cut_ends)
        unsure = frozenset[TopicPartition]() if judged is None else judged.unsure
        held = dict.fromkeys(unsure & cut_ends.keys(), UNCONFIRMED)
        if self.cuts is not None:
            held = self.cuts.held(cut_ends.keys() - held.keys(), view) | held
        apart = (unsure - cut_ends.keys()).union(without)
        state, made = plan(
            self.state,
            start,
            view,
            self.options,
            now=self._clock.monotonic(),
            judged=judged,
            held=held,
            apart=apart,
            max_rows=max_rows,
        )
        if made.suspect and judged is None:
            return self._plan_rest(start, view, max_rows, without=without, suspect=True)
        self._keep(state.guard)
        self.state = state
        self._say_parked(made.parked)
        return made.end

    def _judge(self, start: Offsets, view: FeedView, cut_ends: Offsets) -> tuple[FeedView, Judgement]:
        """Look for lost records, and ask Kafka again before one is believed, or a cut partition is read on."""
        now = self._clock.monotonic()
        guard, judged = judge(self.state.guard, start, view, self.options, now=now, cut_ends=cut_ends)
        if (fresh := self._fresh(judged, view, cut_ends)) is not None:
            view = fresh
            guard, judged = judge(guard, start, view, self.options, now=now, cut_ends=cut_ends, is_fresh=True)
        if judged.accepted and judged.accepted != self._said_lost:
            self._said_lost = judged.accepted
            for text in judged.accepted:
                _log.warning("data loss accepted %s", text)
        self._keep(guard)
        return view, judged

    def _fresh(self, judged: Judgement, view: FeedView, cut_ends: Offsets) -> FeedView | None:
        """Return the view with a fresh answer in it; only lost records, bounded runs and long triggers wait for it."""
        if not judged.seems_lost and self.state.target is None and self._rested_seconds < _LONG_TRIGGER_SECONDS:
            fresh = self._confirmation.seen(cut_ends, view)
            if fresh is None and judged.ask_seconds is not None and not view.answered:
                self._confirmation.ask(cut_ends, judged.ask_seconds)
                fresh = self._confirmation.seen(cut_ends, view)
            return fresh
        if judged.ask_seconds is None:
            return None
        self._confirmation.forget()
        try:
            return self.feed.refresh(judged.ask_seconds)
        except KafkaUnreachableError as error:
            if judged.seems_lost:
                _log.warning("records seem lost, but nobody can confirm it now: %s", error)
            return None

    def _parse(self, start: Mapping[str, Any]) -> Offsets:
        return self._parsed.offsets(start, what=CHECKPOINT)

    def _say_parked(self, parked: Mapping[TopicPartition, str]) -> None:
        now, (known, after) = self._clock.monotonic(), self._said_parked
        parked = {tp: why for tp, why in parked.items() if why != ID_ASKED or tp in known}
        if parked.keys() == known or now < after:
            return
        self._said_parked = frozenset(parked), now + _SAY_PARKED_SECONDS
        holds = parked and self.options.on_parked is OnParked.HOLD
        text = describe(parked.items()) if parked else "none"
        _log.warning("partitions parked: %s%s", text, ", the query holds (onParked=hold)" if holds else "")

    def _wait_for_the_rest(self, target: Target, start: Mapping[str, Any], max_rows: int | None) -> Mapping[str, Any]:
        """Nothing is readable now: that is the end only if every partition has reached its target."""
        wait_seconds = longest_wait_seconds(self.options)
        deadline = self._clock.monotonic() + wait_seconds
        while True:
            self._owed(self.feed.view())
            end, view = self._next_end(start, max_rows), self.feed.view()
            target = self.state.target or target
            missing = target.missing(self._parse(start), view, gone=self.state.guard.gone())
            if end is not start or not missing:
                return end
            now = self._clock.monotonic()
            if now >= deadline:
                holds = self.options.on_parked is OnParked.HOLD
                others = "nothing else is read meanwhile (onParked=hold)" if holds else "everything else is read"
                raise KafkaUnreachableError(
                    f"Trigger.AvailableNow cannot reach its end: waited {wait_seconds:g} s for "
                    f"{why_unread(missing, view, self.state.parked)}; {others}; run it again when they can be read"
                )
            self.feed.wait(view.version, min(deadline - now, 1.0))
