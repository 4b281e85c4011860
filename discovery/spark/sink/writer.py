"""One task of a sink: the lanes protocol, step by step.

    0  look at the marker, while a new producer connects: an attempt out of the past must not fence the present
    1  nothing to write: say so, unless another execution of the batch may have written here or may still do so
    2  initialise the producer under the lane's id: earlier ones are fenced, their transactions end
    3  read marker and control record: what earlier attempts committed is all there now
    4  judge: write, compare, skip or refuse
    5  begin, write the records, each of which must belong to this lane
    6  add the marker, commit: both become visible, or neither
    7  report

At most one commit per lane and batch: whoever commits later than step 3 has been fenced by step 2. At least one: Spark
records a batch only when every lane reported, and `confirm` saw their markers.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from discovery.core.errors import ConfigError, SinkRefusedError, TransactionError
from discovery.core.plural import counted
from discovery.kafka.transactions import Transaction
from discovery.spark.sink import hooks
from discovery.spark.sink.columns import LANE, Record, plain, records
from discovery.spark.sink.lanes import (
    Attempt,
    Compare,
    Decision,
    OnMismatch,
    Refuse,
    Skip,
    Write,
    judge,
    may_have_run,
    refused,
    settle,
)
from discovery.spark.sink.ledger import SinkLedger, batch_bytes, naming_limit, transaction_of, until
from discovery.spark.sink.marker import Control, Fingerprint, Marker, advanced
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.targets import OVERHEAD_BYTES, Targets, size_of

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("kafka_discovery.sink")


class Outcome(Enum):
    """How a lane's part of a batch ended."""

    EMPTY = "empty"
    WRITTEN = "written"
    KEPT = "kept"
    """Committed by an earlier execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReport:
    """What a task tells the driver."""

    lane: int
    query_id: str
    batch_id: int
    outcome: Outcome
    rows: int = 0
    fingerprint: str = ""
    attempt: str = ""
    dead_letters: int = 0
    run: str = ""
    others: int | None = None
    """How many records a replay had that were not written, since others are committed; None: there was no such."""


class LaneWriter:
    """Writes one lane's part of one batch. Used once."""

    def __init__(
        self,
        plan: SinkPlan,
        attempt: Attempt,
        ledger: SinkLedger,
        *,
        make_transaction: Callable[[SinkPlan, int], Transaction] = transaction_of,
    ) -> None:
        """Keep what to work with; no I/O."""
        self._plan = plan
        self._attempt = attempt
        self._ledger = ledger
        self._make_transaction = make_transaction
        self._timeout_seconds = plan.options.transaction_timeout_seconds
        self._targets = Targets(plan)
        self._dead_letters = 0
        self._others: int | None = None
        self._unlaned = False
        self._batch_bytes = 0
        self._unsent: dict[str, int] = {}
        """Bytes since the last flush, of each topic that was met late and takes less than the client gathers."""
        self._is_alone = True
        """Nobody else can have had records of this batch for this lane."""

    def write(self, batches: Iterator["pa.RecordBatch"]) -> LaneReport:
        """Bring the batch into Kafka, once.

        Raises:
            SinkRefusedError: markers forbid it; nothing was written.
            TransactionError: it did not end well; the retry of the task finds out what is there.
            ConfigError: a record is in the wrong lane, or an option does not fit the cluster.

        Runs: a Spark worker, once per task; blocks for the batch and <= 2 x `transactionTimeout`.
        """
        with naming_limit(self._plan.options):
            return self._write(batches)

    def _write(self, batches: Iterator["pa.RecordBatch"]) -> LaneReport:
        lane = self._attempt.lane
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is not None:
            self._check_lane()
            self._unlaned = LANE not in first.schema.names
            batches = itertools.chain([first], batches)
        transaction = None if first is None else self._connecting(first)
        with hooks.step(0, lane):
            early = self._judged()
        with hooks.step(1, lane):
            if first is None and self._is_alone:
                return self._empty(early)
        with hooks.step(2, lane):
            transaction = transaction or self._connecting(None)
            transaction.fence(until(self._timeout_seconds))
        with hooks.step(3, lane):
            marker, control = self._noted()
        with hooks.step(4, lane):
            decision = self._checked(self._judge(marker, control, now_seconds=int(time.time())))
        match decision:
            case Write(generation=generation):
                return self._commit(transaction, batches, generation)
            case Compare(marker=committed):
                return self._compare(transaction, batches, committed)
            case Skip():
                return self._report(Outcome.KEPT, self._drain(batches))

    def _connecting(self, first: "pa.RecordBatch | None") -> Transaction:
        """Return the lane's producer, which connects while markers are looked at: it fences nobody by that."""
        known = replace(self._plan, largest_bytes=self._targets.limits(self._named(first)))
        self._batch_bytes = batch_bytes(known)
        return self._make_transaction(known, self._attempt.lane).connect()

    def _named(self, batch: "pa.RecordBatch | None") -> set[str]:
        """The topics that a batch names itself: what they take is asked before anything is sent to them."""
        if batch is None or self._plan.options.topic is not None:
            return set()
        return {topic for topic in batch.column("topic").unique().to_pylist() if topic is not None}

    def _may_have_others(self, control: Control | None) -> bool:
        """With one lane nobody else can have what an empty replay lacks: all of the batch is in that one marker."""
        return self._plan.options.lanes > 1 and may_have_run(control, self._attempt)

    def _noted(self) -> tuple[Marker | None, Control | None]:
        lane, limit = self._attempt.lane, self._timeout_seconds
        marker = self._ledger.markers([lane], timeout_seconds=limit).get(lane)
        return marker, self._ledger.control(timeout_seconds=limit)

    def _judged(self) -> Write | Compare | Skip:
        """Before anything is fenced: what is refused now is refused later too.

        Only a glance: a worker that was killed before its commit leaves a transaction that step 2 ends.
        """
        if self._attempt.lane >= self._plan.options.lanes:
            return Write(generation=0)  # more tasks than lanes: right as long as they are empty
        marker = self._ledger.glance(self._attempt.lane, timeout_seconds=self._timeout_seconds)
        control = self._ledger.control(timeout_seconds=self._timeout_seconds)
        self._is_alone = not self._may_have_others(control)
        return self._checked(self._judge(marker, control))

    def _judge(self, marker: Marker | None, control: Control | None, *, now_seconds: int | None = None) -> Decision:
        kept = self._plan.retention_seconds
        return judge(marker, control, self._attempt, now_seconds=now_seconds, retention_seconds=kept)

    def _checked(self, decision: Decision) -> Write | Compare | Skip:
        if isinstance(decision, Refuse):
            raise refused(decision, self._plan.options.sink_id, self._attempt.lane)
        return decision

    def _check_lane(self) -> None:
        lanes = self._plan.options.lanes
        if self._attempt.lane >= lanes:
            raise ConfigError(
                f"lanes: task {self._attempt.lane} has records, but the sink has {counted(lanes, 'lane')}; "
                f"write with_lanes(df, lanes={lanes}), the last thing before writeStream"
            )

    def _empty(self, early: Write | Compare | Skip) -> LaneReport:
        if isinstance(early, Compare):
            self._settle(early.marker, Fingerprint())
            return self._report(Outcome.KEPT, Fingerprint())
        return self._report(Outcome.EMPTY, Fingerprint())

    def _settle(self, committed: Marker, found: Fingerprint) -> OnMismatch | None:
        policy = settle(
            committed,
            rows=found.rows,
            fingerprint=found.text(),
            policy=self._plan.options.on_mismatch,
            sink_id=self._plan.options.sink_id,
            lane=self._attempt.lane,
        )
        self._others = found.rows if policy is OnMismatch.KEEP_COMMITTED else None
        return policy

    def _compare(self, transaction: Transaction, batches: Iterator["pa.RecordBatch"], committed: Marker) -> LaneReport:
        if self._plan.options.on_mismatch is not OnMismatch.REWRITE:
            found = self._drain(batches)
            self._settle(committed, found)
            return self._report(Outcome.KEPT, found)
        kept = list(batches)
        found = self._drain(iter(kept))
        if self._settle(committed, found) is None:
            return self._report(Outcome.KEPT, found)
        return self._commit(transaction, iter(kept), committed.generation)

    def _drain(self, batches: Iterator["pa.RecordBatch"]) -> Fingerprint:
        found, topic = Fingerprint(), self._plan.options.topic
        for batch in batches:
            if topic is not None and (both := self._plain(batch)) is not None:
                found.add_plain(topic, *both)
                continue
            for record in records(batch, topic):
                self._check_record(record)
                found.add(*record[:5])
        return found

    def _plain(self, batch: "pa.RecordBatch") -> tuple[list[bytes | None], list[bytes | None]] | None:
        topic = self._plan.options.topic
        room = 0 if topic is None else self._plan.largest(topic) - OVERHEAD_BYTES
        return plain(batch, topic=topic, lane=self._attempt.lane, room_bytes=room)

    def _commit(self, transaction: Transaction, batches: Iterator["pa.RecordBatch"], generation: int) -> LaneReport:
        lane, deadline = self._attempt.lane, until(self._timeout_seconds)
        with hooks.step(5, lane):
            transaction.begin()
            found = self._produce(transaction, batches, deadline)
        with hooks.step(6, lane):
            self._ledger.attach(transaction, lane, self._marker(found, generation), deadline)
            hooks.point("step6.sent", lane)
            transaction.commit(deadline)
        with hooks.step(7, lane):
            return self._report(Outcome.WRITTEN, found)

    def _produce(self, transaction: Transaction, batches: Iterator["pa.RecordBatch"], deadline: float) -> Fingerprint:
        found, attempt = Fingerprint(), self._attempt
        audited = hooks.auditor(
            query_id=attempt.query_id, batch_id=attempt.batch_id, lane=attempt.lane, attempt=attempt.attempt
        )
        topic = self._plan.options.topic
        for batch in batches:
            if topic is not None and audited is None and (both := self._plain(batch)) is not None:
                found.add_plain(topic, *both)
                transaction.produce_plain(topic, *both, deadline)
            else:
                self._produce_each(transaction, batch, found, audited, deadline)
            hooks.point("step5.middle", attempt.lane)
        return found

    def _produce_each(
        self,
        transaction: Transaction,
        batch: "pa.RecordBatch",
        found: Fingerprint,
        audited: hooks.Auditor | None,
        deadline: float,
    ) -> None:
        for name in self._named(batch):
            if self._targets.largest(name) < self._batch_bytes:
                self._unsent.setdefault(name, 0)
        for record in records(batch, self._plan.options.topic):
            self._check_record(record)
            found.add(*record[:5])
            written = self._admissible(record)
            topic, partition, key, value, headers, _ = written
            if topic in self._unsent:
                self._make_room(transaction, written, deadline)
            transaction.produce(
                str(topic),
                partition=partition,
                key=key,
                value=value,
                headers=audited(headers) if audited else headers,
                deadline=deadline,
            )

    def _make_room(self, transaction: Transaction, record: Record, deadline: float) -> None:
        topic, size = str(record.topic), size_of(record)
        if self._unsent[topic] + size > self._targets.largest(topic):
            transaction.flush(deadline)
            self._unsent[topic] = 0
        self._unsent[topic] += size

    def _check_record(self, record: Record) -> None:
        if record.lane is not None and record.lane != self._attempt.lane:
            raise ConfigError(
                f"{LANE}: a record of lane {record.lane} came to task {self._attempt.lane}: with_lanes must be the "
                "last thing before writeStream; no repartition, coalesce or union after it"
            )

    def _admissible(self, record: Record) -> Record:
        """Return the record, or its dead letter where it can never be written."""
        admitted = self._targets.admissible(record, "a record")
        self._dead_letters += admitted is not record
        return admitted

    def _marker(self, found: Fingerprint, generation: int) -> Marker:
        attempt = self._attempt
        return Marker(
            query_id=attempt.query_id,
            batch_id=attempt.batch_id,
            lanes=attempt.lanes,
            rows=found.rows,
            fingerprint=found.text(),
            attempt=attempt.attempt,
            wall_seconds=int(time.time()),
            generation=generation,
            unlaned=self._unlaned,
            target=attempt.target,
        )

    def _report(self, outcome: Outcome, found: Fingerprint) -> LaneReport:
        attempt = self._attempt
        hooks.said(batch_id=attempt.batch_id, lane=attempt.lane, attempt=attempt.attempt, outcome=outcome.value)
        return LaneReport(
            lane=attempt.lane,
            query_id=attempt.query_id,
            batch_id=attempt.batch_id,
            outcome=outcome,
            rows=found.rows,
            fingerprint=found.text() if found.rows else "",
            attempt=attempt.attempt,
            dead_letters=self._dead_letters,
            run=attempt.run,
            others=self._others,
        )


