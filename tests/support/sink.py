"""One lane without Spark, and what a reader of committed records sees."""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.sink.columns import LANE
from discovery.spark.sink.lanes import Attempt
from discovery.spark.sink.ledger import SinkLedger
from discovery.spark.sink.options import parse_options
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.preflight import prepare
from discovery.spark.sink.writer import LaneReport, LaneWriter, confirm
from tests.support.helpers import partitions_of

_ATTEMPTS = itertools.count()
READ_SECONDS = 60.0
"""Longer than `transactionTimeout` below: what a failed attempt sent is settled by the brokers after that."""


@dataclass
class Sink:
    """A sink under test: `write` is one task, `confirm` the driver's part."""

    cluster: LocalKafka
    folder: Path
    sink_id: str
    topic: str
    lanes: int = 1
    more: Mapping[str, str] = field(default_factory=dict)
    query_id: str = "query-1"
    run: str = ""

    @property
    def options(self) -> dict[str, str]:
        options = {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "sinkId": self.sink_id,
            "topic": self.topic,
            "lanes": str(self.lanes),
            "stateDir": str(self.folder),
            "transactionTimeout": "30s",
            **self.more,
        }
        return {name: value for name, value in options.items() if value}

    def plan(self) -> SinkPlan:
        return prepare(parse_options(self.options))

    def attempt(self, batch_id: int, lane: int = 0) -> Attempt:
        return Attempt(
            query_id=self.query_id,
            batch_id=batch_id,
            lane=lane,
            lanes=self.lanes,
            attempt=f"a{next(_ATTEMPTS)}",
            wall_seconds=int(time.time()),
            target=self.topic if self.more.get("topic", "-") else "",
            run=self.run,
            is_first=True,
        )

    def writer(self, batch_id: int, lane: int = 0, *, plan: SinkPlan | None = None) -> LaneWriter:
        plan = plan or self.plan()
        return LaneWriter(plan, self.attempt(batch_id, lane), SinkLedger(plan))

    def write(self, batch_id: int, values: Iterable[str], lane: int = 0, *, laned: bool = True) -> LaneReport:
        return self.writer(batch_id, lane).write(batches(values, lane=lane if laned else None))

    def confirm(self, *reports: LaneReport) -> None:
        plan = self.plan()
        confirm(plan, SinkLedger(plan), reports, timeout_seconds=READ_SECONDS)

    def visible(self) -> list[str]:
        return sorted(str(value) for value in committed_values(self.cluster.bootstrap_servers, self.topic))


def batches(values: Iterable[str], *, size: int = 3, lane: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the values in small batches, as Spark hands them over, after `with_lanes` where a lane is given."""
    rest = list(values)
    for start in range(0, len(rest), size):
        column = pa.array([value.encode() for value in rest[start : start + size]], pa.binary())
        if lane is None:
            yield pa.record_batch([column], names=["value"])
        else:
            yield pa.record_batch([column, pa.array([lane] * len(column), pa.int32())], names=["value", LANE])


def committed_values(
    bootstrap_servers: str, topic: str, *, isolation: str = "read_committed", deadline_seconds: float = READ_SECONDS
) -> list[str | None]:
    """Return the values of `committed_records`."""
    read = committed_records(bootstrap_servers, topic, isolation=isolation, deadline_seconds=deadline_seconds)
    return [value for value, _ in read]


def committed_records(
    bootstrap_servers: str, topic: str, *, isolation: str = "read_committed", deadline_seconds: float = READ_SECONDS
) -> list[tuple[str | None, dict[str, str]]]:
    """Read values and headers of a topic to its end of this moment; an open transaction makes it wait, then fail."""
    options = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": f"reader-{topic}",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    # High watermarks, which a committed reader does not get: a commit has returned before its markers are in the log.
    asking = Consumer({**options, "isolation.level": "read_uncommitted"})
    partitions = partitions_of(asking, topic)
    ends = {p: _end(asking, TopicPartition(topic, p), deadline_seconds) for p in partitions}
    asking.close()
    consumer = Consumer({**options, "isolation.level": isolation})
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[tuple[str | None, dict[str, str]]] = []
    until = time.monotonic() + deadline_seconds
    while any(
        position.offset < ends[position.partition]
        for position in consumer.position([TopicPartition(topic, p) for p, end in ends.items() if end])
    ):
        assert time.monotonic() < until, f"{topic}: not read to its end {ends}; is a transaction open?"
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            raw = message.value()
            pairs: Any = message.headers() or ()
            headers = {name: content.decode() for name, content in pairs}
            found.append((None if raw is None else raw.decode(), headers))
    consumer.close()
    return found


def _end(consumer: Consumer, partition: TopicPartition, deadline_seconds: float) -> int:
    """Return a partition's high watermark; a leader that has just moved is asked again."""
    until = time.monotonic() + deadline_seconds
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=10)[1])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > until:
                raise
            time.sleep(0.05)
