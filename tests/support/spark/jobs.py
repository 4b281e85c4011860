"""What tests of the ready jobs share: topics and their command line, records, how a job is started and ended."""

import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core.model import parse_bootstrap_servers
from discovery.kafka.topics import TopicAdmin
from discovery.kafka.transactions import Access
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.sink.options import marker_group
from tests.support.helpers import produce
from tests.support.sink import committed_values

JOB_SECONDS = 240
NOW = datetime.now(UTC).replace(second=0, microsecond=0)


class Topics:
    """Where a job reads and writes, and the command line that says so."""

    def __init__(self, cluster: LocalKafka, name: str, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.source, self.target, self.dead = f"{name}-in", f"{name}-out", f"{name}-dead"
        self.checkpoint = folder / "checkpoint"
        for topic in (self.source, self.target, self.dead):
            cluster.create_topic(topic, partitions=1, replication_factor=3)

    def arguments(self, *more: str) -> list[str]:
        named = {
            "--bootstrap-servers": self.cluster.bootstrap_servers,
            "--topic": self.source,
            "--output-topic": self.target,
            "--checkpoint": str(self.checkpoint),
            "--sink-id": self.target,
            "--state-dir": str(self.folder / "state"),
        }
        return [*(text for pair in named.items() for text in pair), "--available-now", *more]

    def put(self, *values: str | bytes) -> None:
        produce(self.cluster.bootstrap_servers, self.source, *values)

    def forget_commit(self) -> None:
        """Leave what Spark finds after dying between the sink's commit and its own."""
        for name in ("0", ".0.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def expire_offsets(self) -> None:
        """Leave what a partition leaves that was idle for `offsets.retention.minutes`."""
        brokers = tuple(parse_bootstrap_servers(self.cluster.bootstrap_servers, option="test"))
        TopicAdmin(Access({}, brokers)).forget_group(marker_group(self.target), timeout_seconds=30)

    def found(self) -> list[str]:
        return [str(value) for value in committed_values(self.cluster.bootstrap_servers, self.target)]

    def dead_letters(self) -> list[dict[str, object]]:
        """In the order of their source: they are shuffled by a hash of its name."""
        values = committed_values(self.cluster.bootstrap_servers, self.dead)
        return sorted((json.loads(str(value)) for value in values), key=lambda letter: int(letter["offset"]))


@pytest.fixture
def topics(kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path) -> Topics:
    return Topics(kafka_cluster, topic_name, tmp_path)


def finish(query: StreamingQuery) -> None:
    try:
        assert query.awaitTermination(JOB_SECONDS), "the query did not end in time"
    finally:
        query.stop()


def visit(ip: str, at: datetime = NOW) -> str:
    return json.dumps({"ip": ip, "ts": at.isoformat()})


_NEWS = re.compile(r"\S+Z \[(info|warning) *\] ")
SUBMIT = str(Path(sys.executable).with_name("spark-submit"))
"""The process that is signalled is a JVM: the script replaces itself by it."""
ENVIRONMENT = {**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable}


def unexpected(text: str) -> list[str]:
    """Lines that are none of the source's own news, of which there may be some at any time."""
    return [line for line in text.splitlines() if not _NEWS.match(line)]


def event(user: str, *, at: datetime | str | float = NOW, event_id: str = "e", **more: object) -> bytes:
    ts = at.isoformat() if isinstance(at, datetime) else at
    return json.dumps({"event_id": event_id, "user_id": user, "ip": "10.0.0.1", "ts": ts, **more}).encode()