def confirm(plan: SinkPlan, ledger: SinkLedger, reports: Sequence[LaneReport], *, timeout_seconds: float) -> None:
    """Check that every lane with records has its marker, and write down that the batch is complete.

    Spark may call this never, once or many times for one batch; it says the same each time.

    Raises:
        TransactionError: a marker is not there, reports are of two batches, or a start is changing the number of lanes:
            the batch must run again.
        SinkRefusedError: reports of another query than the sink's, or of an earlier batch.

    Runs: driver, once per batch; blocks <= 3 x timeout_seconds.
    """
    hooks.point("commit.before")
    if not reports:
        return
    sink = f"sinkId {plan.options.sink_id!r}"
    if len({(report.query_id, report.batch_id) for report in reports}) != 1:
        raise TransactionError(f"{sink}: the tasks of one batch report different queries or batches; restart the query")
    query_id, batch_id = reports[0].query_id, reports[0].batch_id
    control = ledger.control(timeout_seconds=timeout_seconds)
    if control is not None and control.is_closed:
        raise TransactionError(f"{sink}: batch {batch_id}: a start is changing the number of lanes; restart the query")
    if control is None or control.query_id not in {"", query_id} or control.batch_id > batch_id:
        raise SinkRefusedError(
            f"{sink}: batch {batch_id} of {query_id} is not what the control record is at: {control}"
        )
    kept = _say_what_was_kept(sink, batch_id, reports)
    if control.batch_id < batch_id or kept:
        markers = ledger.markers(range(control.lanes), timeout_seconds=timeout_seconds)
        if control.batch_id < batch_id:
            _check_markers(sink, markers, control, reports)
        hooks.point("commit.checked")
        after = advanced(
            control, query_id=query_id, batch_id=batch_id, markers=markers, wall=int(time.time()),
            run=reports[0].run, kept=kept, target=plan.options.topic or "",
        )  # fmt: skip
        ledger.write_control(after, timeout_seconds=timeout_seconds)
    hooks.point("commit.after")


