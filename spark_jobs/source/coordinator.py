"""The driver's desk for cuts: the plan in force, the records, and the ledger that keeps them. Thread-safe."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from discovery.core.errors import ArbiterError, StateError
from discovery.core.model import TopicPartition
from spark_jobs.source.cut import (
    CutRecord,
    Plan,
    PlannedRange,
    advance,
    effective_end,
    open_plan,
    settle,
)
from spark_jobs.source.ledger import Entry, Incarnation, Ledger, LedgerState, fold
from spark_jobs.source.offsets import Offsets, OffsetsJson
from spark_jobs.source.plan import describe

_log = logging.getLogger("kafka_discovery.source")
_MOST_DOUBLINGS = 6


class RangeCoordinator:
    """Settles where ranges end. The planner opens and closes plans; workers ask through a `CoordinatorServer`.

    Every change is in the ledger before it is in memory, and in memory before anybody hears of it.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Name the ledger; no I/O."""
        self._ledger = ledger
        self._lock = threading.Lock()
        self._state = LedgerState()
        self._pending: dict[TopicPartition, CutRecord] = {}
        self._plan: Plan | None = None
        self._number = 0
        self._doubtful: dict[TopicPartition, CutRecord] = {}
        self._said: set[tuple[int, TopicPartition]] = set()
        self._fruitless: dict[TopicPartition, int] = {}
        """How often in a row a partition was cut before its first record."""

    def open(self) -> None:
        """Become the holder of the ledger and read it.

        Raises:
            StateError: somebody else holds it, or it is damaged.

        Runs: driver, once; blocks up to 15 s for the last holder to end.
        """
        self._state = self._ledger.open()
        self._pending = self._state.pending()
        self._number = self._state.last_plan()

    def close(self) -> None:
        """Answer nobody any more and give the ledger back."""
        with self._lock:
            self._plan = None
            self._ledger.close()

    # -- the planner's side -------------------------------------------------------------------------------------

    def begin(self, start: OffsetsJson, end: OffsetsJson) -> None:
        """Open a new incarnation with its first batch; the records of earlier ones are out of force.

        Runs: driver, once for a new query; blocks for a write of the ledger.
        """
        with self._lock:
            last = self._state.incarnation.number if self._state.incarnation else 0
            self._append([Incarnation(number=last + 1, start=start, end=end)])
            self._pending = {}

    def set_first_end(self, end: OffsetsJson) -> None:
        """Note where the first batch of this incarnation ends, which began without anything to read.

        Runs: driver, at most once for a new query; blocks for a write of the ledger.
        """
        with self._lock:
            self._append([replace(self.resume(), end=end)])

    def resume(self) -> Incarnation:
        """Return the incarnation that a checkpoint goes on with.

        Raises:
            StateError: the ledger is empty or was not there: cuts of that checkpoint may be forgotten.
        """
        if self._state.incarnation is None:
            raise StateError(
                f"sourceId: the checkpoint is not new, but no ledger of its cuts is at {self._ledger.describe()}; "
                "bring the ledger back (stateDir must outlive the driver's host), or, if this source never ran with "
                "this sourceId, adopt the checkpoint: kafka-discovery checkpoint adopt"
            )
        return self._state.incarnation

    def close_plan(self) -> None:
        """Settle nothing more: the batch is committed, and who still reads it is a zombie."""
        if self._plan is not None:
            with self._lock:
                self._plan = None

    def advance(self, start: Mapping[TopicPartition, int]) -> Offsets:
        """Return the partitions that must go back now; note those that have gone back.

        Raises:
            StateError: the checkpoint contradicts a record, or the ledger cannot be written.

        Runs: driver; from memory, but for one write of the ledger after each rewind.
        """
        with self._lock:
            if self._doubtful:
                self._keep(list(self._doubtful.values()))
            found = advance(start, self._pending)
            if found.applied:
                self._keep(found.applied)
            self._say_rewinds(found.rewinds)
            return found.rewinds

    def open_plan(
        self,
        ranges: Mapping[TopicPartition, PlannedRange],
        *,
        replayed: bool,
        whole: Collection[TopicPartition] = (),
    ) -> Plan:
        """Put a plan in force; all others are stale from now on.

        Raises:
            StateError: the plan contradicts a record.
        """
        with self._lock:
            self._number += 1
            incarnation = self.resume().number
            self._plan = open_plan(
                self._number, ranges, self._pending, incarnation=incarnation, replayed=replayed, whole=whole
            )
            return self._plan

    def current(self) -> Plan | None:
        """Return the plan in force with all that is settled by now."""
        return self._plan

    def pending(self) -> Mapping[TopicPartition, CutRecord]:
        """Return the records in force."""
        return self._pending

    def patience_factor(self, partitions: Collection[TopicPartition]) -> int:
        """Return by what to lengthen the wait before a cut, so that a slow leader is not cut for ever: 1 to 64."""
        times = max((self._fruitless.get(tp, 0) for tp in partitions), default=0)
        return int(2 ** min(times, _MOST_DOUBLINGS))

    def is_rewind(self, tp: TopicPartition, planned: int, until: int) -> bool:
        """Tell whether a range that goes back does so because of a cut."""
        return any(r.topic_partition == tp and (r.end, r.cut) == (planned, until) for r in self._state.records.values())

    def delivered(self, end: Mapping[TopicPartition, int]) -> Offsets:
        """Return what was really delivered up to a batch's end offsets."""
        return effective_end(end, self._pending)

    # -- the workers' side --------------------------------------------------------------------------------------

    def known(self, number: int, partitions: Collection[TopicPartition]) -> Offsets:
        """Return the ends that are settled.

        Raises:
            ArbiterError: the plan is not in force.
        """
        with self._lock:
            plan = self._in_force(number)
            return {tp: plan.settled[tp] for tp in partitions if tp in plan.settled}

    def decide(self, number: int, proposed: Mapping[TopicPartition, int]) -> Offsets:
        """Settle ends, once for ever; the first proposal of a range wins.

        Raises:
            ArbiterError: the plan is not in force, or a proposal lies outside of it.
            StateError: a cut could not be made durable; nothing is settled, ask again.

        Runs: a thread of the server; blocks for a write of the ledger when something is cut.
        """
        with self._lock:
            plan = self._in_force(number)
            # A record that may be durable must not be decided otherwise.
            doubted = {tp: self._doubtful[tp].cut for tp in proposed if tp in self._doubtful}
            try:
                settlement = settle(plan, {**proposed, **doubted})
            except StateError as error:
                raise ArbiterError(str(error)) from error
            if settlement.cuts:
                self._keep(settlement.cuts)
                _say_cuts(settlement.cuts)
            self._plan = settlement.plan
            self._count_fruitless(settlement.ends, plan)
            return dict(settlement.ends)

    def _count_fruitless(self, ends: Mapping[TopicPartition, int], plan: Plan) -> None:
        for tp, end in ends.items():
            if end == plan.ranges[tp].start:
                self._fruitless[tp] = self._fruitless.get(tp, 0) + 1
            else:
                self._fruitless.pop(tp, None)

    def _in_force(self, number: int) -> Plan:
        if self._plan is None or self._plan.number != number:
            raise ArbiterError(f"plan {number} is not in force any more: its batch is over")
        return self._plan

    def _keep(self, records: Collection[CutRecord]) -> None:
        self._doubtful |= {r.topic_partition: r for r in records if not r.applied}
        self._append(list(records))
        for record in records:
            self._doubtful.pop(record.topic_partition, None)
            if record.applied:
                self._pending.pop(record.topic_partition, None)
            else:
                self._pending[record.topic_partition] = record

    def _append(self, entries: list[Entry]) -> None:
        self._ledger.append(entries)
        self._state = fold(self._state, entries)

    def _say_rewinds(self, rewinds: Offsets) -> None:
        fresh = [self._pending[tp] for tp in rewinds if (self._pending[tp].plan, tp) not in self._said]
        if fresh:
            self._said.update((r.plan, r.topic_partition) for r in fresh)
            _log.warning("set back to where they were cut: %s", _list(fresh, lambda r: f"{r.end} -> {r.cut}"))


def _say_cuts(cuts: Collection[CutRecord]) -> None:
    text = _list(cuts, lambda r: f"at offset {r.cut} of [{r.start}, {r.end})")
    _log.warning("cut, since nobody could be read from: %s; the batch ends without the rest, which comes later", text)


def _list(records: Collection[CutRecord], show: Callable[[CutRecord], str]) -> str:
    return describe([(record.topic_partition, show(record)) for record in records])
