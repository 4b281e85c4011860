"""What Spark denies a Python source today: a failure here means that a newer Spark can do more, and so can we."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from discovery.spark.launch.queries import StartedQuery
from tests.support.helpers import eventually

pytestmark = pytest.mark.spark

REPORTS_METRICS = "org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics"
NATIVE_STREAM = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
PYTHON_STREAMS = [
    f"org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream{kind}"
    for kind in ("", "WithAdmissionControl", "WithTriggerAvailableNow")
]


def test_given_sparks_streams_when_asked_for_metrics_then_those_of_python_sources_still_have_none(
    spark: SparkSession,
) -> None:
    """Spark fills `sources[].metrics` of its progress from streams of one interface alone."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    wanted, native, *python = (
        jvm.java.lang.Class.forName(name, False, loader) for name in (REPORTS_METRICS, NATIVE_STREAM, *PYTHON_STREAMS)
    )
    assert wanted.isAssignableFrom(native)
    able = [stream.getName() for stream in python if wanted.isAssignableFrom(stream)]
    assert not able, "Python sources can report metrics: report what `SourceProgress` shows"


def test_given_options_of_the_writer_when_a_python_source_runs_then_spark_still_shows_it_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So `asyncProgressTrackingEnabled` with a `sourceId` can only be refused by the second batch."""
    seen = tmp_path / "seen.json"

    class Reader(DataSourceStreamReader):
        """Knows one offset after the first; its task notes what driver and worker are shown."""

        def __init__(self, source: DataSource) -> None:
            self.shown = [repr(vars(source)), repr(dict(os.environ))]

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
            return {"n": 0}

        def latestOffset(self, *_: object) -> dict[str, Any]:  # noqa: N802
            return {"n": 1}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            return [] if start == end else [InputPartition(self.shown)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            shown = [*partition.value, repr(vars(TaskContext.get())), repr(dict(os.environ))]
            seen.with_suffix(".new").write_text(json.dumps(shown))
            seen.with_suffix(".new").rename(seen)
            yield (1,)

    class Witness(DataSource):
        """One column."""

        @classmethod
        def name(cls) -> str:
            return "witness"

        def schema(self) -> str:
            return "n int"

        def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802
            return Reader(self)

    spark.dataSource.register(Witness)
    frame = spark.readStream.format("witness").option("of-the-reader", "shown").load()
    writer = frame.writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")
    query = StartedQuery(writer.option("checkpointLocation", str(tmp_path / "c")).start, print)
    try:
        eventually(lambda: seen.exists() or not query.current().isActive, 60, "the first batch")
        assert query.current().exception() is None
    finally:
        query.current().stop()
    shown = " ".join(json.loads(seen.read_text())).lower()
    assert "of-the-reader" in shown
    assert "sql.streaming.queryid" in shown, "what Spark shows tasks of their query"
    assert "asyncprogress" not in shown, "a source sees its writer's options: refuse this one before the first batch"
