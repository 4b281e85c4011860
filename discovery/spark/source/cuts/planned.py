"""What the planner knows of cuts: the coordinator, when a plan is new, and which tasks may ask."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from discovery.core.errors import StateError
from discovery.core.model import BrokerId, TopicPartition
from discovery.feed.base import FeedView
from discovery.spark.fetch import FetchRange
from discovery.spark.source.cuts.arbiter import Ticket
from discovery.spark.source.cuts.coordinator import RangeCoordinator
from discovery.spark.source.cuts.rules import Plan, PlannedRange
from discovery.spark.source.cuts.server import CoordinatorServer
from discovery.spark.source.options.cuts import CutOptions
from discovery.spark.source.planning.offsets import Offsets, OffsetsJson, parse_offsets
from discovery.spark.source.planning.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packed:
    """An active plan as tasks, so that every scan of the batch gets the same."""

    start: Mapping[str, Any]
    end: Mapping[str, Any]
    plan: Plan
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutReport:
    """What cuts and workers have shown in this run."""

    cuts: int = 0
    rewinds: int = 0
    settled: frozenset[TopicPartition] = frozenset()
    """Partitions of the running batch that no task waits for any more: read to their ends, or cut, since it began."""
    plain_engine: str = ""
    """Why a worker reads with the plain engine although the fast one was wanted."""
    ledger_trouble: str = ""
    """Why the ledger cannot be written, so that nothing is cut and what was cut is not read on; empty: it can."""


class Cuts:
    """Knows where a run stands between Spark's calls. One thread, the planner's."""

    def __init__(self, coordinator: RangeCoordinator, server: CoordinatorServer, options: CutOptions) -> None:
        """Join them; opens nothing."""
        self._coordinator = coordinator
        self._server = server
        self._options = options
        self._first: OffsetsJson | None = None
        """Where a new query begins, until its first batch is planned."""
        self._resumed = False
        self._empty_first: OffsetsJson | None = None
        """Where this run began a new query with a plan without anything new, until there is one with something."""
        self._returned: Mapping[str, Any] | None = None
        self._packed: _Packed | None = None

    def open(self) -> None:
        """Read the ledger and listen.

        Raises:
            StateError: the ledger is another's or damaged, or the port cannot be had.

        Runs: driver, once; blocks up to 15 s.
        """
        self._coordinator.open()
        self._server.start()

    def close(self) -> None:
        """Answer nobody any more and give the ledger back."""
        self._server.stop()
        self._coordinator.close()

    # -- planning -----------------------------------------------------------------------------------------------

    def note_first(self, first: OffsetsJson) -> None:
        """Hear that Spark asked where a new query begins: it is new, or its very first batch is replayed."""
        if not self._resumed:
            self._first = first

    def batch_is_over(self) -> None:
        """Hear that the next batch is to be planned, so that the last one is committed."""
        self._packed = None
        self._coordinator.close_plan()

    def rewinds(self, start: Offsets) -> Offsets:
        """Return the partitions that must go back now, whatever limits say.

        Raises:
            StateError: the checkpoint contradicts the ledger, or the ledger is missing or cannot be written.
        """
        if self._first is not None:
            return {}
        self._resume()
        return self._coordinator.advance(start)

    def gone_back(self) -> Offsets:
        """Return where cut ranges had been planned to end that are rewound and not read on yet."""
        return {} if self._first is not None else self._coordinator.gone_back()

    def held(self, confirmed: Collection[TopicPartition], view: FeedView) -> dict[TopicPartition, str]:
        """Let partitions that were cut be read on; return those that must not be planned now, with reasons.

        Args:
            confirmed: Rewound partitions that are known to have the records that were cut off, or whose loss is
                accepted.
            view: Who leads now.

        Raises:
            StateError: somebody else holds the ledger.
        """
        if self._first is not None:
            return {}
        self._coordinator.read_on(confirmed)
        return self._coordinator.held(partial(_leader, view))

    def note_planned(self, end: Mapping[str, Any]) -> None:
        """Note what Spark is given; the first batch of a new query begins an incarnation.

        Raises:
            StateError: the ledger cannot be written.
        """
        if self._first is not None:
            self._coordinator.begin(self._first, dict(end))
            self._empty_first = self._first if end == self._first else None
            self._first, self._resumed = None, True
        elif self._empty_first is not None and end != self._empty_first:
            # Spark may or may not log a plan without anything new: the first batch that holds rows counts.
            self._coordinator.set_first_end(dict(end))
            self._empty_first = None
        self._returned = end

    def true_start(self, start: Offsets, end: Mapping[str, Any]) -> Offsets:
        """Return where a batch begins: the very first one, replayed, where it began then.

        Raises:
            StateError: the ledger is missing, or it is of another checkpoint.
        """
        if self._resumed or self._first is None:
            self._resume()
            return start
        incarnation = self._coordinator.resume()
        if incarnation.end is not None and incarnation.end != end:
            raise StateError(
                "sourceId: the checkpoint's first batch is not the one in the ledger: another query uses this "
                "sourceId; give each source its own"
            )
        self._first, self._resumed = None, True
        return start if incarnation.start is None else parse_offsets(incarnation.start, what="the ledger")

    def is_rewind(self, tp: TopicPartition, planned: int, until: int) -> bool:
        """Tell whether a range that goes back does so because of a cut."""
        return self._coordinator.is_rewind(tp, planned, until)

    def known_starts(self) -> Offsets:
        """Return where cut ranges began: for partitions that were new in their batch nobody else knows."""
        return {tp: record.start for tp, record in self._coordinator.pending().items()}

    def report(self) -> CutReport:
        """Say how often ranges of this run were cut and went back. Any thread."""
        return CutReport(
            cuts=self._coordinator.cuts_made,
            rewinds=self._coordinator.rewinds_made,
            settled=self._over(),
            plain_engine=self._coordinator.plain_engine,
            ledger_trouble=self._coordinator.trouble,
        )

    def _over(self) -> frozenset[TopicPartition]:
        """What was settled when the plan was made is read by tasks that never tell when they are done."""
        plan, packed = self._coordinator.current(), self._packed
        if plan is None or packed is None:
            return frozenset()
        return frozenset(tp for tp in plan.settled.keys() - packed.plan.settled.keys() if plan.is_over(tp))

    def delivered(self, end: Offsets) -> Offsets:
        """Return what was really delivered up to a batch's end offsets."""
        return self._coordinator.delivered(end)

    # -- tasks --------------------------------------------------------------------------------------------------

    def activate(
        self,
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        view: FeedView,
        make_tasks: Callable[[], tuple[Task, ...]],
        *,
        hold: bool,
    ) -> tuple[tuple[Task, ...], Ticket | None]:
        """Make the tasks of a batch, or return those of its other scan, shortened by what was cut since.

        Returns:
            The tasks, and how they ask; None where nothing is left to settle.

        Raises:
            StateError: the plan contradicts a record.
        """
        packed = self._packed
        if packed is None or (packed.start, packed.end) != (start, end):
            packed = self._new_plan(start, end, view, make_tasks(), hold=hold)
        plan = self._coordinator.current() or packed.plan
        return _shortened(packed.tasks, plan), self._ticket(plan)

    def _new_plan(
        self, start: Mapping[str, Any], end: Mapping[str, Any], view: FeedView, tasks: tuple[Task, ...], *, hold: bool
    ) -> _Packed:
        ranges = planned_ranges([r for task in tasks for r in task])
        leaders = {tp: _leader(view, tp) for tp in ranges}
        plan = self._coordinator.open_plan(
            ranges,
            replayed=end != self._returned,
            whole=ranges if hold else (),
            leaders=leaders,
            pieces=_pieces([r for task in tasks for r in task]),
        )
        self._packed = _Packed(start=start, end=end, plan=plan, tasks=tasks)
        return self._packed

    def _ticket(self, plan: Plan) -> Ticket | None:
        undecided = frozenset(plan.ranges.keys() - plan.settled.keys())
        # A checkpoint of another query, or an old one, is known by what workers tell, so one task at least must ask.
        introduce = not self._coordinator.is_introduced()
        if not undecided and not introduce:
            return None
        return Ticket(
            host=self._options.host,
            port=self._server.port,
            token=self._server.token,
            plan=plan.number,
            cut_after_seconds=self._options.after_seconds,
            slow=self._coordinator.patience_factors(undecided),
            undecided=undecided,
            split=frozenset(plan.pieces),
            introduce=introduce,
        )

    def _resume(self) -> None:
        if not self._resumed:
            self._coordinator.resume()
            self._resumed = True


