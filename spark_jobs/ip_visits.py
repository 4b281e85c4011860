"""Visits per IP address and window, exactly once: `python spark_jobs/ip_visits.py --help`.

Reads an access log topic: JSON objects with `ip` and `ts`, or lines as web servers write them (common log format).
Writes `{"ip": …, "window_start": …, "window_end": …, "visits": …}` under the key `IP|WINDOW_START`; the last record
of a key is its total, and each total is there once. What is no visit goes to the dead letters in the same transactions.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import discovery.spark.jobs.needed  # noqa: F401 - before Spark is imported

# isort: split
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from discovery.config.durations import duration_option
from discovery.core.errors import ConfigError
from discovery.spark.jobs.arguments import Job, add_clock, clock_of, job_of, job_parser
from discovery.spark.jobs.letters import LETTER, Clock, marked
from discovery.spark.jobs.outputs import writer_of
from discovery.spark.jobs.running import read_records, run_job, written
from discovery.spark.jobs.tables import Results

_LOG_LINE = r"^(\S+) \S+ \S+ \[([^\]]+)\] "
_LOG_TIME = "dd/MMM/yyyy:HH:mm:ss Z"
_MOST_CHARACTERS = 64
_CLOCK = Clock(allowed_lateness_seconds=3_600.0, skew_seconds=300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitsOptions:
    """Everything the job needs to know."""

    job: Job
    window_seconds: float = 60.0
    clock: Clock = _CLOCK


def parse_arguments(arguments: Sequence[str]) -> VisitsOptions:
    """Read the command line.

    Raises:
        ConfigError: an option is unknown, missing or wrong; names option, value and remedy.
        SystemExit: `--help` was asked for.

    Runs: main thread; looks at the file system.
    """
    parser = job_parser("ip_visits", "Count visits per IP address and window, exactly.", sink_id="ip-visits")
    parser.add_argument("--window", default="1 minute", metavar="TIME", help="length of a window (default: 1 minute)")
    add_clock(parser, lateness="1 hour")
    given = parser.parse_args(arguments)
    window = duration_option(given.window, option="--window")
    if window < 1:
        raise ConfigError(f"--window: {given.window!r} is shorter than a second")
    return VisitsOptions(job=job_of(given), window_seconds=window, clock=clock_of(given))


def visits(records: DataFrame, options: VisitsOptions) -> DataFrame:
    """Count visits per address and window; each record that is none becomes a group of its own.

    Args:
        records: Columns `value`, `topic`, `partition`, `offset`, as a Kafka source has them; session time zone UTC.
        options: Window and clock.

    Returns:
        `window_start, window_end, ip, visits` and those of a dead letter, see `letters`; use it in update mode.

    Runs: driver (plans only).
    """
    timed = marked(_classified(records, options.clock), options.clock)
    keyed = timed.records.select(timed.event_time(F.col("at"), "at"), "ip", *LETTER)
    length = f"{int(options.window_seconds * 1_000)} milliseconds"
    counted = keyed.groupBy(F.window("at", length), "ip", *LETTER).agg(F.count("*").alias("visits"))
    window = [F.col(f"window.{end}").alias(f"window_{end}") for end in ("start", "end")]
    return counted.select(*window, "ip", "visits", *LETTER)


def _classified(records: DataFrame, clock: Clock) -> DataFrame:
    """Give each record its address and time, or the reason why it is no visit."""
    text = F.col("value").cast("string")
    json = F.try_parse_json(text)
    line = text.rlike(_LOG_LINE)
    found = F.when(line, F.regexp_extract(text, _LOG_LINE, 1)).otherwise(F.try_variant_get(json, "$.ip", "string"))
    ip, moment = F.trim(found), _time(text, json, line)
    has_ip = F.coalesce(F.length(ip).between(1, _MOST_CHARACTERS), F.lit(False))
    reason = (
        F.when(F.col("value").isNull() | (F.length("value") == 0), "empty record")
        .when(~line & json.isNull(), "neither JSON nor a line of a log")
        .when(~has_ip, f"ip is missing, or longer than {_MOST_CHARACTERS} characters")
        .when(moment.isNull(), "ts is not a timestamp")
        .otherwise(clock.problem(moment))
    )
    kept = F.when(reason.isNull(), ip)
    columns = ["topic", "partition", "offset", "value"]
    return records.select(*columns, kept.alias("ip"), moment.alias("ts"), reason.alias("reason"))


def _time(text: Column, json: Column, line: Column) -> Column:
    """ISO 8601 text, milliseconds since the epoch, or the time of a log line."""
    kept = F.try_variant_get(json, "$.ts", "string")
    number = F.try_variant_get(json, "$.ts", "bigint")
    logged = F.try_to_timestamp(F.regexp_extract(text, _LOG_LINE, 2), F.lit(_LOG_TIME))
    return F.when(line, logged).otherwise(
        F.coalesce(F.timestamp_millis(F.when(number.between(0, 253_402_300_799_999), number)), F.try_to_timestamp(kept))
    )


def results() -> Results:
    """Return what is written of each address and window. Runs: driver (plans only)."""
    iso = {name: F.date_format(name, "yyyy-MM-dd'T'HH:mm:ss'Z'") for name in ("window_start", "window_end")}
    columns = {"ip": F.col("ip"), **iso, "visits": F.col("visits")}
    return Results("visits", columns, ("ip", "window_start"), dead_letters="visits_dead_letters")


def start_query(session: SparkSession, options: VisitsOptions) -> StreamingQuery:
    """Start counting.

    Raises:
        ConfigError: an option of the sink is wrong.
        KafkaUnreachableError: `--output kafka`, and nobody answers within `startupTimeout`.

    Runs: driver, once; returns when the query is planned, with `--output kafka` once brokers have answered.
    """
    job = options.job
    write = writer_of(job.output, results(), job="ip_visits", checkpoint=job.checkpoint)
    return written(visits(read_records(session, job), options), write, "ip-visits", job)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. See `running.run_job`."""
    return run_job("ip_visits", arguments, parse_arguments, start_query)


if __name__ == "__main__":
    sys.exit(main())
