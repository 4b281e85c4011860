"""What the driver's reader decides from the feed's memory: first offsets, next end, tasks, the end of a bounded run."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from discovery.core.clock import Clock, SystemClock
from discovery.core.errors import ConfigError, DataLossError, KafkaUnreachableError
from discovery.core.model import BrokerAddress, TopicId, TopicPartition
from discovery.feed.base import FeedView, PartitionFeed, verdicts
from spark_jobs.source.follow import follows
from spark_jobs.source.losses import Loss, LossKind, find_losses, summarize
from spark_jobs.source.offsets import Offsets, OffsetsJson, parse_offsets, same_or, to_json
from spark_jobs.source.options import SourceOptions
from spark_jobs.source.pack import Task, led_ranges, pack
from spark_jobs.source.plan import Limits, describe, plan_end, unfinished
from spark_jobs.source.start import explain, first_offsets, is_living, is_settled, is_usable

_log = logging.getLogger("kafka_discovery.source")
_SETTLE_SECONDS = 1.0
"""How long a start waits for leaders that have not told their offsets, once others have."""
_AVAILABLE_NOW_SECONDS = 60.0
"""How long a bounded run waits for a partition that cannot be read; a shorter `startupTimeout` wins."""
_REFRESH_SECONDS = 10.0
_CONFIRM_SECONDS = 5.0
_CONFIRM_AGAIN_SECONDS = 10.0
_SAY_AGAIN_SECONDS = 10.0
CHECKPOINT = "the checkpoint's offsets"


class Planner:
    """One query's memory between Spark's calls. One thread; owns no thread, socket or file."""

    def __init__(self, feed: PartitionFeed, options: SourceOptions, clock: Clock | None = None) -> None:
        """Plan over a feed that was started."""
        self.feed = feed
        self.options = options
        self.plans_made = 0
        """How often a plan was really computed, not answered from the last one."""
        self._clock = clock or SystemClock()
        self._isolation = options.interest.isolation
        self._began = self._clock.monotonic()
        self._lived = False
        self._first: OffsetsJson | None = None
        self._asked: tuple[Any, ...] | None = None
        self._answered: OffsetsJson = {}
        self._parsed: tuple[Mapping[str, Any], Offsets] | None = None
        self._reported: tuple[int, OffsetsJson] | None = None
        self._topic_ids: dict[TopicPartition, TopicId] = {}
        self._accepted: set[tuple[TopicPartition, LossKind]] = set()
        self._confirm_after = float("-inf")
        self._parked: frozenset[TopicPartition] = frozenset()
        self._target: Offsets | None = None
        self._owed: frozenset[TopicPartition] = frozenset()
        self._acked = -1
        self._checked: tuple[Any, ...] | None = None

    @property
    def available_now(self) -> bool:
        """Whether the query ends at fixed offsets."""
        return self._target is not None

    # -- start --------------------------------------------------------------------------------------------------

    def initial_offsets(self) -> OffsetsJson:
        """Say where a new query begins; the same at every call.

        Raises:
            KafkaUnreachableError: nobody answered within `startupTimeout`; carries a verdict per address.
            ConfigError: the subscribed topics do not exist, or `startingOffsets` names other partitions.

        Runs: driver; blocks <= `startupTimeout`.
        """
        if self._first is None:
            view = self._usable_view(lambda v: is_settled(v, self.options.interest))
            self._first = to_json(first_offsets(view, self.options.interest, self.options.starting))
        return self._first

    def _usable_view(self, is_enough: Callable[[FeedView], bool]) -> FeedView:
        """Wait until the feed can start a query, then a little longer for what is still on its way."""
        interest = self.options.interest
        view = self._await(lambda v: is_usable(v, interest), self.options.startup_timeout_seconds, self._say_waiting)
        if not is_usable(view, interest):
            raise self._no_start(view)
        self._lived = True
        return self._await(is_enough, _SETTLE_SECONDS)

    def _no_start(self, view: FeedView) -> KafkaUnreachableError | ConfigError:
        waited = self.options.startup_timeout_seconds
        text = f"startupTimeout: after {waited:g} s {explain(view, self.options.interest)}"
        return ConfigError(text) if is_living(view) else KafkaUnreachableError(text)

    def _expect_life(self, view: FeedView) -> None:
        """After a restart nothing is planned before a broker answers; that may take `startupTimeout` at most."""
        if self._lived or is_living(view):
            self._lived = True
        elif self._clock.monotonic() - self._began >= self.options.startup_timeout_seconds:
            raise self._no_start(view)

    def _await(
        self,
        condition: Callable[[FeedView], bool],
        timeout_seconds: float,
        say: Callable[[FeedView], None] = lambda _: None,
    ) -> FeedView:
        """Return the first view that meets the condition, else the last one; `say` hears of it every 10 s."""
        now = self._clock.monotonic()
        deadline, say_at = now + timeout_seconds, now + min(_SAY_AGAIN_SECONDS, timeout_seconds / 2)
        view = self._current()
        while not condition(view) and now < deadline:
            if now >= say_at:
                say(view)
                say_at = now + _SAY_AGAIN_SECONDS
            self.feed.wait(view.version, min(deadline, say_at) - now)
            view, now = self._current(), self._clock.monotonic()
        return view

    def _current(self) -> FeedView:
        view = self.feed.view()
        if view.fatal is not None:
            raise KafkaUnreachableError(f"{view.fatal}; {verdicts(view)}")
        return view

    def _say_waiting(self, view: FeedView) -> None:
        _log.warning("the query cannot start yet: %s", explain(view, self.options.interest))

    # -- normal triggers ----------------------------------------------------------------------------------------

    def latest_offsets(self, start: Mapping[str, Any], max_rows: int | None) -> Mapping[str, Any]:
        """Say where the next batch ends; the `start` object itself when there is nothing new.

        Raises:
            DataLossError: records are gone, confirmed by a fresh answer, and `failOnDataLoss` is true.
            KafkaUnreachableError: waiting will not help, or a bounded run cannot reach its end.

        Runs: driver; from memory, unless records seem lost or a bounded run waits.
        """
        end = self._next_end(start, max_rows)
        if self._target is not None and end is start:
            return self._wait_for_the_rest(start, max_rows)
        return end

    def _next_end(self, start: Mapping[str, Any], max_rows: int | None) -> Mapping[str, Any]:
        view = self._current()
        self._expect_life(view)
        asked = (view.version, max_rows, start)
        if asked != self._asked:
            # The answer is kept only once it is complete: a failed plan must not be answered from memory.
            self._asked = None
            self._answered = self._plan(self._parse(start), view, max_rows)
            self._asked = asked
            self._ack(view)
        return same_or(start, self._answered)

    def _plan(self, start: Offsets, view: FeedView, max_rows: int | None) -> OffsetsJson:
        self.plans_made += 1
        resets: Offsets = {}
        if (shape := (view.generation, view.missing_topics)) != self._checked:
            self._checked = None
            view, resets, settled = self._handle_losses(start, view)
            self._checked = shape if settled else None
            self._learn(view)
        plan = plan_end(start, view.partitions, self._limits(max_rows), resets=resets)
        if plan.suspect and not resets:
            view, resets, _ = self._handle_losses(start, view)
            plan = plan_end(start, view.partitions, self._limits(max_rows), resets=resets)
        self._say_parked(plan.parked)
        end = to_json(plan.end)
        # The next `start` is this end, as a copy: an equal comparison saves parsing it.
        self._parsed = (end, plan.end)
        return end

    def _limits(self, max_rows: int | None) -> Limits:
        return Limits(
            isolation=self._isolation,
            max_offsets=max_rows,
            on_parked=self.options.on_parked,
            target=self._target,
        )

    def _parse(self, start: Mapping[str, Any]) -> Offsets:
        if self._parsed is None or self._parsed[0] != start:
            self._parsed = (start, parse_offsets(start, what=CHECKPOINT))
        return self._parsed[1]

    def _ack(self, view: FeedView) -> None:
        if view.generation != self._acked:
            self.feed.ack(view.generation)
            self._acked = view.generation

    def _learn(self, view: FeedView) -> None:
        """Remember under which id each partition is read; ids change with the generation alone."""
        for tp, partition in view.partitions.items():
            if partition.topic_id is not None:
                self._topic_ids.setdefault(tp, partition.topic_id)

    def _say_parked(self, parked: Mapping[TopicPartition, str]) -> None:
        if parked.keys() == self._parked:
            return
        self._parked = frozenset(parked)
        hold = f", the query holds (onParked={self.options.on_parked.value})" if self._holds else ""
        text = describe(parked.items()) if parked else "none"
        _log.warning("partitions parked: %s%s", text, hold if parked else "")

    @property
    def _holds(self) -> bool:
        return self.options.on_parked.value == "hold"

    def report(self) -> OffsetsJson | None:
        """Return the known end of every followed partition, for the query's progress.

        Runs: driver; from memory.
        """
        view = self.feed.view()
        if self._reported is None or self._reported[0] != view.version:
            ends = {tp: p.end_offset(self._isolation) for tp, p in view.partitions.items()}
            self._reported = (view.version, to_json({tp: end for tp, end in ends.items() if end is not None}))
        return self._reported[1] or None

    # -- data loss ----------------------------------------------------------------------------------------------

    def _losses(self, start: Offsets, view: FeedView) -> tuple[Loss, ...]:
        found = find_losses(
            start,
            view,
            isolation=self._isolation,
            topic_ids=self._topic_ids,
            followed={tp.topic: follows(self.options.interest, tp.topic) for tp in start if tp not in view.partitions},
        )
        return tuple(loss for loss in found if (loss.topic_partition, loss.kind) not in self._accepted)

    def _handle_losses(self, start: Offsets, view: FeedView) -> tuple[FeedView, Offsets, bool]:
        """Act only on losses that a fresh answer confirms; until then such a partition stays where it is.

        Returns:
            The newest view, where partitions are set to, and whether nothing is left to confirm.
        """
        if not self._losses(start, view):
            return view, {}, True
        if self._clock.monotonic() < self._confirm_after:
            return view, {}, False
        self._confirm_after = self._clock.monotonic() + _CONFIRM_AGAIN_SECONDS
        try:
            view = self.feed.refresh(_CONFIRM_SECONDS)
        except KafkaUnreachableError as error:
            _log.warning("records seem lost, but nobody can confirm it now: %s", error)
            return view, {}, False
        losses = self._losses(start, view)
        self._confirm_after = float("-inf")
        if losses and self.options.fail_on_data_loss:
            raise DataLossError(summarize(losses))
        return view, self._accept(losses, view), True

    def _accept(self, losses: tuple[Loss, ...], view: FeedView) -> Offsets:
        """Go on behind lost records; returns where partitions are set to."""
        resets: Offsets = {}
        for loss in losses:
            _log.warning("data loss accepted (failOnDataLoss=false): %s", loss.text)
            tp, known = loss.topic_partition, view.partitions.get(loss.topic_partition)
            if loss.kind in {LossKind.GONE, LossKind.AGED_OUT}:
                # Nothing to set: a range that begins too early is cut by the worker, which knows the newest start.
                self._accepted.add((tp, loss.kind))
            elif known is not None and (place := _after_loss(loss, view, self.options)) is not None:
                resets[tp] = place
                if known.topic_id is not None:
                    self._topic_ids[tp] = known.topic_id
                if self._target is not None:
                    self._target[tp] = known.end_offset(self._isolation) or place
        return resets

    # -- tasks --------------------------------------------------------------------------------------------------

    def tasks(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> tuple[tuple[Task, ...], tuple[BrokerAddress, ...]]:
        """Cut a planned batch into tasks and name the brokers that are alive now.

        The first call after a restart replays a batch: then it waits for a living broker as a start does.

        Raises:
            KafkaUnreachableError: nobody answered within `startupTimeout`.
            DataLossError: the plan goes back although `failOnDataLoss` is true.

        Runs: driver, once per batch.
        """
        first, last = parse_offsets(start, what=CHECKPOINT), parse_offsets(end, what=CHECKPOINT)
        view = self._current()
        if not self._lived:
            view = self._usable_view(lambda v: all(tp in v.partitions for tp in last))
        self._refuse_rewinds(first, last)
        new = [tp for tp in last if tp not in first and last[tp] > 0]
        earliest = {tp: p.start_offset for tp in new if (p := view.partitions.get(tp)) and p.start_offset is not None}
        leaders = {tp: p.leader_id for tp, p in view.partitions.items()}
        return pack(
            led_ranges(first, last, earliest, leaders), min_partitions=self.options.min_partitions
        ), view.bootstrap

    def _refuse_rewinds(self, first: Offsets, last: Offsets) -> None:
        back = {tp: (first[tp], until) for tp, until in last.items() if until < first.get(tp, until)}
        if back and self.options.fail_on_data_loss:
            losses = tuple(
                Loss(
                    kind=LossKind.SHRUNK,
                    topic_partition=tp,
                    text=f"the checkpoint plans {tp} back from offset {a} to {b}: the topic was truncated or recreated",
                )
                for tp, (a, b) in back.items()
            )
            raise DataLossError(summarize(losses))

    # -- Trigger.AvailableNow -----------------------------------------------------------------------------------

    def fix_target(self) -> None:
        """Fix where the query ends: the end of every partition by a fresh answer.

        Partitions that cannot be read are owed: the query reads the others first, then waits for them.

        Raises:
            KafkaUnreachableError: nobody answered within the budget; carries a verdict per address.

        Runs: driver, once; blocks <= `startupTimeout`, then <= 60 s.
        """
        self._usable_view(lambda v: is_settled(v, self.options.interest))
        deadline = self._clock.monotonic() + self._bounded_seconds
        view = self._refreshed(deadline)
        ends = {tp: _readable_end(view, tp, self.options) for tp in view.partitions}
        self._target = {tp: end for tp, end in ends.items() if end is not None}
        self._owed = frozenset(tp for tp, end in ends.items() if end is None)
        self._asked = None

    @property
    def _bounded_seconds(self) -> float:
        return min(_AVAILABLE_NOW_SECONDS, self.options.startup_timeout_seconds)

    def _refreshed(self, deadline: float) -> FeedView:
        while True:
            remaining = deadline - self._clock.monotonic()
            try:
                return self.feed.refresh(max(min(_REFRESH_SECONDS, remaining), 0.1))
            except KafkaUnreachableError:
                if self._clock.monotonic() >= deadline:
                    raise
                self._await(lambda _: False, min(1.0, max(deadline - self._clock.monotonic(), 0.0)))

    def _wait_for_the_rest(self, start: Mapping[str, Any], max_rows: int | None) -> Mapping[str, Any]:
        """Nothing is readable now: that is the end only if every partition has reached its target."""
        deadline = self._clock.monotonic() + self._bounded_seconds
        while True:
            self._settle_debts()
            end = self._next_end(start, max_rows)
            missing = self._missing(start)
            if end is not start or not missing:
                return end
            now = self._clock.monotonic()
            if now >= deadline:
                raise KafkaUnreachableError(self._why_unfinished(missing))
            view = self.feed.view()
            self.feed.wait(view.version, min(deadline - now, 1.0))

    def _settle_debts(self) -> None:
        """Fix the target of a partition that can be read by now."""
        if not self._owed or self._target is None:
            return
        view = self.feed.view()
        for tp in self._owed:
            end = _readable_end(view, tp, self.options)
            if end is not None:
                self._target[tp] = end
                self._owed -= {tp}
                self._asked = None

    def _missing(self, start: Mapping[str, Any]) -> tuple[TopicPartition, ...]:
        accepted = {tp for tp, kind in self._accepted if kind is LossKind.GONE}
        behind = unfinished(self._parse(start), self._target or {}, self.feed.view().partitions)
        return tuple(tp for tp in (*behind, *sorted(self._owed)) if tp not in accepted)

    def _why_unfinished(self, missing: tuple[TopicPartition, ...]) -> str:
        view = self.feed.view()
        reasons = [
            (tp, (known.parked_reason if (known := view.partitions.get(tp)) else None) or "it is not there")
            for tp in missing
        ]
        return (
            f"Trigger.AvailableNow cannot reach its end: waited {self._bounded_seconds:g} s for {describe(reasons)}; "
            "everything else is read; run it again when their leaders are back"
        )


def _readable_end(view: FeedView, tp: TopicPartition, options: SourceOptions) -> int | None:
    partition = view.partitions.get(tp)
    if partition is None or partition.parked_reason is not None:
        return None
    return partition.end_offset(options.interest.isolation)


def _after_loss(loss: Loss, view: FeedView, options: SourceOptions) -> int | None:
    """A recreated topic is read from its beginning; a truncated one, as the native source does, from its end."""
    partition = view.partitions[loss.topic_partition]
    if loss.kind is LossKind.RECREATED:
        return partition.start_offset
    return partition.end_offset(options.interest.isolation)
