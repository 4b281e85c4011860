"""How long a query stands still when two of six brokers are killed: `python -m benchmarks.stall [CASE…] [--rounds N]`.

Every round kills two brokers under load, watches, restarts them, and lets the query catch up. The gap is the longest
time without a finished batch that has rows, so it counts the living partitions alone. At the end of a case the load
stops, and the rows of all finished batches must be the records in the log, neither one less nor one more.
"""

import argparse
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.harness import (
    NATIVE,
    OURS,
    OUTPUT,
    Watched,
    environment,
    load,
    running_query,
    say,
    spark_session,
    summary,
    write_result,
)
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings

_BROKERS = (1, 2, 3, 4, 5, 6)
_PAIRS = tuple(itertools.combinations(_BROKERS, 2))
_ROWS_PER_SECOND = 1_000.0
_WATCH_SECONDS = 12.0
_SHORT_WATCH_SECONDS = 6.0
"""Enough where no election is waited for."""
_WARM_BATCHES = 5
_CATCH_UP_SECONDS = 90.0
CASES: dict[str, dict[str, Any]] = {
    "rf1_file": {"source": OURS, "copies": 1, "options": {"sourceId": "stall"}},
    "rf3_file": {"source": OURS, "copies": 3, "options": {"sourceId": "stall"}},
    "rf1_kafka": {"source": OURS, "copies": 1, "options": {"sourceId": "stall", "cutLedger": "kafka"}},
    "rf3_kafka": {"source": OURS, "copies": 3, "options": {"sourceId": "stall", "cutLedger": "kafka"}},
    "rf3_without_cuts": {"source": OURS, "copies": 3, "options": {}},
    "rf1_without_cuts": {"source": OURS, "copies": 1, "options": {}},
    "rf3_native": {"source": NATIVE, "copies": 3, "options": {}},
    "rf1_native": {"source": NATIVE, "copies": 1, "options": {}},
}


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Run one case on a cluster and a session of its own."""
    case = CASES[name]
    copies: int = case["copies"]
    rng = random.Random(name)  # the same pairs in every run
    with LocalKafka(ClusterSettings(brokers=len(_BROKERS))) as cluster:
        cluster.create_topic("t", assignment=[_ring(leader, copies) for leader in _BROKERS])
        servers = cluster.bootstrap_servers
        with (
            spark_session(4, native=True) as spark,
            running_query(spark, servers, "t", source=case["source"], options=case["options"]) as query,
        ):
            with load(servers, "t", len(_BROKERS), rows_per_second=_ROWS_PER_SECOND):
                query.wait(lambda w: len(w.batches) >= 3 * _WARM_BATCHES, 90)
                quiet = query.longest_gap(query.batches[_WARM_BATCHES][0], query.batches[-1][0])
                watch = _SHORT_WATCH_SECONDS if name.endswith("file") else _WATCH_SECONDS
                gaps = list(_rounds(cluster, query, rng, rounds, watch))
            told = {"rounds": len(gaps), "gap_seconds": summary(gaps), "gap_before_seconds": round(quiet, 3)}
            return told | {"alive": query.query.isActive} | _check(query, servers)


def _rounds(
    cluster: LocalKafka, query: Watched, rng: random.Random, rounds: int, watch_seconds: float
) -> Iterator[float]:
    for number in range(rounds):
        pair = list(rng.choice(_PAIRS))
        time.sleep(rng.uniform(0.0, 0.5))  # anywhere in a batch
        killed_at = time.monotonic()
        cluster.kill(pair)
        query.watch(watch_seconds)
        gap = query.longest_gap(killed_at - 0.5, killed_at + watch_seconds)
        say(f"round {number + 1}: brokers {pair} killed, gap {gap:.2f} s, alive {query.query.isActive}")
        yield gap
        cluster.restart(pair)
        cluster.wait_registered(pair)
        if not query.query.isActive:
            return
        at = {partition: query.offset("t", partition) for partition in range(len(_BROKERS))}
        query.wait(_passes(at), _CATCH_UP_SECONDS)


def _passes(at: dict[int, int]) -> Callable[[Watched], bool]:
    return lambda w: all(w.offset("t", partition) > offset for partition, offset in at.items())


def _check(query: Watched, servers: str) -> dict[str, Any]:
    """Compare the rows of all finished batches with the log, once the load has ended."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "stall", "log_level": 0})
    places = [TopicPartition("t", partition) for partition in range(len(_BROKERS))]
    ends = {place.partition: consumer.get_watermark_offsets(place, timeout=10)[1] for place in places}
    consumer.close()
    reached = query.wait(lambda w: all(w.offset("t", p) >= end for p, end in ends.items()), _CATCH_UP_SECONDS)
    rows = sum(count for _, count, _ in query.batches)
    return {"caught_up": reached is not None, "records": sum(ends.values()), "rows": rows}


