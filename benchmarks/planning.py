"""What planning costs the driver: `make bench-planning`, or one case: `python -m benchmarks.planning simulated`.

`simulated`: our planner over views written by hand, no broker, with the JSON that Spark reads and writes around
each call. `brokers`: both sources over real topics, by the durations that Spark reports of its own triggers.
"""

import contextlib
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.harness import NATIVE, OURS, fill, running_query, spark_session
from discovery.core.model import (
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    LoopState,
    TopicId,
    TopicName,
    TopicPartition,
)
from discovery.feed.base import FeedView, PartitionView
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.planning.planner import Planner
from tests.support.fakes.feed import ScriptedFeed
from tests.support.results import environment, kept_result, load_noted, refuse_unknown, say, summary, write_result

SIZES = (1_000, 10_000, 50_000)
REAL_SIZES = (1_000, 10_000)
BROKERS = 3
PER_TOPIC = 1_000
ROUNDS = 15
BATCHES = 5
Result = dict[str, Any]
_OPTIONS = {"kafka.bootstrap.servers": "b1:9092", "subscribePattern": "t.*", "startingOffsets": "earliest"}


def simulated() -> Result:
    """Our planner and its JSON at each size: nothing new, 1 % of the partitions grew, all of them grew."""
    return {str(size): _simulate(size) for size in SIZES}


def _simulate(size: int) -> Result:
    feed = ScriptedFeed(_view(size))
    planner = Planner(feed, parse_options(_OPTIONS))
    text = json.dumps(planner.initial_offsets())
    seen: dict[str, list[float]] = {"idle": [], "one_percent": [], "all": [], "tasks": [], "report": [], "json": []}
    for _ in range(ROUNDS):
        start = json.loads(text)
        # First the share that grew, so that "idle" meets a plan that was made.
        for name, step in (("one_percent", 100), ("all", 1), ("idle", 0)):
            if step:
                feed.show_partitions(_grown(feed.view().partitions, step))
            gc.collect()  # else one of the three calls pays for what all the others left
            began = time.process_time()
            end = planner.latest_offsets(start, None)
            seen[name].append(_milliseconds(began))
        seen["report"].append(_timed(planner.report))
        seen["tasks"].append(_timed(lambda s=start, e=end: planner.tasks(s, e)))  # type: ignore[misc]
        began = time.process_time()
        text = json.dumps(end)
        json.loads(text)
        seen["json"].append(_milliseconds(began))
    result: Result = {f"{name}_milliseconds": _short(values) for name, values in seen.items()}
    result["offsets_bytes"] = len(text)
    say(f"{size} partitions: " + ", ".join(f"{name} {_short(values)['p50']} ms" for name, values in seen.items()))
    return result


