"""What one worker holds of records that a slow taker leaves lying.

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

from discovery.core.model import TopicName, TopicPartition, parse_bootstrap_servers
from discovery.spark.fetch import FetchRange, FetchSettings, fetch
from tests.support.helpers import partitions_of


def measure(
    bootstrap: str, topic: str, engine: str, memory_mib: int, pause_seconds: float, *, queries: int = 1
) -> dict[str, Any]:
    """Read a topic in a new process, once for each query; MiB above its start, and how many rows came."""
    arguments = [bootstrap, topic, engine, str(memory_mib), str(pause_seconds), str(queries)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.worker_memory", *arguments],
        stdout=subprocess.PIPE, text=True, check=True, timeout=300,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def read(bootstrap: str, topic: str, engine: str, memory_mib: str, *pace: str) -> None:
    """Read the whole topic, slowly, as tasks of one query after the other, and print what it took."""
    pause_seconds, queries = pace
    ranges = _whole(bootstrap, topic)
    settings = FetchSettings(engine=engine, max_memory_bytes=int(memory_mib) << 20)
    list(fetch([], (), settings, on_waiting=_say))
    if engine == "native":
        from discovery.spark.fetch.native.code import code  # noqa: PLC0415 - what the other engine does not load

        code()
    base, rows = _status("VmRSS"), 0
    for query in range(int(queries)):
        own = replace(settings, client_options={"group.id": f"query-{query}"})
        for batch in fetch(ranges, parse_bootstrap_servers(bootstrap), own, on_waiting=_say):
            rows += batch.num_rows
            time.sleep(float(pause_seconds))
    json.dump({"rows": rows, "base_mib": base, "peak_above_mib": _status("VmHWM") - base}, sys.stdout)


def _whole(bootstrap: str, topic: str) -> list[FetchRange]:
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "log_level": 0})
    try:
        partitions = partitions_of(client, topic)
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


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")  # what is measured goes to the other stream


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) >> 10


if __name__ == "__main__":
    read(*sys.argv[1:])
