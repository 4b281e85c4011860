"""Copy a topic to another, filtered and enriched, exactly once: `python spark_jobs/copy_topic.py --help`.

The transactional pipeline: records and source offsets are committed together, so neither a killed worker, nor a killed
driver, nor a lost checkpoint loses or repeats one. Exit codes: 0 stopped or all read, 1 the query failed, 2 wrong
options, 3 Kafka unreachable.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core.errors import ConfigError
from discovery.spark.jobs.arguments import Job, Parser, add_common, job_of, positive
from discovery.spark.jobs.running import run_job, timed
from discovery.spark.sink.foreach import exactly_once_by_offset
from discovery.spark.sink.options import marker_group
from discovery.spark.sink.pipeline import KEEP, SOURCE_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Everything the job needs to know."""

    job: Job
    where: str | None = None
    add: tuple[tuple[str, str], ...] = ()
    max_offsets_per_trigger: int | None = None
    fail_after: int | None = None


def parse_arguments(arguments: Sequence[str]) -> CopyOptions:
    """Read the command line.

    Raises:
        ConfigError: an option is unknown, missing or wrong; names option, value and remedy.
        SystemExit: `--help` was asked for.

    Runs: main thread.
    """
    parser = Parser(
        prog="copy_topic", description="Copy a topic, filtered and enriched, exactly once.", allow_abbrev=False
    )
    add_common(parser, sink_id="copy")
    parser.add_argument(
        "--where", metavar="SQL", help="keep records of which this is true: text, key, topic, partition, offset"
    )
    parser.add_argument("--header", action="append", default=[], metavar="NAME=SQL", help="add a header to each record")
    parser.add_argument("--max-offsets-per-trigger", metavar="N", help="most records per micro-batch")
    parser.add_argument(
        "--fail-after", metavar="N", help="fail on purpose at the Nth record of a partition: the recovery exercise"
    )
    given = parser.parse_args(arguments)
    headers = tuple(tuple(text.split("=", 1)) for text in given.header)
    if bad := [text for text in given.header if not text.partition("=")[0] or not text.partition("=")[2]]:
        raise ConfigError(f"--header: {bad[0]!r} has no name or no expression; write NAME=SQL")
    return CopyOptions(
        job=job_of(given),
        where=given.where,
        add=headers,
        max_offsets_per_trigger=positive(given.max_offsets_per_trigger, "--max-offsets-per-trigger"),
        fail_after=positive(given.fail_after, "--fail-after"),
    )


def transformed(options: CopyOptions) -> Callable[[DataFrame], DataFrame]:
    """Return what is done to each batch: row by row, so that a replay does the same.

    Runs: driver; plans only.
    """

    def transform(batch: DataFrame) -> DataFrame:
        text = batch.withColumn("text", F.col("value").cast("string"))
        keep = F.coalesce(F.expr(options.where), F.lit(False)) if options.where else F.lit(True)
        if options.fail_after is not None:
            # By offset, so that it is exactly there in any partition, however the batches are cut.
            broken = F.raise_error(F.lit(f"--fail-after {options.fail_after}: broke down on purpose")).cast("boolean")
            keep = F.when(F.col(SOURCE_OFFSET) >= options.fail_after, broken).otherwise(keep)
        shaped = text.withColumn(KEEP, keep)
        if options.add:
            added = [
                F.struct(F.lit(name).alias("key"), F.expr(sql).cast("string").cast("binary").alias("value"))
                for name, sql in options.add
            ]
            shaped = shaped.withColumn("headers", F.array(*added))
        return shaped

    return transform


def start_query(session: SparkSession, options: CopyOptions) -> StreamingQuery:
    """Start copying.

    Raises:
        ConfigError: an option of the sink is wrong.

    Runs: driver, once; returns when the query is planned.
    """
    job = options.job
    source = {
        **job.source,
        # Only where there is no checkpoint, or no longer: go on where the target ends.
        "startingOffsets": "committed",
        "startingOffsetsFallback": job.starting_offsets,
        "kafka.group.id": marker_group(job.sink_id),
    }
    if options.max_offsets_per_trigger is not None:
        source["maxOffsetsPerTrigger"] = str(options.max_offsets_per_trigger)
    write = exactly_once_by_offset({**job.sink, "topic": job.output_topic}, job.topic, transformed(options))
    frame = session.readStream.format("kafka-discovery").options(**source).load()
    writer = frame.writeStream.queryName(f"copy-{job.topic}").foreachBatch(write)
    return timed(writer.option("checkpointLocation", job.checkpoint), job).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. See `running.run_job`."""
    return run_job("copy", arguments, parse_arguments, start_query)


if __name__ == "__main__":
    sys.exit(main())
