"""The exactly-once sink beside Spark's own, which is at-least-once: `python -m benchmarks.sink [case…]`.

Both sinks write what the same source reads, alternating in one run on one cluster; ratios within a run count.
"""

import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from benchmarks.empty_sink import NAME as EMPTY
from benchmarks.empty_sink import EmptySink
from benchmarks.harness import NATIVE, OURS, make_producer, produce_all, spark_session
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from discovery.spark.sink import with_lanes
from tests.support.results import refuse_unknown, run_cases, say, summary

BROKERS = 3
LANES = 4
PAIRS = 3
SMALL_BATCHES = 15
_TRIGGER = "1 second"
_WAIT_SECONDS = 240.0
_LEAST_RATIO, _MOST_RATIO = 1.3, 1.3
"""Throughput, and times, beside Spark's own."""
Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What flows through a query whose throughput is taken."""

    value_bytes: int
    rows: int
    batches: int = 4


LOADS = {"100B": Load(value_bytes=100, rows=1_600_000), "1KB": Load(value_bytes=1_000, rows=480_000)}


# -- throughput ---------------------------------------------------------------------------------------------------


def throughput(name: str, cluster: LocalKafka, spark: SparkSession) -> Result:
    """Rows a second while batches run, of each sink, and their ratio by pairs."""
    load, servers = LOADS[name], cluster.bootstrap_servers
    cluster.create_topic(f"in-{name}", LANES, replication_factor=1)
    _fill(servers, f"in-{name}", load)
    taken: dict[str, list[float]] = {OURS: [], NATIVE: []}
    for number in range(PAIRS + 1):
        for sink in (OURS, NATIVE) if number % 2 else (NATIVE, OURS):
            topic = f"out-{name}-{sink}-{number}"
            cluster.create_topic(topic, LANES, replication_factor=3, config={"min.insync.replicas": "2"})
            taken[sink].append(_copied(spark, servers, f"in-{name}", topic, sink=sink, load=load))
            say(f"{name} {sink}: {taken[sink][-1]:.0f} rows/s")
            cluster.delete_topic(topic)
    ratios = [ours / native for ours, native in zip(taken[OURS][1:], taken[NATIVE][1:], strict=True)]
    say(f"{name}: {statistics.median(ratios):.2f} x native")
    return {
        "rows": load.rows,
        "value_bytes": load.value_bytes,
        **{sink: summary(values[1:]) | {"cold": round(values[0])} for sink, values in taken.items()},
        "ratio": summary(ratios),
    }


def _fill(servers: str, topic: str, load: Load) -> None:
    value = bytes(i % 251 for i in range(load.value_bytes))
    records = ({"value": value, "key": str(n).encode(), "partition": n % LANES} for n in range(load.rows))
    produce_all(servers, topic, records)


def _copied(spark: SparkSession, servers: str, source: str, target: str, *, sink: str, load: Load) -> float:
    options = {"maxOffsetsPerTrigger": str(load.rows // load.batches)}
    with _query(spark, servers, source, target, sink, options=options) as query:
        batches = _batches(query, lambda found: sum(rows for rows, _ in found) >= load.rows)
    # The first batch builds consumers and starts workers.
    return sum(rows for rows, _ in batches[1:]) / sum(seconds for _, seconds in batches[1:])


# -- small batches ------------------------------------------------------------------------------------------------


def small(cluster: LocalKafka, spark: SparkSession) -> Result:
    """Milliseconds of a batch of ten records, and of one in which nothing is left to write."""
    result: Result = {"slots": spark.sparkContext.defaultParallelism}
    spark.dataSource.register(EmptySink)
    for kind, keep in (("ten_records", lambda frame: frame), ("nothing", lambda frame: frame.where("value = 'x'"))):
        for sink in (NATIVE, EMPTY, OURS):
            values = _small(cluster, spark, f"{kind}-{sink}", sink, keep)
            result.setdefault(kind, {})[sink] = summary([seconds * 1_000 for seconds in values])
            say(f"{kind} {sink}: {result[kind][sink]['p50']:.0f} ms")
    return result


def _small(
    cluster: LocalKafka, spark: SparkSession, name: str, sink: str, keep: Callable[[DataFrame], DataFrame]
) -> list[float]:
    source, target, servers = f"{name}-in", f"{name}-out", cluster.bootstrap_servers
    for topic in (source, target):
        cluster.create_topic(topic, LANES, replication_factor=3)
    with _query(spark, servers, source, target, sink, keep=keep) as query, _dripping(servers, source):
        return [seconds for _, seconds in _batches(query, lambda found: len(found) > SMALL_BATCHES)[1:]]


@contextlib.contextmanager
def _dripping(servers: str, topic: str) -> Iterator[None]:
    """Write ten records every second."""
    over = threading.Event()

    def drip() -> None:
        producer, number = make_producer(servers), 0
        while not over.wait(1.0):
            for _ in range(10):
                producer.produce(topic, b"v", str(number).encode())
                number += 1
            producer.flush(5)

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


# -- visible ------------------------------------------------------------------------------------------------------


def visible(cluster: LocalKafka, spark: SparkSession) -> Result:
    """Milliseconds from a batch's trigger until a read_committed reader has its records."""
    result: Result = {"slots": spark.sparkContext.defaultParallelism}
    stamped = "cast(cast(unix_millis(current_timestamp()) as string) as binary)"
    for sink in (NATIVE, OURS):
        source, target = f"visible-{sink}-in", f"visible-{sink}-out"
        for topic in (source, target):
            cluster.create_topic(topic, LANES, replication_factor=3)
        servers = cluster.bootstrap_servers
        with (
            _watching(servers, target) as seen,
            _query(
                spark, servers, source, target, sink, keep=lambda frame: frame.selectExpr("key", f"{stamped} as value")
            ) as query,
            _dripping(servers, source),
        ):
            _batches(query, lambda found: len(found) > 2 * SMALL_BATCHES)
        result[sink] = summary([value * 1_000 for value in seen[20:]])
        say(f"visible {sink}: p50 {result[sink]['p50']:.0f} ms, p99 {result[sink]['p99']:.0f} ms")
    return result