def _timed(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return _milliseconds(began)


def _milliseconds(began: float) -> float:
    return (time.process_time() - began) * 1_000


def _short(values: Sequence[float]) -> Result:
    seen = summary(values)
    del seen["values"]
    return seen


def _view(size: int) -> FeedView:
    partitions = {
        TopicPartition(TopicName(f"t{number // PER_TOPIC:03}"), number % PER_TOPIC): _partition(number)
        for number in range(size)
    }
    return FeedView(
        version=1,
        generation=Generation(1),
        state=LoopState.FRESH,
        cluster_id=ClusterId("c"),
        age_seconds=0.0,
        bootstrap=tuple(BrokerAddress(f"b{n}", 9092) for n in range(BROKERS)),
        partitions=MappingProxyType(partitions),
    )


def _partition(number: int) -> PartitionView:
    return PartitionView(
        topic_id=TopicId("id"),
        leader_id=BrokerId(number % BROKERS),
        leader=BrokerAddress(f"b{number % BROKERS}", 9092),
        start_offset=0,
        high_watermark=1_000_000,
        last_stable_offset=1_000_000,
    )


def _grown(partitions: Mapping[TopicPartition, PartitionView], step: int) -> dict[TopicPartition, PartitionView]:
    return {
        tp: replace(p, high_watermark=(p.high_watermark or 0) + 10) if number % step == 0 else p
        for number, (tp, p) in enumerate(partitions.items())
    }


def brokers(sizes: Sequence[int] = REAL_SIZES[:1]) -> Result:
    """Both sources over 1 000 partitions: what Spark says its triggers took, with a few new records."""
    result: Result = {}
    for size in sizes:
        with _cluster(size) as bootstrap, spark_session(native=True) as spark:
            for source in (NATIVE, OURS):
                result.setdefault(str(size), {})[source] = _durations(spark, bootstrap, source, size)
                say(f"{size} partitions, {source}: {result[str(size)][source]}")
    return result


def brokers_more() -> Result:
    """The same over 10 000 partitions."""
    return brokers(REAL_SIZES[1:])


@contextlib.contextmanager
def _cluster(size: int) -> Iterator[str]:
    heap = ("-Xms256m", "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")
    # A partition maps two index files and keeps its segment open; these sizes let one small broker hold thousands.
    small = {"log.index.size.max.bytes": "4096", "log.segment.bytes": "1048576", "queued.max.requests": "1000"}
    settings = ClusterSettings(brokers=BROKERS, jvm_options=heap, extra_properties=small)
    with LocalKafka(settings) as cluster:
        for topic in range(size // PER_TOPIC):
            cluster.create_topic(f"t{topic:03}", partitions=PER_TOPIC, deadline_seconds=180)
        yield cluster.bootstrap_servers


def _durations(spark: SparkSession, bootstrap: str, source: str, size: int) -> Result:
    """Let one query run idle, then feed it a little every second; milliseconds by Spark's names."""
    topics = size // PER_TOPIC
    with running_query(
        spark, bootstrap, ",".join(f"t{n:03}" for n in range(topics)), source=source, starting="latest",
        trigger="1 second",
    ) as watched:  # fmt: skip
        query = watched.query
        deadline = time.monotonic() + 300
        while not query.recentProgress and query.isActive and time.monotonic() < deadline:
            time.sleep(0.1)
        first = time.monotonic() - watched.started_at
        with_rows: list[Mapping[str, float]] = []
        while len(with_rows) < BATCHES and query.isActive and time.monotonic() < deadline:
            fill(bootstrap, "t000", 100, 1)
            time.sleep(1.0)
            seen = [p if isinstance(p, dict) else json.loads(p.json) for p in query.recentProgress]
            with_rows = [p["durationMs"] for p in seen if p["numInputRows"] > 0]
    if not with_rows:
        raise SystemExit(f"benchmarks.planning: {source} finished no batch with rows in 300 s: {query.exception()}")
    names = ("latestOffset", "queryPlanning", "getBatch", "addBatch", "triggerExecution")
    return {
        "first_trigger_seconds": round(first, 2),
        "batches": len(with_rows),
        **{name: _short([float(d[name]) for d in with_rows if name in d]) for name in names},
    }


CASES: dict[str, Callable[[], Result]] = {"simulated": simulated, "brokers": brokers, "brokers_more": brokers_more}


def section(result: Result) -> str:
    """Return these figures as a section of the benchmarks' page."""
    head = "| partitions | latestOffset, idle | 1 % grew | all grew | cut into tasks | JSON there and back |"
    rows = [
        f"| {int(size):,} | " + " | ".join(f"{seen[f'{n}_milliseconds']['p50']:.2f} ms" for n in _NAMES) + " |"
        for size, seen in result.get("simulated", {}).items()
    ]
    real_head = "| partitions | source | first trigger after | latestOffset | planning | whole trigger |"
    real = [
        f"| {int(size):,} | `{source}` | {seen['first_trigger_seconds']:.1f} s | "
        + " | ".join(f"{seen[n]['p50']:.0f} ms" for n in ("latestOffset", "queryPlanning", "triggerExecution"))
        + " |"
        for size, sources in (result.get("brokers", {}) | result.get("brokers_more", {})).items()
        for source, seen in sources.items()
    ]
    parts = ["## Planning", "", _TEXT, "", head, "|---|---|---|---|---|---|", *rows]
    parts += ["", _REAL_TEXT, "", real_head, "|---|---|---|---|---|---|", *real] if real else []
    parts += ["", f"Load averages before and after: {result['load_average']}."] if "load_average" in result else []
    return "\n".join((*parts, ""))


_NAMES = ("idle", "one_percent", "all", "tasks", "json")
_TEXT = (
    "`make bench-planning`. Our planner over simulated metadata, no broker: processor time, as nothing waits, median\n"
    "of 15 rounds. The last column is what Spark's runner does around each call, whatever the source."
)
_REAL_TEXT = (
    "Both sources over real brokers, a hundred records a second, spread over a thousand partitions: medians of what\n"
    "Spark reports. Its own source spends the trigger in `addBatch`, with a task and a consumer for each partition\n"
    "that grew; ours has as many tasks as cores. 50 000 partitions are more than brokers on this machine hold."
)


def main(names: Sequence[str]) -> None:
    """Run the named cases, all if none is named, and write `build/bench/planning.json` after each."""
    refuse_unknown("planning", CASES, names)
    result: Result = {**kept_result("planning"), "environment": environment()}
    loads = result.setdefault("load_average", {})
    for name in names or CASES:
        print(f"{name}: {(CASES[name].__doc__ or '').splitlines()[0]}", flush=True)
        noted: Result = {}
        with load_noted(noted):
            result[name] = CASES[name]()
        loads[name] = noted["load_average"]
        path = write_result("planning", result)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
