"""What one worker holds of records that a slow taker leaves lying: `python -m benchmarks.worker_memory`.

Each reading is a process of its own; what counts is its peak above the memory it had before the first record.
"""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from benchmarks.harness import fill
from discovery.core.model import TopicName, TopicPartition, parse_bootstrap_servers
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from discovery.spark.fetch import FetchRange, FetchSettings, fetch
from tests.support.results import environment, say, write_result

MEMORY_MIB = 64
CASES = ((100, 10, 1_500_000), (100, 2_000, 1_500_000), (1_000, 10, 400_000), (1_000, 2_000, 400_000))
"""(bytes of a value, partitions, records)."""


def measure(
    bootstrap: str, topic: str, engine: str, memory_mib: int, pause_seconds: float, *, queries: int = 1
) -> dict[str, Any]:
    """Read a topic in a new process, once for each query; MiB above its start, and how many rows came."""
    arguments = [bootstrap, topic, engine, str(memory_mib), str(pause_seconds), str(queries)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.worker_memory", "read", *arguments],
        stdout=subprocess.PIPE, text=True, check=True, timeout=300,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def read(bootstrap: str, topic: str, engine: str, memory_mib: str, *pace: str) -> None:
    """Read the whole topic, slowly, as tasks of one query after the other, and print what it took."""
    pause_seconds, queries = pace
    ranges = _whole(bootstrap, topic)
    settings = FetchSettings(engine=engine, max_memory_bytes=int(memory_mib) << 20)
    list(fetch([], (), settings, on_waiting=print))
    if engine == "native":
        from discovery.spark.fetch.native.code import code  # noqa: PLC0415 - what the other engine does not load

        code()
    base, rows = _status("VmRSS"), 0
    for query in range(int(queries)):
        own = replace(settings, client_options={"group.id": f"query-{query}"})
        for batch in fetch(ranges, parse_bootstrap_servers(bootstrap), own, on_waiting=print):
            rows += batch.num_rows
            time.sleep(float(pause_seconds))
    print(json.dumps({"rows": rows, "base_mib": base, "peak_above_mib": _status("VmHWM") - base}))


def _whole(bootstrap: str, topic: str) -> list[FetchRange]:
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    try:
        partitions = client.list_topics(topic, timeout=30).topics[topic].partitions
        return [
            FetchRange(
                topic_partition=TopicPartition(TopicName(topic), partition),
                start_offset=0,
                end_offset=client.get_watermark_offsets(ConfluentPartition(topic, partition), timeout=10)[1],
            )
            for partition in partitions
        ]
    finally:
        client.close()


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) >> 10


def section(result: dict[str, Any]) -> str:
    """Tell the figures in words."""
    lines = [
        f"| {name} | {found['base_mib']} | {found['peak_above_mib']} |"
        for name, found in result.items()
        if isinstance(found, dict) and "peak_above_mib" in found
    ]
    return "\n".join(
        [
            "## Memory of a worker",
            "",
            "`python -m benchmarks.worker_memory`: peak of a process that reads a topic of 100 B or 1 000 B values,",
            f"`fetchMaxMemory` {result['fetch_max_memory_mib']} MiB, as fast as it can or with 40 ms after each batch.",
            "In MiB: before the first record (interpreter, Arrow, librdkafka, compiled loops), and above that. What",
            "exceeds the bound is the allocator's: freed, and kept for the thread that freed it.",
            "",
            "| topic, engine, pace | before | above |",
            "|---|---|---|",
            *lines,
        ]
    )


def main() -> None:
    """Measure every case with both engines, quick and slow, and write `build/bench/worker_memory.json`."""
    result: dict[str, Any] = {"environment": environment(), "fetch_max_memory_mib": MEMORY_MIB}
    with LocalKafka(ClusterSettings(brokers=2)) as cluster:
        for size, partitions, rows in CASES:
            topic = f"{size}B-{partitions}p"
            cluster.create_topic(topic, partitions, replication_factor=1, deadline_seconds=120)
            fill(cluster.bootstrap_servers, topic, partitions, rows // partitions, size=size)
            for engine in ("native", "python"):
                for pace, pause in (("quick", 0.0), ("slow", 0.04)):
                    found = measure(cluster.bootstrap_servers, topic, engine, MEMORY_MIB, pause)
                    result[f"{topic} {engine} {pace}"] = found
                    say(f"{topic} {engine} {pace}: {found}")
    print(f"wrote {write_result('worker_memory', result)}")


if __name__ == "__main__":
    read(*sys.argv[2:]) if sys.argv[1:2] == ["read"] else main()
