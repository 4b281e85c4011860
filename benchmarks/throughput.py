"""How fast a whole Spark query reads: `make bench-source`, or one case: `python -m benchmarks.throughput 100B-6p`.

Both sources in one run on the same topic, alternating; the first pair is cold and apart. Records come from a plain
producer into a fresh topic; brokers, producer and Spark share the machine. A query reads its topic in one batch; in the
steady cases in four, of which the first is left out, since in it every source builds its consumers.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.chart import Strip, strips
from benchmarks.harness import NATIVE, OURS, produce_all, spark_session
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.results import run_cases, say, summary

PAIRS = 6
"""The first is cold."""
BROKERS = 2
"""One task for each leader, so two tasks here; Spark's own source makes one for each partition."""
FIGURES = ("rows_per_second", "rows_per_second_with_start")
Result = dict[str, Any]
NOTES = (
    "*Steady* queries read their topic in four batches, of which the first, in which every source builds its",
    "consumers, is left out; for 100 partitions Spark's own source was given room for 128 consumers, since it keeps",
    "64 by default.",
    "The other cases read a topic in one batch, its consumers' start included. *Aggregated* is",
    '`groupBy("partition").count()`. With 100 partitions the native source pays for 100 tasks a batch, each with a',
    "consumer of its own. *Load* is the machine's load average before and after a case.",
    "",
    "What bounds it: in a profile of our query over 100 B values the JVM's task threads, which turn Arrow into rows,",
    "take a quarter of the processor time, librdkafka's own threads, the Python workers and the JIT a fifth each, the",
    "brokers an eighth. Half of a worker's share is librdkafka's (a lock and a free for each message), a third the",
    "interpreter's; the compiled loops take 1 %. Without Spark one process reads 2-4 M records of 100 B a second.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One topic and one query."""

    value_bytes: int
    partitions: int
    rows: int
    batches: int = 1
    query: Callable[[DataFrame], DataFrame] = lambda frame: frame
    mode: str = "append"
    settings: tuple[tuple[str, str], ...] = ()
    """Of the Spark session, for both sources."""


def _aggregate(frame: DataFrame) -> DataFrame:
    return frame.groupBy("partition").count()


_ROOM = (("spark.kafka.consumer.cache.capacity", "128"),)
"""Spark's own source keeps 64 consumers by default and would build a hundred again in each batch."""

CASES = {
    "100B-6p": Case(value_bytes=100, partitions=6, rows=12_000_000),
    "100B-100p": Case(value_bytes=100, partitions=100, rows=4_000_000),
    "1KB-6p": Case(value_bytes=1_000, partitions=6, rows=3_600_000),
    "1KB-100p": Case(value_bytes=1_000, partitions=100, rows=1_200_000),
    "100B-6p-steady": Case(value_bytes=100, partitions=6, rows=12_000_000, batches=4),
    "100B-100p-steady": Case(value_bytes=100, partitions=100, rows=4_000_000, batches=4, settings=_ROOM),
    "100B-6p-aggregated": Case(value_bytes=100, partitions=6, rows=12_000_000, query=_aggregate, mode="complete"),
}


def read(spark: SparkSession, bootstrap: str, topic: str, source: str, case: Case) -> dict[str, float]:
    """Run one bounded query over the whole topic into `noop`; rows a second with its start and of its batches alone."""
    began = time.monotonic()
    frame = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", case.rows // case.batches + 1)
        .load()
    )
    writer = case.query(frame).writeStream.format("noop").outputMode(case.mode).trigger(availableNow=True)
    query = writer.start()
    if not query.awaitTermination(300):
        raise SystemExit(f"{source}: the query took more than 300 s")
    seconds = time.monotonic() - began
    raw = [p if isinstance(p, dict) else json.loads(p.json) for p in query.recentProgress]
    batches = [(p["numInputRows"], p["durationMs"]["triggerExecution"] / 1_000) for p in raw if p["numInputRows"]]
    if sum(rows for rows, _ in batches) != case.rows:
        raise SystemExit(f"{source}: {batches} are not {case.rows} rows")
    counted = batches[1:] or batches
    return {
        "rows_per_second": round(sum(rows for rows, _ in counted) / sum(taken for _, taken in counted)),
        "rows_per_second_with_start": round(case.rows / seconds),
        "worker_rss_mib": worker_rss_mib(),
    }


