"""One small Spark for all tests that need it, with the native connector beside ours, and helpers to run queries."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.jars.download import native_connector_jars
from discovery.spark.jobs.running import CHECKPOINT_MANAGER, LOCAL_CHECKPOINT_MANAGER, STREAM_SETTINGS
from discovery.spark.launch.python import worker_python
from discovery.spark.launch.queries import StartedQuery
from tests.support import mariadb, postgres
from tests.support.helpers import eventually
from tests.support.spark.fixtures import _driver, _six_brokers, breakable, driver, start_query

__all__ = ["_driver", "_six_brokers", "breakable", "driver", "start_query"]

DRIVER_JARS = [*postgres.DRIVER_JARS, *mariadb.DRIVER_JARS]
READ_SECONDS = 60.0
NORMAL_TRIGGER = MappingProxyType({"processingTime": "100 milliseconds"})


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two slots, a small heap, no UI, both formats; this interpreter for the workers, a temporary state folder."""
    with tempfile.TemporaryDirectory(prefix="kafka-discovery-spark-") as folder:
        saved = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "XDG_STATE_HOME")}
        os.environ["PYSPARK_PYTHON"] = worker_python()
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        session = (
            SparkSession.builder.master("local[2]")
            .appName("kafka-discovery tests")
            .config("spark.driver.memory", "768m")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config(CHECKPOINT_MANAGER, LOCAL_CHECKPOINT_MANAGER)
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .config("spark.jars", ",".join(map(str, [*native_connector_jars(), *DRIVER_JARS])))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()
            for name, value in saved.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests, with the jobs' own settings for the time of this one."""
    before = {name: spark.conf.get(name, None) for name in STREAM_SETTINGS}
    for name, value in STREAM_SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


class Reading:
    """A running query whose rows are collected here, batch by batch."""

    def __init__(self, frame: DataFrame, checkpoint: Path, *, trigger: Mapping[str, Any]) -> None:
        self.rows: list[object] = []
        self.batches: list[int] = []

        def keep(batch: DataFrame, _batch_id: int) -> None:
            found = batch.collect()
            self.rows.extend(found)
            self.batches.append(len(found))

        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        self._started = StartedQuery(writer.trigger(**trigger).start, print)

    @property
    def query(self) -> StreamingQuery:
        """The query; on a machine busy with tests it may have been started again."""
        return self._started.current()

    def wait_rows(self, count: int, deadline_seconds: float = READ_SECONDS) -> None:
        """Wait until so many rows came; fail at once when the query ended with an error."""

        def enough() -> bool:
            if not self.query.isActive and self.query.exception() is not None:
                raise AssertionError(str(self.query.exception()))
            return len(self.rows) >= count

        eventually(enough, deadline_seconds, f"row {count} (now {len(self.rows)})")

    def wait_end(self, deadline_seconds: float = READ_SECONDS) -> None:
        """Wait for the end of a bounded query; raises what it failed with."""
        eventually(lambda: not self.query.isActive, deadline_seconds, "the end of the query")
        failure = self.query.exception()
        if failure is not None:
            raise failure

    def values(self) -> list[str]:
        """Return all values as text, sorted."""
        return sorted(bytes(row.value).decode() for row in self.rows)  # type: ignore[attr-defined]


ReadStream = Callable[..., Reading]


@pytest.fixture
def read_stream(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ReadStream]:
    """Start a query: `read_stream({"subscribe": topic}, checkpoint="a", format="kafka")`; all end with the test."""
    started: list[Reading] = []

    def start(
        options: Mapping[str, str],
        *,
        checkpoint: str = "checkpoint",
        format: str = "kafka-discovery",  # noqa: A002 - Spark's word
        available_now: bool = False,
        trigger: Mapping[str, Any] = NORMAL_TRIGGER,
        cluster: LocalKafka | None = None,
    ) -> Reading:
        cluster = cluster or request.getfixturevalue("kafka_cluster")
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
        frame = spark.readStream.format(format).options(**given).load()
        when = {"availableNow": True} if available_now else trigger
        reading = Reading(frame, tmp_path / checkpoint, trigger=when)
        started.append(reading)
        return reading

    yield start
    for reading in started:
        reading.query.stop()
