"""Visits per IP address and window, exactly once: `python spark_jobs/ip_visits.py --help`.

Reads an access log topic: JSON objects with `ip` and `ts`, or lines as web servers write them (common log format).
Writes `{"ip": …, "window_start": …, "window_end": …, "visits": …}` under the key `IP|WINDOW_START`; the last record
of a key is its total, and each total is there once. Exit codes: 0 stopped or all read, 1 the query failed, 2 wrong
options, 3 Kafka unreachable.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from discovery.config.durations import duration_option
from discovery.core.errors import ConfigError
from discovery.spark.jobs.arguments import Job, Parser, add_common, job_of
from discovery.spark.jobs.running import run_job, timed
from discovery.spark.sink import exactly_once

_LOG_LINE = r"^(\S+) \S+ \S+ \[([^\]]+)\] "
_LOG_TIME = "dd/MMM/yyyy:HH:mm:ss Z"
_EARLIEST = "2000-01-01 00:00:00"
_MAX_AHEAD = "INTERVAL 1 DAY"
_MOST_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitsOptions:
    """Everything the job needs to know."""

    job: Job
    window_seconds: float = 60.0
    allowed_lateness_seconds: float = 3_600.0


def parse_arguments(arguments: Sequence[str]) -> VisitsOptions:
    """Read the command line.

    Raises:
        ConfigError: an option is unknown, missing or wrong; names option, value and remedy.
        SystemExit: `--help` was asked for.

    Runs: main thread.
    """
    parser = Parser(prog="ip_visits", description="Count visits per IP address and window.", allow_abbrev=False)
    add_common(parser, sink_id="ip-visits")
    parser.add_argument("--window", default="1 minute", metavar="TIME", help="length of a window (default: 1 minute)")
    parser.add_argument(
        "--allowed-lateness", default="1 hour", metavar="TIME", help="how late a visit may come (default: 1 hour)"
    )
    given = parser.parse_args(arguments)
    window = duration_option(given.window, option="--window")
    if window < 1:
        raise ConfigError(f"--window: {given.window!r} is shorter than a second")
    return VisitsOptions(
        job=job_of(given),
        window_seconds=window,
        allowed_lateness_seconds=duration_option(given.allowed_lateness, option="--allowed-lateness", above_zero=False),
    )


def visits(records: DataFrame, options: VisitsOptions) -> DataFrame:
    """Count visits per address and window; records that are none are left out, and counted as `malformed`.

    Args:
        records: A column `value`, as a Kafka source has it; session time zone UTC.
        options: Window and lateness.

    Returns:
        `window_start, window_end, ip, visits`; use it in update mode.

    Runs: driver (plans only).
    """
    text = F.col("value").cast("string")
    json = F.try_parse_json(text)
    line = text.rlike(_LOG_LINE)
    ip = F.when(line, F.regexp_extract(text, _LOG_LINE, 1)).otherwise(F.try_variant_get(json, "$.ip", "string"))
    parsed = records.select(F.trim(ip).alias("ip"), _time(text, json, line).alias("ts"))
    ip_is_sound = F.length("ip").between(1, _MOST_CHARACTERS)
    ts_is_sound = F.col("ts").between(F.lit(_EARLIEST).cast("timestamp"), F.current_timestamp() + F.expr(_MAX_AHEAD))
    is_sound = F.coalesce(ip_is_sound & ts_is_sound, F.lit(False))
    kept = parsed.observe("records", F.count(F.lit(1)).alias("all"), F.count_if(~is_sound).alias("malformed")).where(
        is_sound
    )
    lateness = f"{int(options.allowed_lateness_seconds * 1_000)} milliseconds"
    length = f"{int(options.window_seconds * 1_000)} milliseconds"
    counted = kept.withWatermark("ts", lateness).groupBy(F.window("ts", length), "ip").agg(F.count("*").alias("visits"))
    return counted.select(
        F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "ip", "visits"
    )


def _time(text: Column, json: Column, line: Column) -> Column:
    """ISO 8601 text, milliseconds since the epoch, or the time of a log line."""
    kept = F.try_variant_get(json, "$.ts", "string")
    number = F.try_variant_get(json, "$.ts", "bigint")
    logged = F.try_to_timestamp(F.regexp_extract(text, _LOG_LINE, 2), F.lit(_LOG_TIME))
    return F.when(line, logged).otherwise(
        F.coalesce(F.timestamp_millis(F.when(number.between(0, 253_402_300_799_999), number)), F.try_to_timestamp(kept))
    )


def shaped(counted: DataFrame) -> DataFrame:
    """Return what is written: one record per address and window whose total changed.

    Runs: driver (plans only).
    """
    start = F.date_format("window_start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    end = F.date_format("window_end", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return counted.select(
        F.concat_ws("|", "ip", start).alias("key"),
        F.to_json(F.struct("ip", start.alias("window_start"), end.alias("window_end"), "visits")).alias("value"),
    )


def start_query(session: SparkSession, options: VisitsOptions) -> StreamingQuery:
    """Start counting.

    Raises:
        ConfigError: an option of the sink is wrong.

    Runs: driver, once; returns when the query is planned.
    """
    job = options.job
    write = exactly_once({**job.sink, "topic": job.output_topic}, "key", transform=shaped)
    records = session.readStream.format("kafka-discovery").options(**job.source).load()
    writer = visits(records, options).writeStream.queryName(f"ip-visits-{job.topic}").outputMode("update")
    return timed(writer.option("checkpointLocation", job.checkpoint).foreachBatch(write), job).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. See `running.run_job`."""
    return run_job("ip_visits", arguments, parse_arguments, start_query)


if __name__ == "__main__":
    sys.exit(main())
