"""What all benchmarks share: a Spark session, running queries seen from outside, load, statistics, a JSON file."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from discovery.localkafka.jars.download import native_connector_jars
from discovery.spark.launch.python import worker_python
from tests.support.processes import wait_or_kill

OURS, NATIVE = "kafka-discovery", "kafka"


@contextlib.contextmanager
def spark_session(
    cores: int = 2, *, native: bool = False, settings: Iterable[tuple[str, str]] = ()
) -> Iterator[SparkSession]:
    """Yield a local session; `native` adds Spark's own Kafka connector."""
    os.environ["PYSPARK_PYTHON"] = worker_python()
    # As after an installation: else each of Spark's Python processes compiles the whole project again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.log.level", "ERROR")
    )
    for name, value in settings:
        builder = builder.config(name, value)
    if native:
        builder = builder.config("spark.jars", ",".join(map(str, native_connector_jars())))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


@dataclass(slots=True)
class Watched:
    """A query into `noop`, and what its *finished* batches said: that is what a user has."""

    query: StreamingQuery
    started_at: float
    checkpoint: Path
    batches: list[tuple[float, int, dict[str, dict[str, int]]]] = field(default_factory=list)
    """(monotonic seconds of its end, input rows, end offsets) of each finished batch, by its own progress."""
    _seen: int = -1

    def poll(self) -> None:
        """Take in the progress of batches that finished since the last call."""
        # The newest alone, as JSON: `recentProgress` makes objects of all of them, which takes seconds under load.
        recent, offset = self.query._jsq.recentProgress(), time.monotonic() - time.time()  # noqa: SLF001
        new = []
        for index in reversed(range(len(recent))):
            if recent[index].batchId() <= self._seen:
                break
            new.append(json.loads(recent[index].json()))
        for raw in reversed(new):
            if raw["numInputRows"] > 0:
                self._seen = raw["batchId"]
                began = datetime.fromisoformat(raw["timestamp"]).timestamp()
                ended = began + raw["durationMs"]["triggerExecution"] / 1000
                end = raw["sources"][0]["endOffset"]
                kept = json.loads(end) if isinstance(end, str) else end
                self.batches.append((ended + offset, raw["numInputRows"], kept))

    def wait(self, reached: Callable[["Watched"], bool], timeout_seconds: float) -> float | None:
        """Poll until `reached`; return the monotonic time, or None after the timeout or the query's death."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            self.poll()
            if reached(self):
                return time.monotonic()
            if not self.query.isActive:
                return None
            time.sleep(0.02)
        return None

    def watch(self, seconds: float) -> None:
        """Take in batches for a while, also when nothing comes."""
        self.wait(lambda _: False, seconds)

    def first_row_seconds(self, timeout_seconds: float) -> float | None:
        """Wait for the first finished batch with rows; return seconds since the start of the query."""
        at = self.wait(lambda w: bool(w.batches), timeout_seconds)
        return None if at is None else self.batches[0][0] - self.started_at

    def offset(self, topic: str, partition: int) -> int:
        """Return the end offset of a partition in the last finished batch; 0 before there is one."""
        if not self.batches:
            return 0
        return int(self.batches[-1][2].get(topic, {}).get(str(partition), 0))

    def passed(self, topic: str, ends: Mapping[int, int]) -> dict[int, float]:
        """Return when the first batch finished that holds a record behind each end, of the partitions with one."""
        found: dict[int, float] = {}
        for at, _, reached in reversed(self.batches):
            beyond = {p for p, end in ends.items() if reached.get(topic, {}).get(str(p), 0) > end}
            if not beyond:
                break
            found |= dict.fromkeys(beyond, at)
        return found

    def longest_gap(self, since: float, until: float) -> float:
        """Return the longest time between `since` and `until` in which no batch with rows finished."""
        instants = [since, *(at for at, _, _ in self.batches if since < at < until), until]
        return max(b - a for a, b in itertools.pairwise(instants))


@contextlib.contextmanager
def running_query(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    source: str = OURS,
    trigger: str = "200 milliseconds",
    starting: str = "earliest",
    state_dir: Path | None = None,
    checkpoint: Path | None = None,
    options: dict[str, str] | None = None,
) -> Iterator[Watched]:
    """Start a query that reads a topic into nothing; stop it and remove its folders at the end."""
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    reader = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
    )
    if source == OURS:
        reader = reader.option("stateDir", str(state_dir or folder / "state"))
    for name, value in (options or {}).items():
        reader = reader.option(name, value)
    kept = checkpoint or folder / "checkpoint"
    started_at = time.monotonic()
    writer = reader.load().writeStream.format("noop").trigger(processingTime=trigger)
    query = writer.option("checkpointLocation", str(kept)).start()
    try:
        yield Watched(query=query, started_at=started_at, checkpoint=kept)
    finally:
        with contextlib.suppress(Exception):
            query.stop()
        shutil.rmtree(folder, ignore_errors=True)


class PlainReader(threading.Thread):
    """A bare librdkafka reader of all partitions, as a context: from which of them records come, and when."""

    def __init__(
        self, servers: str, topic: str, partitions: int, hear: Callable[[set[int], float], None], **options: Any
    ) -> None:
        """Read from the end; `hear` gets partitions and monotonic seconds, twenty times a second at most."""
        super().__init__(name="plain reader", daemon=True)
        given = {"bootstrap.servers": servers, "group.id": "plain", "log_level": 0, "auto.offset.reset": "latest"}
        self._consumer = Consumer({**given, "fetch.wait.max.ms": 20, **options})
        self._consumer.assign([TopicPartition(topic, partition, OFFSET_END) for partition in range(partitions)])
        self._hear = hear
        self._over = threading.Event()
        self.ends: dict[int, int] = {}
        """Behind the last record it has of each partition."""

    def run(self) -> None:
        """Take what comes."""
        while not self._over.wait(0.05):
            found = {m.partition() or 0: m.offset() or 0 for m in self._consumer.consume(10_000, 0.0) if not m.error()}
            if found:
                self.ends |= {partition: offset + 1 for partition, offset in found.items()}
                self._hear(set(found), time.monotonic())
        self._consumer.close()

    def __enter__(self) -> Self:
        """Start to read."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._over.set()
        self.join(10)


