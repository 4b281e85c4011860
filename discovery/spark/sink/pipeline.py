"""From topic to topic by source offsets: the marker of a lane is where its partitions were read to.

The records and the offset after the last of them are committed by one transaction, so what is in the target and what
the group says is one and the same, whatever becomes of Spark's checkpoint: an attempt drops what lies before the
group's offset, and a query whose checkpoint is lost begins at the group's offsets (`startingOffsets=committed`). It
asks of the query what only a pipeline without state has: each row comes from one record, whose topic, partition and
offset it carries, and a partition is never split over lanes.

Offsets mean nothing across topics of one name: each marker says the id of its topic, and another id refuses.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from discovery.core.errors import ConfigError, SinkRefusedError, StateError, TransactionError
from discovery.core.model import TopicName
from discovery.kafka.transactions import GroupNotes, Note, Transaction
from discovery.spark.sink import hooks
from discovery.spark.sink.columns import records
from discovery.spark.sink.lanes import Refusal, asleep, refused
from discovery.spark.sink.ledger import SinkLedger, naming_limit, transaction_of, until
from discovery.spark.sink.marker import Control
from discovery.spark.sink.offsets import SourceOffset, offset_key, record_key, topic_of
from discovery.spark.sink.options import SinkOptions
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.targets import Targets

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE_PARTITION, SOURCE_OFFSET, KEEP = "__partition", "__offset", "__keep"


class OffsetLane:
    """Writes one lane's part of one batch. Used once."""

    def __init__(
        self, plan: SinkPlan, source: TopicName, topic_id: str, lane: int, *, begun_seconds: int | None = None
    ) -> None:
        """Keep what to work with; no I/O.

        Args:
            plan: The sink.
            source: The topic that is read.
            topic_id: Its id at this moment; empty: brokers did not report it.
            lane: The number of this task.
            begun_seconds: When it began, epoch seconds; now, where left out.
        """
        self._begun_seconds = int(time.time()) if begun_seconds is None else begun_seconds
        self._plan = plan
        self._source = source
        self._topic_id = topic_id
        self._lane = lane
        self._limit_seconds = plan.options.transaction_timeout_seconds
        self._ledger = SinkLedger(plan)
        self._is_recorded = False
        self._notes = GroupNotes(plan.access, group=plan.options.group, topic=source)
        self._targets = Targets(plan)
        self._records: Mapping[int, SourceOffset] | None = None
        """Read where a partition has no offset."""
        self._committed: dict[int, int] = {}
        self._reached: dict[int, int] = {}
        self._written = 0

    def write(self, batches: Iterator["pa.RecordBatch"]) -> int:
        """Write what the target does not have yet, and how far the source was read, in one transaction.

        Returns:
            How many records were written.

        Raises:
            TransactionError: it did not end well, or the source's id is not known; the retry of the task finds out
                what is there.
            SinkRefusedError: a record can never be written, or the source is another topic than before.
            ConfigError: a record is in the wrong lane.

        Runs: a worker; blocks for the batch and <= 4 x `transactionTimeout`.
        """
        with naming_limit(self._plan.options):
            return self._write(batches)

    def _write(self, batches: Iterator["pa.RecordBatch"]) -> int:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0
        with hooks.step(2, self._lane):
            transaction = transaction_of(self._plan, self._lane)
            transaction.fence(until(self._limit_seconds))
        with hooks.step(3, self._lane):
            self._is_recorded = self._checked_control().is_recorded
        deadline = until(self._limit_seconds)
        with hooks.step(5, self._lane):
            transaction.begin()
            self._produce(transaction, first, deadline)
            for batch in batches:
                self._produce(transaction, batch, deadline)
        if not self._reached:
            return 0  # all of it is in the target already; a transaction of which nothing was sent needs no end
        with hooks.step(6, self._lane):
            self._attach(transaction, deadline)
            hooks.point("step6.sent", self._lane)
            transaction.commit(deadline)
        return self._written

    def _attach(self, transaction: Transaction, deadline: float) -> None:
        """As offsets, where Spark's start finds them, and as records, which never expire."""
        sink_id = self._plan.options.sink_id
        for partition, offset in self._reached.items():
            one = SourceOffset(
                offset=offset,
                topic_id=self._topic_id,
                is_complete=self._is_recorded,
                target=self._plan.options.topic,
            )
            self._ledger.record(
                transaction, self._lane, record_key(sink_id, self._source, partition), one.encode(), deadline
            )
            transaction.attach(self._source, partition, Note(offset, one.note()), self._notes.metadata, deadline)

    def _checked_control(self) -> Control:
        """After the fence: a worker of a run with other lanes may have partitions that are another lane's now."""
        control = self._ledger.control(timeout_seconds=self._limit_seconds)
        if control is None or control.lanes != self._plan.options.lanes:
            raise TransactionError(
                f"sinkId {self._plan.options.sink_id!r}: another run with another number of lanes has begun, or the "
                "control record is gone; start the query again"
            )
        refuse_other_copy(self._plan.options, source=control.source, target=control.target)
        return control

    def _produce(self, transaction: Transaction, batch: "pa.RecordBatch", deadline: float) -> None:
        names = batch.schema.names
        numbers = batch.column(SOURCE_PARTITION).to_pylist()
        if new := set(numbers) - set(self._committed):
            self._look_up(new, deadline)
        offsets = batch.column(SOURCE_OFFSET).to_pylist()
        keeps = batch.column(KEEP).to_pylist() if KEEP in names else [True] * batch.num_rows
        rows = zip(records(batch, self._plan.options.topic), numbers, offsets, keeps, strict=True)
        for record, number, offset, keep in rows:
            if record.lane != self._lane:
                raise ConfigError(f"a record of lane {record.lane} came to task {self._lane}; do not repartition")
            if not self._is_new(number, offset) or not keep:
                continue
            written = self._targets.admissible(record, f"record {offset} of {self._source}-{number}")
            transaction.produce(
                str(written.topic),
                partition=None,
                key=written.key,
                value=written.value,
                headers=written.headers,
                deadline=deadline,
            )
            self._written += 1
        hooks.point("step5.middle", self._lane)

    def _is_new(self, partition: int, offset: int) -> bool:
        """Take in one row; False where its record is in the target already."""
        if offset < self._committed[partition]:
            return False
        self._reached[partition] = max(offset + 1, self._reached.get(partition, 0))
        return True

    def _look_up(self, partitions: Collection[int], deadline: float) -> None:
        """Find from where on partitions are not in the target yet; asked after the fence, so it is the last word."""
        notes = self._notes.read(partitions, timeout_seconds=max(0.0, deadline - time.monotonic()))
        for partition in partitions:
            note = notes.get(partition)
            self._committed[partition] = self._noted(partition, note) if note else self._recorded(partition)

    def _noted(self, partition: int, note: Note) -> int:
        where = f"sinkId {self._plan.options.sink_id!r}: {self._source}-{partition}"
        try:
            topic_id = topic_of(note.text, where=f"{where}: offset {note.offset} in group {self._plan.options.group}")
        except StateError as error:
            raise SinkRefusedError(str(error)) from None
        refuse_other_topic(topic_id, self._topic_id, where)
        return note.offset

    def _recorded(self, partition: int) -> int:
        """Return what the records say of a partition without an offset: it expired, or there never was one."""
        options = self._plan.options
        if self._records is None:
            self._records = recorded_offsets(
                self._ledger, self._source, committed=True, timeout_seconds=self._limit_seconds
            )
        if (one := self._records.get(partition)) is not None:
            refuse_other_topic(one.topic_id, self._topic_id, f"sinkId {options.sink_id!r}: {self._source}-{partition}")
            return one.offset
        if self._is_recorded:
            return 0
        if refuse := asleep(self._begun_seconds, int(time.time()), self._plan.retention_seconds):
            raise refused(refuse, options.sink_id, self._lane)
        if options.foreach_batch is not None and options.foreach_batch[0] > 0:
            return 0
        raise copied_perhaps(options, self._source, partition)


