"""What tests need that run the same on Spark's own source and on ours."""

import json
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RawTopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.supervise.list_vetting import ListVetter
from tests.support.helpers import eventually, partitions_of

BOTH = ("kafka", "kafka-discovery")


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    """Return all rows, ordered by topic, partition and offset."""
    return in_order(frame.collect())


def in_order(found: Iterable[Any]) -> list[tuple[object, ...]]:
    """Order rows by topic, partition and offset."""
    return sorted((tuple(row) for row in found), key=lambda row: row[2:5])


def timed(cluster: LocalKafka, topic: str, partition: int, *times: int) -> None:
    """Write one record for each time."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for time_ms in times:
        producer.produce(topic, value=f"p{partition}@{time_ms}", partition=partition, timestamp=time_ms)
    assert producer.flush(20) == 0


KEPT = {"retention.ms": "-1"}
"""For topics with times of their own: a broker that is up for half a minute deletes what is older than a week."""


def fill(cluster: LocalKafka, topic: str) -> None:
    """Three partitions: ten records, five, none; their times are 1000, 1010 …"""
    cluster.create_topic(topic, 3, config=KEPT)
    timed(cluster, topic, 0, *range(1_000, 1_100, 10))
    timed(cluster, topic, 1, *range(1_000, 1_050, 10))


def per_partition(topic: str, *numbers: int) -> str:
    """Write `{"topic": {"0": first, "1": second …}}`."""
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


def written(topic: str, options: dict[str, object]) -> dict[str, str]:
    """Write tuples of numbers as JSON by partition."""
    return {name: v if isinstance(v, str) else per_partition(topic, *v) for name, v in options.items()}  # type: ignore[misc]


def delete_records(cluster: LocalKafka, topic: str, partition: int, before: int) -> None:
    """Let the records below an offset age out."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    seen = admin.delete_records([RawTopicPartition(topic, partition, before)])
    for future in seen.values():
        future.result(20)


def stays(condition: Callable[[], object], seconds: float, message: str) -> None:
    """Watch that something stays true for a while."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert condition(), message
        time.sleep(0.05)


DOOMED = (1, 2)
"""The brokers of `dead_list`."""


def dead_list(cluster: LocalKafka, topic: str, state: Path) -> str:
    """Let `run` meet all brokers through two of them, kill those two, and return their addresses.

    Args:
        cluster: Three brokers or more.
        topic: Its partitions have replicas elsewhere, which lead them at the end.
        state: The state folder of the later `run`.
    """
    listed = ",".join(map(cluster.address, DOOMED))
    living = [cluster.address(one) for one in cluster.broker_ids if one not in DOOMED]
    vetter = ListVetter(state_dir=state)
    try:
        vetter.vet(listed)
        eventually(lambda: _remembers(state, living), 30, "the view of all brokers on disk")
    finally:
        vetter.close()
    cluster.kill(DOOMED)
    client = AdminClient({"bootstrap.servers": ",".join(living), "log_level": 0})

    def led() -> bool:
        found = partitions_of(client, topic).values()
        return all(one.leader not in (*DOOMED, -1) for one in found)

    eventually(led, 60, "new leaders")
    return listed


def _remembers(state: Path, addresses: Collection[str]) -> bool:
    saved = "".join(file.read_text() for file in state.rglob("*.json"))
    return all(address.rpartition(":")[2] in saved for address in addresses)
