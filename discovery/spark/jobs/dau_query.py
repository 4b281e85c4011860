"""One streaming query: source -> classify -> group in RocksDB state -> one SQLite transaction per micro-batch."""

from collections.abc import Callable

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core.errors import DiscoveryError
from discovery.spark.jobs import running
from discovery.spark.jobs.dau_events import classify, day_of, group
from discovery.spark.jobs.dau_options import DauOptions
from discovery.spark.jobs.dau_store import DailyUser, DauStore, DeadLetter
from discovery.spark.jobs.letters import LETTER
from discovery.spark.jobs.tables import Table
from discovery.spark.sink.stops import stoppable


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

    def __init__(self, store: DauStore, *, time_zone: str = "UTC") -> None:
        self._store = store
        self._time_zone = time_zone
        self.failure: DiscoveryError | None = None
        """What ended the query, before Spark wrapped it in a Java exception."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Upsert the totals of this batch; a partition of it at a time comes to the driver.

        Runs: driver, once per micro-batch, on Spark's callback thread; blocks for the batch and its transaction.
        """
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        rows = batch.withColumn("day", day_of(F.col("until"), self._time_zone)).drop("until")
        try:
            self._store.apply(
                query_id=str(query_id), batch_id=batch_id, rows=map(_row, rows.toLocalIterator(prefetchPartitions=True))
            )
        except DiscoveryError as error:
            self.failure = error
            raise


def tables_of(groups: DataFrame, time_zone: str) -> tuple[Table, Table]:
    """Part the groups of a batch: totals of users, and dead letters. Runs: driver (plans only)."""
    day = day_of(F.col("until"), time_zone).alias("day")
    users = groups.where("reason IS NULL").select(day, "user_id", "events", "checksum")
    dead = groups.where("reason IS NOT NULL").select(*LETTER)
    return Table("daily_users", users, ("day", "user_id")), Table("dead_letters", dead, LETTER[:3])


def start_query(records: DataFrame, writer: Callable[[DataFrame, int], None], options: DauOptions) -> StreamingQuery:
    """Start counting.

    Runs: driver, once; returns when the query is planned.
    """
    stream = (
        group(classify(records, options.clock), options.clock, time_zone=options.time_zone)
        .writeStream.queryName(f"dau-{options.topic}")
        .outputMode("update")
        .option("checkpointLocation", options.checkpoint)
        .foreachBatch(stoppable(writer))
    )
    if options.available_now:
        return stream.trigger(availableNow=True).start()
    return stream.trigger(processingTime=f"{int(options.trigger_interval_seconds * 1_000)} milliseconds").start()


def _row(row: Row) -> DailyUser | DeadLetter:
    if row["reason"] is None:
        return DailyUser(day=row["day"], user_id=row["user_id"], events=row["events"], checksum=row["checksum"])
    letter = {name: row[name] for name in LETTER}
    return DeadLetter(**letter | {"value": None if row["value"] is None else bytes(row["value"])})
