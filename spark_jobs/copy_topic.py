"""Copy a topic to another, filtered and enriched, exactly once: `python spark_jobs/copy_topic.py --help`.

The transactional pipeline: records and source offsets are committed together, so neither a killed worker, nor a killed
driver, nor a lost checkpoint loses or repeats one. Exit codes: 0 stopped or all read, 1 the query failed, 2 wrong
options, 3 Kafka unreachable.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core.errors import ConfigError
from discovery.spark.jobs.arguments import Job, Parser, add_common, job_of, positive
from discovery.spark.jobs.running import run_job, timed
from discovery.spark.sink.foreach import exactly_once_by_offset
from discovery.spark.sink.options import marker_group
from discovery.spark.sink.pipeline import KEEP, SOURCE_OFFSET, SOURCE_PARTITION

_NO_HEADERS = "cast(array() AS array<struct<key: string, value: binary>>)"


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
    add_common(parser, sink_id="copy", dead_letters="none, they end the job")
    parser.add_argument(
        "--where", metavar="SQL", help="keep records of which this is true: text, key, topic, partition, offset"
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=SQL", help="add a header to a record's own"
    )
    parser.add_argument("--max-offsets-per-trigger", metavar="N", help="most records per micro-batch")
    parser.add_argument(
        "--fail-after", metavar="N", help="fail on purpose after the Nth record of this run: the recovery exercise"
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
    read = 0

    def transform(batch: DataFrame) -> DataFrame:
        nonlocal read
        text = batch.withColumn("text", F.col("value").cast("string"))
        keep = F.coalesce(F.expr(options.where), F.lit(False)) if options.where else F.lit(True)
        if options.fail_after is not None:
            number = F.row_number().over(Window.orderBy(SOURCE_PARTITION, SOURCE_OFFSET)) + read
            broken = F.raise_error(F.lit(f"--fail-after {options.fail_after}: broke down on purpose")).cast("boolean")
            text = text.withColumn("__number", number)
            keep = F.when(F.col("__number") > options.fail_after, broken).otherwise(keep)
            read += batch.count()
        added = [
            F.struct(F.lit(name).alias("key"), F.expr(sql).cast("string").cast("binary").alias("value"))
            for name, sql in options.add
        ]
        # Without a header of its own a record's are null.
        headers = F.concat(F.coalesce("headers", F.expr(_NO_HEADERS)), F.array(*added)) if added else F.col("headers")
        return text.withColumns({KEEP: keep, "headers": headers})

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
        "includeHeaders": "true",
        # Only where there is no checkpoint, or no longer: go on where the target ends.
        "startingOffsets": "committed",
        "startingOffsetsFallback": job.starting_offsets,
        "kafka.group.id": marker_group(job.sink_id),
    }
    if options.max_offsets_per_trigger is not None:
        source["maxOffsetsPerTrigger"] = str(options.max_offsets_per_trigger)
    sink = {**job.sink, "topic": job.output_topic}
    if job.dead_letter_topic is not None:
        sink |= {"onBadRecord": "dead-letter", "deadLetterTopic": job.dead_letter_topic}
    write = exactly_once_by_offset(sink, job.topic, transformed(options))
    frame = session.readStream.format("kafka-discovery").options(**source).load()
    writer = frame.writeStream.queryName(f"copy-{job.topic}").foreachBatch(write)
    return timed(writer.option("checkpointLocation", job.checkpoint), job).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. See `running.run_job`."""
    return run_job("copy", arguments, parse_arguments, start_query)


if __name__ == "__main__":
    sys.exit(main())