def recorded_offsets(
    ledger: SinkLedger, source: TopicName, *, committed: bool, timeout_seconds: float
) -> Mapping[int, SourceOffset]:
    """Return what is recorded of a source, by partition; raises and waits like `SinkLedger.records`.

    Runs: driver, and a task that finds a partition without an offset; reads the marker topic.
    """
    found: dict[int, SourceOffset] = {}
    for (_, key), text in ledger.records(timeout_seconds=timeout_seconds, committed=committed).items():
        if (number := offset_key(key, source)) is None:
            continue
        one = SourceOffset.decode(text, where=f"record {key}")
        if number not in found or one.offset > found[number].offset:
            found[number] = one
    return found


def refuse_other_topic(known: str, topic_id: str, where: str) -> None:
    """Refuse offsets of a topic that was recreated.

    Args:
        known: The id that was committed with the offset; empty: brokers did not report it then.
        topic_id: The id of now; empty: they do not report it now.
        where: Names the partition in errors.

    Raises:
        SinkRefusedError: it is another topic.
        TransactionError: whether it is another one is not known.

    Runs: anywhere (pure).
    """
    if known and not topic_id:
        raise TransactionError(
            f"{where}: brokers did not report the topic's id, so it may have been recreated; restart the query"
        )
    if known and known != topic_id:
        raise SinkRefusedError(
            f"{where}: the topic was recreated (id {known}, now {topic_id}), and its offsets mean other records; give "
            "the job another --sink-id to copy the new one"
        )


def refuse_other_copy(options: SinkOptions, *, source: str | None, target: str | None) -> None:
    """Refuse a second pipeline under one `sinkId`.

    Into another target it would leave out what the first has copied; of another source it would end the transactions
    of the first, and the first its own.

    Args:
        options: Of the one that starts or writes.
        source: The topic that the sink was begun with; None: not known, or taken over since.
        target: Likewise.

    Raises:
        SinkRefusedError: one of them is another one.

    Runs: anywhere (pure).
    """
    for way, there, here in (("to", target, options.topic), ("from", source, options.source_topic)):
        if there not in {None, here}:
            raise SinkRefusedError(
                f"sinkId {options.sink_id!r}: {Refusal.SINK_ID_IN_USE.value}: it copies {way} topic {there}, this one "
                f"{way} {here}; give each copy a sinkId (--sink-id) of its own, or run `kafka-discovery sink takeover` "
                f"if it shall go on {way} {here}"
            )


def copied_perhaps(options: SinkOptions, source: TopicName, partition: int) -> SinkRefusedError:
    """Return the error for a partition without offset, of a sink that has not recorded all of them.

    Runs: anywhere (pure).
    """
    return SinkRefusedError(
        f"sinkId {options.sink_id!r}: group {options.group} has no offset of {source}-{partition}, the "
        "checkpoint is new and the sink older than its records: whether the partition was copied is open; restore "
        "the checkpoint, or run `kafka-discovery sink takeover` to copy it from where the query begins"
    )