def planned_ranges(ranges: Sequence[FetchRange]) -> dict[TopicPartition, PlannedRange]:
    """Join the pieces of each partition again.

    Runs: anywhere (pure).
    """
    joined: dict[TopicPartition, PlannedRange] = {}
    for r in ranges:
        tp, known = r.topic_partition, joined.get(r.topic_partition)
        joined[tp] = PlannedRange(
            start=r.start_offset if known is None else min(known.start, r.start_offset),
            end=r.end_offset if known is None else max(known.end, r.end_offset),
            topic_id=r.topic_id,
        )
    return joined


def _pieces(ranges: Sequence[FetchRange]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return where the pieces of split partitions start."""
    starts: dict[TopicPartition, list[int]] = {}
    for r in ranges:
        starts.setdefault(r.topic_partition, []).append(r.start_offset)
    return {tp: tuple(sorted(found)) for tp, found in starts.items() if len(found) > 1}


def _leader(view: FeedView, tp: TopicPartition) -> BrokerId | None:
    return view.partitions[tp].leader_id if tp in view.partitions else None


def _shortened(tasks: tuple[Task, ...], plan: Plan) -> tuple[Task, ...]:
    cuts = {tp: end for tp, end in plan.settled.items() if tp in plan.ranges and end < plan.ranges[tp].end}
    if not cuts:
        return tasks
    shorter = [tuple(_until(r, cuts.get(r.topic_partition, r.end_offset)) for r in task) for task in tasks]
    kept = [tuple(r for r in task if r.start_offset < r.end_offset) for task in shorter]
    return tuple(task for task in kept if task)


def _until(range_: FetchRange, end: int) -> FetchRange:
    return replace(range_, end_offset=min(range_.end_offset, end))