def _say_what_was_kept(sink: str, batch_id: int, reports: Sequence[LaneReport]) -> int:
    """Return in how many lanes a replay had other records than those that are committed and were kept."""
    kept = [report for report in reports if report.others is not None]
    for report in kept:
        _log.warning(
            "%s, lane %d: batch %d is committed with other records than its replay has; they were kept, and %s of the "
            "replay not written (onMismatch=keep-committed)",
            sink, report.lane, batch_id, counted(report.others or 0, "record"),
        )  # fmt: skip
    return len(kept)


def _check_markers(sink: str, markers: Mapping[int, Marker], control: Control, reports: Sequence[LaneReport]) -> None:
    for report in reports:
        marker = markers.get(report.lane)
        there = marker is not None and (marker.batch_id, marker.generation, marker.query_id) == (
            report.batch_id,
            control.generation,
            report.query_id,
        )
        if report.outcome is Outcome.EMPTY and there:
            raise TransactionError(
                f"{sink}, lane {report.lane}: reported no records of batch {report.batch_id}, and another execution of "
                "it committed some; restart the query: its replay finds them"
            )
        if report.outcome is not Outcome.EMPTY and not there:
            raise TransactionError(
                f"{sink}, lane {report.lane}: reported batch {report.batch_id}, but its marker is {marker}; "
                "restart the query: the batch is written again where it is missing"
            )