@contextlib.contextmanager
def _watching(servers: str, topic: str) -> Iterator[list[float]]:
    """Collect how long after its batch's trigger each record is read."""
    found: list[float] = []
    over = threading.Event()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "watch",
            "fetch.wait.max.ms": 20,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(LANES)])

    def watch() -> None:
        while not over.is_set():
            # One by one: `consume` waits for its number of records, or to its timeout.
            message = consumer.poll(0.005)
            if message is not None and message.error() is None:
                found.append(time.time() - int(message.value() or b"0") / 1_000)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(10)
        consumer.close()


# -- queries ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _query(
    spark: SparkSession,
    servers: str,
    source: str,
    target: str,
    sink: str,
    *,
    keep: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    options: dict[str, str] | None = None,
) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="bench-sink-") as folder:
        read = spark.readStream.format(OURS).option("kafka.bootstrap.servers", servers).option("subscribe", source)
        read = read.option("startingOffsets", "earliest").options(**(options or {}))
        frame = keep(read.option("stateDir", f"{folder}/state").load().select("key", "value"))
        if sink != NATIVE:
            frame = with_lanes(frame, "key", lanes=LANES)
        write = frame.writeStream.format(sink).option("kafka.bootstrap.servers", servers).option("topic", target)
        if sink == OURS:
            write = write.option("sinkId", target).option("lanes", LANES).option("stateDir", f"{folder}/state")
        write = write.option("checkpointLocation", f"{folder}/checkpoint").trigger(processingTime=_TRIGGER)
        query = write.start()
        try:
            yield query
        finally:
            query.stop()


