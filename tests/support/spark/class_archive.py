"""An archive of the classes that a Spark driver loads, with which it starts four seconds earlier.

`python -m tests.support.spark.class_archive build/spark.jsa` (half a minute). Java takes it from
`-XX:SharedArchiveFile`, and does without one that does not fit the Java or the jars in use.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from discovery.spark.jobs.dau_events import classify, group
from discovery.spark.jobs.letters import Clock
from discovery.spark.jobs.running import STREAM_SETTINGS
from discovery.spark.launch.python import worker_python

# Java would name each class that it leaves out.
_OPTIONS = "-XX:ArchiveClassesAtExit={} -Xlog:disable -Xlog:all=error:stderr"
_QUERY_SECONDS, _END_SECONDS = 120, 60
_CLOCK = Clock(allowed_lateness_seconds=86_400.0, skew_seconds=300.0)


class _Events(DataSource, DataSourceStreamReader):
    """A source in Python, as ours is, of one event."""

    @classmethod
    def name(cls) -> str:
        return "events"

    def schema(self) -> str:
        return "value binary, topic string, partition int, offset bigint"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return self

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802 - Spark's name
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        event = b'{"event_id": "1", "user_id": "a", "ip": "b", "ts": 1700000000000}'
        yield pa.RecordBatch.from_pylist(
            [{"value": event, "topic": "t", "partition": 0, "offset": 0}],
            schema=pa.schema(
                [("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
            ),
        )


def main(archive: Path) -> None:
    """Start a driver, let it work as in tests, and have Java write the archive when it ends."""
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {_OPTIONS.format(archive)}"
    os.environ["PYSPARK_PYTHON"] = worker_python()
    with tempfile.TemporaryDirectory(prefix="kafka-discovery-spark-") as folder:
        builder = SparkSession.builder.master("local[2]")
        for setting, value in STREAM_SETTINGS.items():
            builder = builder.config(setting, value)
        spark = (
            builder.config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .getOrCreate()
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        _query(spark, folder)
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # which ends the JVM
        gateway.proc.wait(_END_SECONDS)


def _query(spark: SparkSession, folder: str) -> None:
    def keep(batch: DataFrame, _batch_id: int) -> None:
        batch.collect()
        batch.write.mode("append").parquet(f"{folder}/rows")

    spark.dataSource.register(_Events)
    counted = group(classify(spark.readStream.format("events").load(), _CLOCK), _CLOCK)
    writer = counted.writeStream.outputMode("update").option("checkpointLocation", f"{folder}/checkpoint")
    writer.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination(_QUERY_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