def worker_rss_mib() -> float:
    """Return the most memory that one Python worker holds now."""
    listed = subprocess.run(["ps", "-eo", "rss,args"], capture_output=True, text=True, check=True).stdout
    sizes = [int(line.split()[0]) for line in listed.splitlines() if "pyspark.daemon" in line]
    return round(max(sizes, default=0) / 1024, 1)


def run(case: Case, name: str) -> Result:
    """Compare the two sources on one case."""
    taken: dict[str, list[dict[str, float]]] = {OURS: [], NATIVE: []}
    with (
        LocalKafka(ClusterSettings(brokers=BROKERS)) as cluster,
        spark_session(native=True, settings=case.settings) as spark,
    ):
        cluster.create_topic("events", case.partitions, replication_factor=1)
        # As a plain producer would: no key, no partition, no compression.
        value = bytes(i % 251 for i in range(case.value_bytes))
        produce_all(cluster.bootstrap_servers, "events", ({"value": value} for _ in range(case.rows)))
        for number in range(PAIRS):
            for source in (OURS, NATIVE) if number % 2 else (NATIVE, OURS):
                taken[source].append(read(spark, cluster.bootstrap_servers, "events", source, case))
                say(f"{name} {source}: {taken[source][-1]}")
    result: Result = {"rows": case.rows, "value_bytes": case.value_bytes, "partitions": case.partitions}
    for source, runs in taken.items():
        result[source] = {figure: summary([r[figure] for r in runs[1:]]) for figure in FIGURES}
        result[source] |= {"cold": runs[0], "worker_rss_mib": max(r["worker_rss_mib"] for r in runs)}
    for figure in FIGURES:
        ours, native = (result[source][figure]["values"] for source in (OURS, NATIVE))
        result[f"ratio_{figure}"] = summary([a / b for a, b in zip(ours, native, strict=True)])
        say(f"{name}: {result[f'ratio_{figure}']['p50']} x native ({figure})")
    return result


def section(result: Result) -> str:
    """Tell the figures in words."""
    lines = [_line(name, found) for name, found in _cases(result)]
    cold = "; ".join(
        f"{name} ours {_cold(found, OURS)}, native {_cold(found, NATIVE)}" for name, found in _cases(result)
    )
    return "\n".join(
        [
            "## Throughput",
            "",
            "`make bench-source`: millions of rows a second of a Spark query into `noop`, 2 tasks at a time; median",
            "(extremes) of warm pairs, the sources alternating on one topic in one run. *Batches*: while a batch runs;",
            "*with start*: from `start()` to the end of a query that reads its topic once. Plain producer, fresh",
            "topic, no compression; two brokers with the project's usual JVM options, which compile with C1 alone.",
            "",
            "| case | pairs | batches: ours | native | ratio | with start: ours | native | ratio | load |",
            "|---|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            "![rows a second by case](../../benchmarks/results/throughput.svg)",
            "",
            f"Cold, the first query of a session, with its start: {cold}.",
            "",
            *NOTES,
        ]
    )


def _line(name: str, found: Result) -> str:
    cells = [name, str(found[OURS][FIGURES[0]]["n"])]
    for figure in FIGURES:
        for source in (OURS, NATIVE):
            rates = found[source][figure]
            cells.append(f"{rates['p50'] / 1e6:.2f} ({rates['min'] / 1e6:.2f}-{rates['max'] / 1e6:.2f})")
        cells.append(f"**{found[f'ratio_{figure}']['p50']:.1f}**")
    cells.append(", ".join(f"{load:g}" for load in found.get("load_average", ())) or "not kept")
    return f"| {' | '.join(cells)} |"


def _cases(result: Result) -> list[tuple[str, Result]]:
    return [(name, result[name]) for name in CASES if name in result]


def _cold(found: Result, source: str) -> str:
    return f"{found[source]['cold'][FIGURES[1]] / 1e6:.2f}"


def chart(result: Result) -> str:
    """Draw every warm run."""
    rows = [
        Strip(label=f"{name}, {source}", values=tuple(v / 1e6 for v in found[source][FIGURES[0]]["values"]))
        for name, found in _cases(result)
        for source in (OURS, NATIVE)
    ]
    return strips("Million rows a second while a batch runs, each warm run", rows, unit="M/s")


if __name__ == "__main__":
    run_cases("throughput", {name: partial(run, case, name) for name, case in CASES.items()}, sys.argv[1:])
