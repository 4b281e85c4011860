"""The sink on real Spark and real brokers: every record once, whatever is replayed."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.sink import exactly_once, with_lanes
from tests.support.helpers import numbered, produce
from tests.support.sink import committed_values

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
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


def test_given_lanes_when_a_confirmed_batch_is_replayed_then_every_record_is_there_once(copy: Copy) -> None:
    copy.put(*numbered(20))
    copy.run(lanes=2)
    copy.forget_commit(0)
    copy.put(*numbered(5, prefix="w"))
    copy.run(lanes=2)
    assert copy.copied() == sorted([*numbered(20), *numbered(5, prefix="w")])


def test_given_a_batch_write_when_repeated_under_its_name_then_its_records_are_there_once(copy: Copy) -> None:
    rows = copy.spark.createDataFrame([(value, value) for value in numbered(6)], "key string, value string")
    writer = with_lanes(rows, "key", lanes=2).write.format("kafka-discovery").mode("append").option("lanes", 2)
    for write_id in ("one", "one", "two"):
        writer.options(**copy.options()).option("writeId", write_id).save()
    assert copy.copied() == sorted([*numbered(6), *numbered(6)])
    others = with_lanes(rows.limit(2), "key", lanes=2).write.format("kafka-discovery").mode("append")
    with pytest.raises(PySparkException, match="or the writeId was used before"):
        others.options(**copy.options(), writeId="one", lanes="2").save()
    assert copy.copied() == sorted([*numbered(6), *numbered(6)])


def test_given_a_batch_write_without_records_when_its_name_is_used_for_some_then_it_is_refused(copy: Copy) -> None:
    rows = copy.spark.createDataFrame([("k", "v")], "key string, value string")
    for frame in (rows.limit(0), rows.where("value = 'w'")):
        frame.coalesce(1).write.format("kafka-discovery").mode("append").options(**copy.options(), writeId="one").save()
    with pytest.raises(PySparkException, match="or the writeId was used before"):
        rows.coalesce(1).write.format("kafka-discovery").mode("append").options(**copy.options(), writeId="one").save()
    assert copy.copied() == []


def test_given_one_sink_for_two_outputs_of_a_foreach_batch_when_run_then_the_second_is_refused(copy: Copy) -> None:
    write = exactly_once(copy.options())

    def twice(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)
        write(batch, batch_id)

    copy.put("a")
    trigger = copy.rows().writeStream.option("checkpointLocation", str(copy.checkpoint)).trigger(availableNow=True)
    query = trigger.foreachBatch(twice).start()
    try:
        with pytest.raises(StreamingQueryException, match="has batch 0 of another output of this foreachBatch"):
            query.awaitTermination(QUERY_SECONDS)
    finally:
        query.stop()
    assert copy.copied() == ["a"]


def test_given_update_mode_when_written_by_foreach_batch_and_replayed_then_every_total_is_there_once(
    copy: Copy,
) -> None:
    write = exactly_once({**copy.options(), "lanes": "2"}, "key")
    copy.put("a", "a", "b")
    for more in ("a", None):
        counted = copy.rows().groupBy("key").count().selectExpr("key", "concat(string(key), '=', count) as value")
        query = (
            counted.writeStream.outputMode("update")
            .option("checkpointLocation", str(copy.checkpoint))
            .trigger(availableNow=True)
            .foreachBatch(write)
            .start()
        )
        try:
            assert query.awaitTermination(QUERY_SECONDS), "the query did not end in time"
        finally:
            query.stop()
        if more is not None:
            copy.forget_commit(0)
            copy.put(more)
    assert copy.copied() == ["a=2", "a=3", "b=1"]
