"""`foreachBatch` over the same lanes, for what the format cannot do: update mode, and several sinks per batch."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame

from discovery.core.errors import ConfigError, StateError
from spark_jobs.sink.columns import LANE, check_columns
from spark_jobs.sink.glue import QUERY_ID, write_lane
from spark_jobs.sink.helpers import with_lanes
from spark_jobs.sink.ledger import SinkLedger
from spark_jobs.sink.options import SinkOptions, parse_options
from spark_jobs.sink.plan import SinkPlan
from spark_jobs.sink.preflight import forget, prepare
from spark_jobs.sink.wire import decode, encode
from spark_jobs.sink.writer import confirm

_CONFIRM_SECONDS = 60.0
_REPORT = "report"


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
        write_batch(batch if transform is None else transform(batch), batch_id, options=parsed, by=by)

    return write


def write_batch(
    df: DataFrame, batch_id: int, *, options: SinkOptions, by: Column | str | Sequence[Column | str] | None
) -> None:
    """Write one micro-batch from within `foreachBatch`.

    Raises:
        ConfigError: a column is missing, or this is not the thread that Spark calls `foreachBatch` on.
        DiscoveryError: see `LaneWriter.write` and `confirm`.

    Runs: driver, once per micro-batch; blocks for the batch.
    """
    query_id = df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if query_id is None:
        raise ConfigError("exactly_once: call it on the thread on which Spark calls foreachBatch")
    laned = with_lanes(df, by, lanes=options.lanes)
    columns = {field.name: field.dataType.simpleString() for field in laned.schema.fields}
    check_columns(columns, has_topic=options.topic is not None, lanes=options.lanes)
    plan = prepare(options)
    wanted = [name for name in ("key", "value", "topic", "partition", "headers", LANE) if name in columns]
    try:
        found = laned.select(*wanted).mapInArrow(_task(plan, query_id, batch_id), f"{_REPORT} string").collect()
        reports = [decode(row[_REPORT]) for row in found]
        confirm(plan, SinkLedger(plan), reports, timeout_seconds=_CONFIRM_SECONDS)
    except BaseException:
        forget(options)
        raise


def _task(
    plan: SinkPlan, query_id: str, batch_id: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is None:
            raise StateError("the sink writes in Spark's tasks only")
        report = write_lane(plan, context, query_id=query_id, batch_id=batch_id, batches=batches)
        yield pa.record_batch([pa.array([encode(report)])], names=[_REPORT])

    return run
