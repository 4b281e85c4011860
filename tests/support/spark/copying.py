"""A query that copies one topic to another through the sink, and what tests do to it."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.sink import with_lanes
from tests.support.helpers import produce
from tests.support.sink import committed_values

QUERY_SECONDS = 120


class Copy:
    """A query that copies one topic to another through the sink."""

    def __init__(self, spark: SparkSession, cluster: LocalKafka, name: str, folder: Path) -> None:
        self.spark, self.cluster, self.folder = spark, cluster, folder
        self.source, self.target = f"{name}-in", f"{name}-out"
        self.checkpoint = folder / "checkpoint"
        for topic in (self.source, self.target):
            cluster.create_topic(topic, partitions=2, replication_factor=3)

    def put(self, *values: str) -> None:
        produce(self.cluster.bootstrap_servers, self.source, *[(value, value) for value in values])

    def rows(self) -> DataFrame:
        options = {"kafka.bootstrap.servers": self.cluster.bootstrap_servers, "subscribe": self.source}
        reader = self.spark.readStream.format("kafka-discovery").options(**options)
        return reader.option("startingOffsets", "earliest").load().select("key", "value")

    def run(self, *, lanes: int = 1, **options: str) -> None:
        query = (
            with_lanes(self.rows(), "key", lanes=lanes)
            .writeStream.format("kafka-discovery")
            .options(**self.options(), **options)
            .option("lanes", lanes)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(QUERY_SECONDS), "the query did not end in time"
        finally:
            query.stop()

    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "topic": self.target,
            "sinkId": self.target,
            "stateDir": str(self.folder / "state"),
        }

    def forget_commit(self, batch_id: int) -> None:
        """Leave what Spark finds after dying between the sink's commit and its own."""
        for name in (str(batch_id), f".{batch_id}.crc"):
            (self.checkpoint / "commits" / name).unlink()

    def copied(self) -> list[str | None]:
        return sorted(committed_values(self.cluster.bootstrap_servers, self.target), key=str)


@pytest.fixture
def copy(spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path) -> Copy:
    return Copy(spark, kafka_cluster, topic_name, tmp_path)