@contextlib.contextmanager
def load(bootstrap: str, topic: str, partitions: int, *, rows_per_second: float) -> Iterator[None]:
    """Write 100-byte records round robin to all partitions until the block ends."""
    arguments = [bootstrap, topic, str(partitions), str(rows_per_second)]
    writer = subprocess.Popen([sys.executable, "-m", "benchmarks.load", *arguments], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        if writer.stdin:
            writer.stdin.close()
        wait_or_kill(writer, 30)


def make_producer(bootstrap: str, **options: Any) -> Producer:
    """Return a producer that sees new partitions within half a second and writes nothing to stderr."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
            **options,
        }
    )


def fill(bootstrap: str, topic: str, partitions: int, per_partition: int) -> None:
    """Write `per_partition` records of 100 bytes to each partition and wait for all acknowledgements."""
    numbers = range(partitions * per_partition)
    produce_all(bootstrap, topic, ({"value": b"x" * 100, "partition": number % partitions} for number in numbers))


def produce_all(bootstrap: str, topic: str, records: Iterable[dict[str, Any]]) -> None:
    """Write records, each the arguments of `produce`, and wait for all acknowledgements."""
    producer = make_producer(bootstrap, **{"queue.buffering.max.messages": 1_000_000})
    for number, record in enumerate(records):
        while True:
            try:
                producer.produce(topic, **record)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    if left := producer.flush(120):
        raise SystemExit(f"{left} records were not acknowledged in 120 s")
