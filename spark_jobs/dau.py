"""Daily active users, exactly: `python spark_jobs/dau.py --help`.

Reads JSON objects with `event_id`, `user_id`, `ip` and `ts`; writes the total of each user and day under `DAY|USER`,
and dead letters. A total says how many events there were and the sum of the CRC-32 of their ids, which tells a lost
and a doubled event apart from none.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import discovery.spark.jobs.needed  # noqa: F401 - before Spark is imported

# isort: split
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core.errors import ConfigError
from discovery.spark.jobs.arguments import Job, add_clock, clock_of, job_of, job_parser
from discovery.spark.jobs.dau_events import classify, day_of, group
from discovery.spark.jobs.letters import Clock
from discovery.spark.jobs.outputs import writer_of
from discovery.spark.jobs.running import read_records, run_job, written
from discovery.spark.jobs.tables import Results

_CLOCK = Clock(allowed_lateness_seconds=86_400.0, skew_seconds=300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DauOptions:
    """Everything the job needs to know."""

    job: Job
    clock: Clock = _CLOCK
    time_zone: str = "UTC"


def parse_arguments(arguments: Sequence[str]) -> DauOptions:
    """Read the command line.

    Raises:
        ConfigError: an option is unknown, missing, wrong or in conflict; names option, value and remedy.
        SystemExit: `--help` was asked for.

    Runs: main thread; looks at the file system.
    """
    parser = job_parser("dau", "Count daily active users, exactly, from a Kafka topic.", sink_id="dau")
    zone = "in which days begin, for a checkpoint's life (default: UTC)"
    parser.add_argument("--time-zone", default="UTC", metavar="NAME", help=zone)
    add_clock(parser, lateness="1 day")
    given = parser.parse_args(arguments)
    return DauOptions(job=job_of(given), clock=clock_of(given), time_zone=_time_zone(given.time_zone))


def _time_zone(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"--time-zone: {name!r} is unknown; write for example 'UTC' or 'Europe/Berlin'") from None


def results(time_zone: str) -> Results:
    """Return what is written of each user and day. Runs: driver (plans only)."""
    day = day_of(F.col("until"), time_zone)
    columns = {"day": day} | {name: F.col(name) for name in ("user_id", "events", "checksum")}
    return Results("daily_users", columns, ("day", "user_id"))


def count(records: DataFrame, options: DauOptions) -> StreamingQuery:
    """Start counting records of a Kafka source.

    Raises:
        ConfigError: an option of the sink is wrong.
        KafkaUnreachableError: `--output kafka`, and nobody answers within `startupTimeout`.

    Runs: driver, once; returns when the query is planned, with `--output kafka` once brokers have answered.
    """
    job, clock = options.job, options.clock
    counted = group(classify(records, clock), clock, time_zone=options.time_zone)
    write = writer_of(job.output, results(options.time_zone), job="dau", checkpoint=job.checkpoint)
    return written(counted, write, "dau", job)


def start_query(session: SparkSession, options: DauOptions) -> StreamingQuery:
    """Start counting. See `count`."""
    return count(read_records(session, options.job), options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job. See `running.run_job`."""
    return run_job("dau", arguments, parse_arguments, start_query)


if __name__ == "__main__":
    sys.exit(main())
