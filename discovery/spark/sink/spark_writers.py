"""Spark's side of the sink: writers for streams and batches over one LaneWriter.

Spark imports this in two processes of the driver, one only to plan batches, one only to confirm them: what writes, with
Arrow and Kafka's client behind it, is imported where it is called.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from discovery.core.errors import ConfigError
from discovery.core.model import TopicName
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.preflight import forget
from discovery.spark.source.border import crossing

if TYPE_CHECKING:
    import pyarrow as pa

    from discovery.spark.sink.writer import LaneReport

_log = logging.getLogger("kafka_discovery.sink")
BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
"""Spark's job group of a streaming query is its run's id; undocumented, so its absence only costs time."""
_SPECULATION = "spark.speculation"
_CONFIRM_SECONDS = 60.0


@dataclass
class LaneMessage(WriterCommitMessage):
    """Carries a task's report to the driver."""

    report: "LaneReport"


class KafkaDiscoveryStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Built by Spark for each batch; pickled to the workers."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write one lane.

        Runs: a worker, once per task attempt; blocks for the batch and <= 2 x `transactionTimeout`.
        """
        with crossing():
            context = _context()
            batch, query = context.getLocalProperty(BATCH_ID), context.getLocalProperty(QUERY_ID)
            if batch is None or query is None:
                raise ConfigError(
                    f"this Spark does not give its tasks {BATCH_ID} and {QUERY_ID}, without which nothing can be "
                    "written once; use foreachBatch(exactly_once(…)), and tell us the version"
                )
            run = context.getLocalProperty(RUN_ID) or ""
            return _written(self._plan, context, query_id=query, batch_id=int(batch), run=run, batches=iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Confirm a batch: every lane's marker is there.

        Runs: driver, in a process of its own, 0 to n times per batch; blocks <= 3 min.
        """
        with crossing():
            _confirm(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Say so. What lanes committed stays: the replay of the batch finds it.

        Runs: driver, in a process of its own, after a batch failed.
        """
        _aborted(self._plan, messages, f"batch {batchId}")


class KafkaDiscoveryBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once per `writeId`."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write one lane. See `KafkaDiscoveryStreamWriter.write`."""
        with crossing():
            batch_id, query_id, run = self._plan.options.foreach_batch or (0, self._what, "")
            return _written(self._plan, _context(), query_id=query_id, batch_id=batch_id, run=run, batches=iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Confirm the write. See `KafkaDiscoveryStreamWriter.commit`."""
        with crossing():
            _confirm(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say so. See `KafkaDiscoveryStreamWriter.abort`."""
        _aborted(self._plan, messages, self._what)

    @property
    def _what(self) -> str:
        within = self._plan.options.foreach_batch
        return f"batch {within[0]}" if within else f"write {self._plan.options.write_id}"


@dataclass
class CopiedMessage(WriterCommitMessage):
    """Says how many records a task of a pipeline wrote; its markers say the rest."""

    written: int


class KafkaDiscoveryOffsetWriter(KafkaDiscoveryBatchWriter):
    """Writes a batch of a pipeline whose markers are the offsets of its source."""

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Write one lane. See `pipeline.write_lane`."""
        with crossing():
            from discovery.spark.sink.pipeline import OffsetLane  # noqa: PLC0415 - see the module

            context, options = _context(), self._plan.options
            refuse_speculation(context)
            source = cast("TopicName", options.source_topic)
            lane = OffsetLane(self._plan, source, options.source_topic_id, context.partitionId())
            return CopiedMessage(lane.write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: what each task committed is complete in itself."""


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConfigError("the sink writes in Spark's tasks only")
    return context


def _written(
    plan: SinkPlan, context: TaskContext, *, query_id: str, batch_id: int, run: str, batches: Iterator["pa.RecordBatch"]
) -> LaneMessage:
    from discovery.spark.sink.lanes import Attempt  # noqa: PLC0415 - see the module
    from discovery.spark.sink.ledger import kept_ledger  # noqa: PLC0415 - see the module
    from discovery.spark.sink.writer import LaneWriter  # noqa: PLC0415 - see the module

    refuse_speculation(context)
    attempt = Attempt(
        query_id=query_id,
        batch_id=batch_id,
        lane=context.partitionId(),
        lanes=plan.options.lanes,
        attempt=f"{context.stageId()}.{context.attemptNumber()}.{context.taskAttemptId()}",
        wall_seconds=int(time.time()),
        target=plan.options.topic or "",
        run=run,
        is_first=context.attemptNumber() == 0,
    )
    with kept_ledger(plan) as ledger:
        return LaneMessage(LaneWriter(plan, attempt, ledger).write(batches))


def refuse_speculation(context: TaskContext) -> None:
    """Refuse two attempts of one task at a time.

    Raises:
        ConfigError: Spark may start them.

    Runs: a worker, before anything else.
    """
    if context.getLocalProperty(_SPECULATION) == "true":
        raise ConfigError(
            f"{_SPECULATION}=true: two attempts of one task would fence each other until both fail; set it to false"
        )


def _confirm(plan: SinkPlan, messages: Sequence[WriterCommitMessage | None]) -> None:
    from discovery.spark.sink.ledger import kept_ledger  # noqa: PLC0415 - see the module
    from discovery.spark.sink.writer import confirm  # noqa: PLC0415 - see the module

    reports = [cast("LaneMessage", message).report for message in messages if message is not None]
    with kept_ledger(plan) as ledger:
        confirm(plan, ledger, reports, timeout_seconds=_CONFIRM_SECONDS)


def _aborted(plan: SinkPlan, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    forget(plan.options)
    there = sum(message is not None for message in messages)
    # Why it failed says the query; a batch that was cancelled by a stop is no failure.
    _log.info(
        "sinkId %r: %s failed after %d of its lanes were committed; its replay writes the others",
        plan.options.sink_id, what, there,
    )  # fmt: skip
