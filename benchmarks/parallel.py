"""Tasks follow the work: `make bench-parallel`, or one case: `python -m benchmarks.parallel slow`.

120 partitions on three brokers, eight slots, both sources in one session on one topic, the order alternating. What runs
in the slots sleeps, or reads; two cores carry eight sleepers.
"""

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from benchmarks.harness import NATIVE, OURS, fill, spark_session
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.results import run_cases, say, summary

PARTITIONS, BROKERS, SLOTS = 120, 3, 8
PAIRS = 3
"""The first one is left out."""
Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is read, in which batches, and how long a record takes."""

    per_partition: int
    per_batch: int | None
    sleep_seconds: float = 0.0


CASES = {
    "backlog": Case(per_partition=20_000, per_batch=None),
    "slow": Case(per_partition=750, per_batch=30_000, sleep_seconds=0.001),
    "steady": Case(per_partition=15, per_batch=120),
}


def run(name: str) -> Result:
    """Read one topic with both sources, pair by pair; seconds inside of batches."""
    case = CASES[name]
    taken: dict[str, list[float]] = {OURS: [], NATIVE: []}
    with (
        LocalKafka(ClusterSettings(brokers=BROKERS)) as cluster,
        spark_session(SLOTS, native=True) as spark,
    ):
        cluster.create_topic("events", PARTITIONS, replication_factor=1)
        fill(cluster.bootstrap_servers, "events", PARTITIONS, case.per_partition)
        for number in range(PAIRS):
            for source in (OURS, NATIVE) if number % 2 else (NATIVE, OURS):
                taken[source].append(_read(spark, cluster.bootstrap_servers, source, case))
                say(f"{name} {source}: {taken[source][-1]:.2f} s")
    ratios = [ours / native for ours, native in zip(taken[OURS][1:], taken[NATIVE][1:], strict=True)]
    say(f"{name}: {statistics.median(ratios):.2f} x native")
    return {OURS: summary(taken[OURS][1:]), NATIVE: summary(taken[NATIVE][1:]), "ratio": summary(ratios)}


def _read(spark: SparkSession, bootstrap: str, source: str, case: Case) -> float:
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap).option("subscribe", "events")
    reader = reader.option("startingOffsets", "earliest")
    if case.per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", case.per_batch)
    if source == OURS:
        reader = reader.option("stateDir", str(folder / "state"))
    rows = reader.load().select("value")
    if case.sleep_seconds:
        rows = rows.select(F.udf(_sleeper(case.sleep_seconds), "binary")("value"))
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(600):
            raise SystemExit(f"{source}: not at its end after 600 s")
        found = [p if isinstance(p, dict) else json.loads(p.json) for p in query.recentProgress]
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    read = sum(p["numInputRows"] for p in found)
    if read != PARTITIONS * case.per_partition:
        raise SystemExit(f"{source}: {read} rows are not {PARTITIONS * case.per_partition}")
    return sum(float(p["durationMs"]["triggerExecution"]) for p in found if p["numInputRows"]) / 1_000


def _sleeper(seconds: float) -> Callable[[bytes], bytes]:
    def work(value: bytes) -> bytes:
        time.sleep(seconds)
        return value

    return work


def section(result: Result) -> str:
    """Show the figures as a table."""
    lines = [_line(name, result[name]) for name in CASES if name in result]
    return "\n".join(
        [
            "## Parallelism",
            "",
            "`make bench-parallel`: seconds inside of batches, median of warm pairs in one session; 120 partitions on",
            "three brokers, eight slots on two cores. *backlog*: 2.4 million records in one batch; *slow*: 30 000 a",
            "batch, each 1 ms in a Python function that sleeps; *steady*: 120 a batch. Goal: at most 1.1 x.",
            "",
            "| case | pairs | kafka-discovery | Spark's own source | ratio (extremes) | load |",
            "|---|---|---|---|---|---|",
            *lines,
        ]
    )


def _line(name: str, found: Result) -> str:
    ratio, load = found["ratio"], ", ".join(f"{load:g}" for load in found["load_average"])
    seconds = [f"{found[source]['p50']:.2f} s" for source in (OURS, NATIVE)]
    ratios = f"{ratio['p50']:.2f} ({ratio['min']:.2f}-{ratio['max']:.2f})"
    return f"| {' | '.join([name, str(ratio['n']), *seconds, ratios, load])} |"


if __name__ == "__main__":
    run_cases("parallel", {name: partial(run, name) for name in CASES}, sys.argv[1:])
