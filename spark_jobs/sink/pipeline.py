"""From topic to topic by source offsets: the marker of a lane is where its partitions were read to.

The records and the offset after the last of them are committed by one transaction, so what is in the target and what
the group says is one and the same, whatever becomes of Spark's checkpoint: an attempt drops what lies before the
group's offset, and a query whose checkpoint is lost begins at the group's offsets (`startingOffsets=committed`). It
asks of the query what only a pipeline without state has: each row comes from one record, whose topic, partition and
offset it carries, and a partition is never split over lanes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from discovery.core.errors import SinkRefusedError
from discovery.core.model import TopicName
from discovery.kafka.transactions import GroupNotes, Note
from spark_jobs.sink import hooks
from spark_jobs.sink.columns import records
from spark_jobs.sink.ledger import transaction_of, until
from spark_jobs.sink.plan import SinkPlan

SOURCE_PARTITION, SOURCE_OFFSET, KEEP = "__partition", "__offset", "__keep"


@dataclass(slots=True)
class Progress:
    """How far each source partition of a lane was read."""

    committed: dict[int, int]
    reached: dict[int, int] = field(default_factory=dict)
    written: int = 0

    def is_new(self, partition: int, offset: int) -> bool:
        """Take in one row; False where its record is in the target already."""
        if offset < self.committed.get(partition, 0):
            return False
        self.reached[partition] = max(offset + 1, self.reached.get(partition, 0))
        return True


def write_lane(plan: SinkPlan, source: TopicName, lane: int, batches: Iterator[pa.RecordBatch]) -> int:
    """Write what the target does not have yet of one lane, and how far the source was read, in one transaction.

    Returns:
        How many records were written.

    Raises:
        TransactionError: it did not end well; the retry of the task finds out what is there.
        SinkRefusedError: a record can never be written.

    Runs: a worker; blocks for the batch and <= 3 x `transactionTimeout`.
    """
    kept = [batch for batch in batches if batch.num_rows]
    if not kept:
        return 0
    limit = plan.options.transaction_timeout_seconds
    with hooks.step(2, lane):
        transaction = transaction_of(plan, lane)
        transaction.fence(until(limit))
    with hooks.step(3, lane):
        notes = GroupNotes(plan.access, group=plan.options.group, topic=source)
        partitions = sorted({number for batch in kept for number in batch.column(SOURCE_PARTITION).to_pylist()})
        found = notes.read(partitions, timeout_seconds=limit)
        progress = Progress({partition: note.offset for partition, note in found.items()})
    deadline = until(limit)
    with hooks.step(5, lane):
        transaction.begin()
        for batch in kept:
            _produce(plan, transaction.produce, batch, progress, deadline)
            hooks.point("step5.middle", lane)
    if not progress.reached:
        return 0  # all of it is in the target already; a transaction of which nothing was sent needs no end
    with hooks.step(6, lane):
        for partition, offset in progress.reached.items():
            transaction.attach(source, partition, Note(offset, ""), notes.metadata, deadline)
        hooks.point("step6.sent", lane)
        transaction.commit(deadline)
    return progress.written


def _produce(
    plan: SinkPlan, produce: Callable[..., None], batch: pa.RecordBatch, progress: Progress, deadline: float
) -> None:
    names = batch.schema.names
    numbers = batch.column(SOURCE_PARTITION).to_pylist()
    offsets = batch.column(SOURCE_OFFSET).to_pylist()
    keeps = batch.column(KEEP).to_pylist() if KEEP in names else [True] * batch.num_rows
    for record, number, offset, keep in zip(records(batch, plan.options.topic), numbers, offsets, keeps, strict=True):
        if not progress.is_new(number, offset) or not keep:
            continue
        size = len(record.key or b"") + len(record.value or b"")
        if size > plan.largest(str(record.topic)):
            raise SinkRefusedError(
                f"sinkId {plan.options.sink_id!r}: record {offset} of partition {number} can never be written: it has "
                f"{size} bytes; filter it out, or raise max.message.bytes of {record.topic}"
            )
        produce(
            str(record.topic), partition=None, key=record.key, value=record.value, headers=record.headers,
            deadline=deadline,
        )  # fmt: skip
        progress.written += 1
