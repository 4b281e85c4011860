"""One streaming query: source -> classify -> group in RocksDB state -> one SQLite transaction per micro-batch."""

from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core.errors import DiscoveryError
from discovery.spark.jobs import running
from discovery.spark.jobs.dau_events import classify, group
from discovery.spark.jobs.dau_options import DauOptions
from discovery.spark.jobs.dau_store import DailyUser, DauStore, DeadLetter

_DAY = timedelta(days=1)


def make_session(options: DauOptions) -> SparkSession:
    """Start Spark, or take the session spark-submit prepared. See `running.make_session`."""
    return running.make_session(
        f"dau-{options.topic}", master=options.master, settings=options.spark_options, checkpoint=options.checkpoint
    )


def read_records(session: SparkSession, options: DauOptions) -> DataFrame:
    """Describe the source; nothing is read yet.

    Runs: driver; blocks for one short Python worker.
    """
    chosen: dict[str, object | None] = {
        "kafka.bootstrap.servers": options.bootstrap_servers,
        "subscribe": options.topic,
        "startingOffsets": options.starting_offsets,
        "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
    }
    if options.source_format == "kafka-discovery":
        chosen |= {
            # Said aloud because this query has event time: rows of a parked partition come late. They are still
            # counted while the outage is shorter than the allowed lateness (a day), whereas `hold` would stop
            # everybody's count for one partition.
            "onParked": options.on_parked,
            "sourceId": options.source_id,
            "stateDir": options.state_dir,
        }
    reader = session.readStream.format(options.source_format)
    for name, value in [*chosen.items(), *options.source_options]:
        if value is not None:
            reader = reader.option(name, str(value))
    return reader.load()


class BatchWriter:
    """Spark's `foreachBatch` function: one micro-batch into one transaction."""

    def __init__(self, store: DauStore) -> None:
        self._store = store
        self.failure: DiscoveryError | None = None
        """What ended the query, before Spark wrapped it in a Java exception."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Upsert the totals of this batch.

        Runs: driver, once per micro-batch, on Spark's callback thread; blocks for the batch and its transaction.
        """
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        table = batch.toArrow()
        try:
            self._store.apply(
                query_id=str(query_id), batch_id=batch_id, users=_users(table), dead_letters=_dead_letters(table)
            )
        except DiscoveryError as error:
            self.failure = error
            raise


def start_query(records: DataFrame, writer: Callable[[DataFrame, int], None], options: DauOptions) -> StreamingQuery:
    """Start counting.

    Runs: driver, once; returns when the query is planned.
    """
    lateness = f"{int(options.allowed_lateness_seconds * 1_000)} milliseconds"
    stream = (
        group(classify(records), allowed_lateness=lateness)
        .writeStream.queryName(f"dau-{options.topic}")
        .outputMode("update")
        .option("checkpointLocation", options.checkpoint)
        .foreachBatch(writer)
    )
    if options.available_now:
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=f"{int(options.trigger_interval_seconds * 1_000)} milliseconds").start()


def _users(table: pa.Table) -> Iterator[DailyUser]:
    for row in _rows(table):
        if row["reason"] is None:
            yield DailyUser(
                day=_day_before(row["until"]).isoformat(),
                user_id=row["user_id"],
                events=row["events"],
                checksum=row["checksum"],
            )


def _dead_letters(table: pa.Table) -> Iterator[DeadLetter]:
    for row in _rows(table):
        if row["reason"] is not None:
            yield DeadLetter(**{name: row[name] for name in ("topic", "partition", "offset", "reason", "value")})


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for piece in table.to_batches(max_chunksize=10_000):
        yield from piece.to_pylist()


def _day_before(until: datetime) -> date:
    return (until - _DAY).date()