def _ring(leader: int, copies: int) -> list[int]:
    return [(leader - 1 + step) % len(_BROKERS) + 1 for step in range(copies)]


_WORDS = {
    "rf1_file": ("RF 1, `sourceId`, ledger in a file", "p99 <= 2 s"),
    "rf3_file": ("RF 3, `sourceId`, ledger in a file", "p99 <= 2 s"),
    "rf1_kafka": ("RF 1, `sourceId`, ledger in Kafka", "<= session timeout (6 s) + 2 s"),
    "rf3_kafka": ("RF 3, `sourceId`, ledger in Kafka", "<= session timeout (6 s) + 2 s"),
    "rf3_without_cuts": ("RF 3, without `sourceId`", "-"),
    "rf1_without_cuts": ("RF 1, without `sourceId`", "-"),
    "rf3_native": ("RF 3, Spark's own source", "-"),
    "rf1_native": ("RF 1, Spark's own source", "-"),
}


def section(result: dict[str, Any]) -> str:
    """Return what a run has to say, for the page of all benchmarks."""
    lines = [_line(name, result[name]) for name in CASES if name in result]
    return "\n".join(
        [
            "## Two of six brokers killed under load",
            "",
            "`make bench-stall`: kill -9 of two brokers at any moment of a batch, 1 000 records/s over six partitions,",
            "one led by each broker, trigger 200 ms. The gap is the longest time without a finished batch with rows,",
            "the batch's own duration included. At the end the rows of all batches are counted against the log.",
            "",
            "| case | rounds | gap p50 | gap p99 | longest | rows / records | target |",
            "|---|---|---|---|---|---|---|",
            *lines,
            "",
            "The two rounds above 2 s of the run we keep stood beside type checks and unit tests on both cores; the",
            "other eighteen are below. Of a gap 1 s is `cutAfter`, the rest is the batch in flight and the next one.",
        ]
    )


def _line(name: str, case: dict[str, Any]) -> str:
    words, target = _WORDS[name]
    gap = case["gap_seconds"]
    seen = f"{gap['p50']:.2f} s | {gap['p99']:.2f} s | {gap['max']:.2f} s"
    exact = f"{case['rows']} / {case['records']}" if case["alive"] else "the query died"
    return f"| {words} | {case['rounds']} | {seen} | {exact} | {target} |"


def main() -> None:
    """Run the cases named, by default all, and write `build/bench/stall.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--native-rounds", type=int, default=3, help="of the cases that wait for leaders: minutes each")
    given = parser.parse_args()
    kept = OUTPUT / "stall.json"
    # Cases take minutes each: runs one after the other fill one file.
    result: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    for name in given.cases:
        say(f"{name}:")
        waits = CASES[name]["source"] == NATIVE or not CASES[name]["options"]
        result["environment"] = environment()
        result[name] = measure(name, given.native_rounds if waits else given.rounds)
        say(str({key: value for key, value in result[name].items() if key != "gap_seconds"}))
        say(f"wrote {write_result('stall', result)}")


if __name__ == "__main__":
    main()
