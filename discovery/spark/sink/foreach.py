"""`foreachBatch` over the same lanes, for what the format cannot do: update mode, and several topics per batch.

A batch travels through the batch writer of the format; an option tells it which batch of which query it is:
`mapInArrow`, which would need no such detour, asks for pandas.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame

from discovery.core.errors import ConfigError
from discovery.core.model import TopicName
from discovery.kafka.topics import TopicAdmin
from discovery.spark.sink.columns import LANE
from discovery.spark.sink.options import BY_OFFSET, FOREACH_BATCH, parse_options
from discovery.spark.sink.pipeline import KEEP, SOURCE_OFFSET, SOURCE_PARTITION
from discovery.spark.sink.preflight import prepare
from discovery.spark.sink.public import with_lanes
from discovery.spark.sink.renewal import refuse_unrecorded, restore_offsets
from discovery.spark.sink.spark_writers import QUERY_ID, RUN_ID
from discovery.spark.sink.stops import stoppable

_COLUMNS = ("key", "value", "topic", "partition", "headers", LANE)
_COPIED = ("key", "value", "headers", SOURCE_PARTITION, SOURCE_OFFSET, KEEP)


class _Written:
    """What this driver writes by `foreachBatch`: each batch of a run once per sink."""

    def __init__(self) -> None:
        self.run = uuid.uuid4().hex
        """Another one after each failure: whatever came of a batch before then is another execution of it."""
        self._lock = threading.Lock()
        self._last: dict[str, tuple[str, int]] = {}

    @contextmanager
    def once(self, sink_id: str, run: str | None, batch_id: int) -> Iterator[None]:
        """Refuse a second write of a batch under one sink.

        Raises:
            ConfigError: this run has written the batch under this sink already.
        """
        with self._lock:
            if run is not None and self._last.get(sink_id) == (run, batch_id):
                raise ConfigError(
                    f"sinkId: {sink_id!r} has batch {batch_id} of another output of this foreachBatch; give each "
                    "output a sinkId of its own, or union them before one write"
                )
            self._last[sink_id] = (run or "", batch_id)
        try:
            yield
        except BaseException:
            with self._lock:
                self._last.pop(sink_id, None)
                self.run = uuid.uuid4().hex
            raise


_written = _Written()


def exactly_once(
    options: Mapping[str, str],
    by: Column | str | Sequence[Column | str] | None = None,
    *,
    transform: Callable[[DataFrame], DataFrame] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that writes each micro-batch to Kafka exactly once.

    Args:
        options: The options of the sink, `kafka.bootstrap.servers` and `sinkId` among them.
        by: What says which row goes into which lane; needed with more than one lane.
        transform: Shapes a batch into the sink's columns; as it is, where left out.

    Returns:
        A function of (batch, batch id). It raises what ended the write, and Spark then replays the batch.

    Raises:
        ConfigError: an option is wrong or missing.

    Runs: driver; the function once per micro-batch, blocking for the batch and its transactions.
    """
    parsed = parse_options(options)

    def write(batch: DataFrame, batch_id: int) -> None:
        laned = with_lanes(batch if transform is None else transform(batch), by, lanes=parsed.lanes)
        write_batch(laned.select(*[name for name in _COLUMNS if name in laned.columns]), batch_id, options)

    return stoppable(write)


def exactly_once_by_offset(
    options: Mapping[str, str], source_topic: str, transform: Callable[[DataFrame], DataFrame]
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that copies one topic, transformed row by row, exactly once.

    Args:
        options: The options of the sink; `topic` is needed.
        source_topic: The topic that is read; the sink's group holds its offsets.
        transform: Adds `key`, `value`, perhaps `headers`, and `__keep` (false: leave this record out), row by row. It
            gets the source's columns, `__partition` and `__offset`, and must not add, remove or join rows.

    Returns:
        A function of (batch, batch id). It raises what ended the write; Spark then replays the batch.

    Raises:
        ConfigError: an option is wrong or missing.
        KafkaUnreachableError, TransactionError: what brokers have forgotten of its offsets could not be put back.

    Runs: driver; blocks as `prepare` does. The function once per micro-batch, for the batch and its transactions.
    """
    parsed = parse_options({**options, BY_OFFSET: f"{source_topic} "}).opened()
    if parsed.topic is None:
        raise ConfigError("topic: required; a pipeline has one target")
    restore_offsets(prepare(parsed))

    def write(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            refuse_unrecorded(prepare(parsed))
        shaped = transform(batch.withColumns({SOURCE_PARTITION: batch["partition"], SOURCE_OFFSET: batch["offset"]}))
        chosen = shaped.select(*[name for name in _COPIED if name in shaped.columns])
        laned = with_lanes(chosen, SOURCE_PARTITION, lanes=parsed.lanes)
        ordered = laned.sortWithinPartitions(SOURCE_PARTITION, SOURCE_OFFSET)
        # Asked for each batch: offsets of a topic that was recreated must not be taken for the old one's.
        topic_id = TopicAdmin(prepare(parsed).access).topic_id(TopicName(source_topic))
        write_batch(ordered, batch_id, {**options, BY_OFFSET: f"{source_topic} {topic_id}"})

    return stoppable(write)


def write_batch(laned: DataFrame, batch_id: int, options: Mapping[str, str]) -> None:
    """Write one micro-batch from within `foreachBatch`.

    Args:
        laned: What `with_lanes` returned.
        batch_id: As Spark gave it.
        options: The options of the sink.

    Raises:
        ConfigError: this is not the thread that Spark calls `foreachBatch` on, or another output of this batch was
            written under the same `sinkId`.
        PySparkException: the write failed; Spark replays the batch.

    Runs: driver, once per micro-batch; blocks for the batch.
    """
    context = laned.sparkSession.sparkContext
    query_id = context.getLocalProperty(QUERY_ID)
    if query_id is None:
        raise ConfigError("exactly_once: call it on the thread on which Spark calls foreachBatch")
    writer = laned.write.format("kafka-discovery").mode("append").options(**options)
    with _written.once(parse_options(options).sink_id, context.getLocalProperty(RUN_ID), batch_id):
        writer.option(FOREACH_BATCH, f"{batch_id} {query_id} {_written.run}").save()