def _batches(query: Any, enough: Callable[[list[tuple[int, float]]], bool]) -> list[tuple[int, float]]:
    """Return (input rows, seconds) of the batches with rows, once there are enough."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        raw = [p if isinstance(p, dict) else json.loads(p.json) for p in query.recentProgress]
        found = [(p["numInputRows"], p["durationMs"]["triggerExecution"] / 1_000) for p in raw if p["numInputRows"]]
        if enough(found):
            return found
        if not query.isActive:
            raise SystemExit(f"the query ended: {query.exception()}")
        if time.monotonic() > deadline:
            raise SystemExit(f"not enough batches in {_WAIT_SECONDS:g} s: {found}")
        time.sleep(0.1)


# -- all of it ----------------------------------------------------------------------------------------------------


def section(result: Result) -> str:
    """Tell the figures in words."""
    lines = [
        "## Sink",
        "",
        *INTRODUCTION,
        "",
        "| what | kafka-discovery, exactly once | Spark's own, at least once | ratio and goal |",
    ]
    lines.append("|---|---|---|---|")
    for name, load in LOADS.items():
        if name in result:
            found = result[name]
            ours, native = (f"{found[s]['p50'] / 1e3:.0f} k rows/s" for s in (OURS, NATIVE))
            ratio = found["ratio"]
            lines.append(
                f"| {load.value_bytes} B, {LANES} lanes, n = {ratio['n']} pairs | {ours} | {native} | "
                f"**{ratio['p50']:.2f}** ({ratio['min']:.2f}-{ratio['max']:.2f}), goal >= {_LEAST_RATIO} |"
            )
    lines += list(_latency_lines(result))
    loads = ", ".join(
        f"{name} {result[name]['load_average']}" for name in (*CASES, "recovery", "hanging") if name in result
    )
    return "\n".join([*lines, "", *NOTES, "", f"Load averages before and after: {loads}."])


def _latency_lines(result: Result) -> Iterator[str]:
    kinds = {"ten_records": "a batch of ten records", "nothing": "a batch with nothing left to write"}
    for kind, words in kinds.items():
        if found := result.get("small", {}).get(kind):
            ours, native = found[OURS]["p50"], found[NATIVE]["p50"]
            reported = f"**{ours / native:.2f}**, {ours - native:+.0f} ms"
            reported += f", goal <= {_MOST_RATIO}" if kind == "nothing" else ""
            if EMPTY in found:
                empty = found[EMPTY]["p50"]
                reported += f"; {ours - empty:+.0f} ms beside a Python sink that does nothing ({empty / native:.2f})"
            slots = _slots(result["small"])
            yield f"| {words}{slots}, whole trigger, p50 | {ours:.0f} ms | {native:.0f} ms | {reported} |"
    if found := result.get("visible"):
        ours, native = (f"p50 {found[s]['p50']:.0f} ms, p99 {found[s]['p99']:.0f} ms" for s in (OURS, NATIVE))
        ratio = f"p50 **{found[OURS]['p50'] / found[NATIVE]['p50']:.2f}**, goal <= {_MOST_RATIO}"
        yield f"| trigger to visible, read_committed reader{_slots(found)} | {ours} | {native} | {ratio} |"
    if found := result.get("recovery"):
        who = "one of two executors" if "complete" in found else "executor"
        for words, values in (("the next visible row", found), ("the end of its batch", found.get("complete"))):
            if values is not None:
                seconds = f"p50 {values['p50']:.1f} s, max {values['max']:.1f} s (n = {values['n']})"
                yield f"| {who} killed in mid-transaction, to {words} | {seconds} | not run | <= 5 s |"
    if found := result.get("hanging"):
        seconds = f"max {found['max']:.1f} s (n = {found['n']})"
        what = "open transaction of a task that nobody tries again, timeout 10 s, from its begin"
        yield f"| {what} | {seconds} | - | <= 20 s |"


def _slots(found: Result) -> str:
    return f", {found['slots']} task slots" if "slots" in found else ""


INTRODUCTION = (
    "`make bench-sink`. Three brokers, three replicas, trigger 1 s, four partitions and four lanes on two cores; both",
    "sinks write what the same source reads, in turn. Throughput counts batches after a query's first. Spark's own",
    "sink needs no shuffle; ours gets its rows by `with_lanes`, which is part of the figure.",
)
NOTES = (
    "What a small batch pays for, in a profile: a lane looks at its marker (5-30 ms), makes a producer and initialises",
    "it (40 ms; half a second in every second to fourth task before",
    "[decision 31](../decisions/0031-what-the-sink-asks-and-what-it-leaves.md)), reads two notes (5 ms), writes,",
    "adds the marker and commits (15-80 ms); the process that confirms the",
    "batch reads and writes the control record (50-100 ms while it opened connections for each batch; now they stay",
    "open). A Python sink that does nothing takes longer than the goals of a small batch allow",
    "([decision 53](../decisions/0053-what-a-python-sink-costs-by-itself.md)). One lane and a longer trigger are",
    "cheaper. This sink has no at-least-once mode.",
)
CASES: dict[str, Callable[[LocalKafka, SparkSession], Result]] = {
    **{name: partial(throughput, name) for name in LOADS},
    "small": small,
    "visible": visible,
}
SLOTS = {"small": LANES, "visible": LANES}
"""Of Spark's tasks, beside two: where little is written, lanes wait for brokers, not for a core."""


def main(names: Sequence[str]) -> None:
    """Run the cases on one cluster, each in a session of its own."""
    refuse_unknown("sink", CASES, names)
    with LocalKafka(ClusterSettings(brokers=BROKERS)) as cluster:
        run_cases("sink", {name: partial(_in_session, name, cluster) for name in CASES}, names)


def _in_session(name: str, cluster: LocalKafka) -> Result:
    with spark_session(SLOTS.get(name, 2), native=True) as spark:
        return CASES[name](cluster, spark)


if __name__ == "__main__":
    main(sys.argv[1:])
