"""Memory, threads and open files while leaders move: `make soak-source` (30 minutes), `python -m benchmarks.soak 60`.

A query reads all the time; one broker after the other is killed and started again, so every leader moves over and over.
What counts is growth: the first third of the run warms up, the last third is compared with the middle one.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.harness import OURS, load, running_query, spark_session
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.family import command_line, descendants, descriptors, jvm_of, resident_mib, threads
from tests.support.results import environment, say, write_result

SECONDS = 1_800.0
TOPIC = "events"
PARTITIONS = 12
SAMPLE_SECONDS = 2.0
PAUSE_SECONDS = 3.0
Result = dict[str, Any]
Sample = dict[str, float]
_RUNNER, _WORKER = "python_streaming_source_runner", "pyspark.daemon"
MEASURES: dict[str, Callable[[int], float]] = {"mib": resident_mib, "threads": threads, "files": descriptors}


def soak(seconds: float) -> Result:
    """Run for so long; return samples and what grew."""
    samples: list[Sample] = []
    moves: list[int] = []
    with LocalKafka(ClusterSettings(brokers=3)) as cluster, spark_session() as spark:
        cluster.create_topic(TOPIC, PARTITIONS, replication_factor=3)
        with (
            load(cluster.bootstrap_servers, TOPIC, PARTITIONS, rows_per_second=1_000),
            running_query(spark, cluster.bootstrap_servers, TOPIC, source=OURS) as query,
        ):
            query.first_row_seconds(60)
            ended = threading.Event()
            mover = threading.Thread(target=_move, args=(cluster, ended, moves), name="mover")
            mover.start()
            try:
                until = time.monotonic() + seconds
                while time.monotonic() < until and query.query.isActive:
                    samples.append(sample(jvm_of(spark)))
                    time.sleep(SAMPLE_SECONDS)
            finally:
                ended.set()
                mover.join(120)
            rows = sum(count for _, count, _ in _polled(query))
            alive = query.query.isActive
    result = {"seconds": seconds, "leader_moves": len(moves), "rows": rows, "alive": alive, "samples": samples}
    return {**result, "growth": growth(samples), "peak": peak(samples)}


def sample(jvm: int) -> Sample:
    """Measure the source runner and the largest worker now."""
    family = {pid: command_line(pid) for pid in descendants(jvm)}
    runners = [pid for pid, command in family.items() if _RUNNER in command]
    workers = [pid for pid, command in family.items() if _WORKER in command]
    seen: Sample = {"processes": float(len(family))}
    for name, measure in MEASURES.items():
        seen[f"runner_{name}"] = max((measure(pid) for pid in runners), default=0.0)
        seen[f"worker_{name}"] = max((measure(pid) for pid in workers), default=0.0)
    return seen


def growth(samples: Sequence[Sample]) -> Sample:
    """Return by how much the last third is above the middle one, on average."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    names = samples[0] if third else ()
    return {name: round(_mean(s[name] for s in last) - _mean(s[name] for s in middle), 2) for name in names}


def peak(samples: Sequence[Sample]) -> Sample:
    """Return the largest of each."""
    return {name: round(max(s[name] for s in samples), 1) for name in (samples[0] if samples else ())}


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def _polled(query: Any) -> list[tuple[float, int, Any]]:
    query.poll()
    return list(query.batches)


def _move(cluster: LocalKafka, ended: threading.Event, moves: list[int]) -> None:
    """Kill one broker after the other, each once the last one is back."""
    while not ended.is_set():
        for broker_id in cluster.broker_ids:
            cluster.kill([broker_id])
            ended.wait(PAUSE_SECONDS)
            cluster.restart([broker_id])
            moves.append(broker_id)
            if ended.wait(PAUSE_SECONDS):
                return


def section(result: Result) -> str:
    """Return these figures as a section of the benchmarks' page."""
    head = ["| process | peak | growth, last third over middle third |", "|---|---|---|"]
    rows = [
        f"| {who} | {_seen(result['peak'], who, '.0f')} | {_seen(result['growth'], who, '+.1f')} |"
        for who in ("runner", "worker")
    ]
    seen = (
        f"`make soak-source`, {result['seconds']:.0f} s under load: {result['leader_moves']} times one of",
        f"three brokers was killed and started again. The query {'lived' if result['alive'] else 'DIED'} and read",
        f"{result['rows']:,} rows. The runner is the driver-side process with the discovery loop.",
    )
    text = "\n".join(seen)
    return "\n".join(("## Soak", "", text, "", *head, *rows, ""))


def _seen(values: Sample, who: str, form: str) -> str:
    words = {"mib": "MiB", "threads": "threads", "files": "open files"}
    return ", ".join(f"{values[f'{who}_{name}']:{form}} {word}" for name, word in words.items())


def main(arguments: Sequence[str]) -> None:
    """Run for 30 minutes, or the seconds given, and write `build/bench/soak.json`."""
    seconds = float(arguments[0]) if arguments else SECONDS
    result = {"environment": environment(), **soak(seconds)}
    say(f"growth {result['growth']}, peak {result['peak']}, {result['leader_moves']} moves")
    print(f"wrote {write_result('soak', result)}")


if __name__ == "__main__":
    main(sys.argv[1:])
