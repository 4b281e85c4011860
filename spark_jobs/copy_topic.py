"""Copy a topic to another, filtered and enriched, exactly once: `python spark_jobs/copy_topic.py --help`.

The transactional pipeline: records and source offsets are committed together, so neither a killed worker, nor a killed
driver, nor a lost checkpoint loses or repeats one. To a table: each record under its topic, partition and offset.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import discovery.spark.jobs.needed  # noqa: F401 - before Spark is imported

# isort: split
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core.errors import ConfigError
from discovery.spark.jobs.arguments import SOURCE, Job, job_of, job_parser
from discovery.spark.jobs.outputs import KafkaOutput, writer_of
from discovery.spark.jobs.running import read_records, run_job, written
from discovery.spark.jobs.tables import Results
from discovery.spark.jobs.texts import positive
from discovery.spark.sink.foreach import exactly_once_by_offset
from discovery.spark.sink.options import marker_group
from discovery.spark.sink.pipeline import KEEP, SOURCE_OFFSET, SOURCE_PARTITION

_KEY = ("topic", "partition", "offset")
_NO_HEADERS = "cast(array() AS array<struct<key: string, value: binary>>)"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """Everything the job needs to know."""

    job: Job
    where: str | None = None
    add: tuple[tuple[str, str], ...] = ()
    fail_after: int | None = None


def parse_arguments(arguments: Sequence[str]) -> CopyOptions:
    """Read the command line.

    Raises:
        ConfigError: an option is unknown, missing or wrong; names option, value and remedy.
        SystemExit: `--help` was asked for.

    Runs: main thread.
    """
    about = "Copy a topic, filtered and enriched, exactly once."
    parser = job_parser("copy_topic", about, sink_id="copy", dead_letters="none, they end the job")
    parser.add_argument(
        "--where", metavar="SQL", help="keep records of which this is true: text, key, topic, partition, offset"
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="NAME=SQL", help="add a header to a record's own"
    )
    parser.add_argument(
        "--fail-after", metavar="N", help="fail on purpose after the Nth record of this run: the recovery exercise"
    )
    given = parser.parse_args(arguments)
    headers = tuple(tuple(text.split("=", 1)) for text in given.header)
    if bad := [text for text in given.header if not text.partition("=")[0] or not text.partition("=")[2]]:
        raise ConfigError(f"--header: {bad[0]!r} has no name or no expression; write NAME=SQL")
    job = job_of(given)
    if isinstance(job.output, KafkaOutput) and given.format != SOURCE:
        raise ConfigError(f"--format: {given.format!r} cannot begin where the target ends; leave it out")
    return CopyOptions(
        job=job,
        where=given.where,
        add=headers,
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
    job, output = options.job, options.job.output
    if isinstance(output, KafkaOutput):
        # Only where there is no checkpoint, or no longer: go on where the target ends.
        first = {"startingOffsets": "committed", "startingOffsetsFallback": dict(job.source)["startingOffsets"]}
        frame = read_records(
            session, job, includeHeaders="true", **first, **{"kafka.group.id": marker_group(output.sink_id)}
        )
        write = exactly_once_by_offset({**output.sink, "topic": output.topic}, job.topic, transformed(options))
    else:
        frame = read_records(session, job, includeHeaders="true")
        write = _table_writer(options)
    return written(frame, write, "copy", job)


def _table_writer(options: CopyOptions) -> Callable[[DataFrame, int], None]:
    job, transform = options.job, transformed(options)
    columns = {name: F.col(name) for name in (*_KEY, "key", "value")} | {
        "timestamp": F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
        "headers": F.to_json("headers"),
    }
    tables = writer_of(job.output, Results("records", columns, _KEY), job="copy_topic", checkpoint=job.checkpoint)

    def write(batch: DataFrame, batch_id: int) -> None:
        placed = batch.withColumns({SOURCE_PARTITION: batch["partition"], SOURCE_OFFSET: batch["offset"]})
        tables(transform(placed).where(KEEP), batch_id)

    return write


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. See `running.run_job`."""
    return run_job("copy", arguments, parse_arguments, start_query)


if __name__ == "__main__":
    sys.exit(main())
