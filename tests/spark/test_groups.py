"""Consumer groups: begin at its offsets, and commit the query's to it."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RawTopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from discovery.localkafka.cluster import LocalKafka
from tests.spark.conftest import ReadStream
from tests.support.helpers import commit, eventually, numbered, produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Group:
    """A consumer group, looked at and moved from outside."""

    def __init__(self, cluster: LocalKafka, name: str, topic: str, partitions: int) -> None:
        self._raw = [RawTopicPartition(topic, partition) for partition in range(partitions)]
        self._consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": name, "log_level": 0})

    def stands(self) -> list[int]:
        return [tp.offset for tp in self._consumer.committed(self._raw, timeout=20)]

    def move(self, *offsets: int) -> None:
        moved = [RawTopicPartition(tp.topic, tp.partition, o) for tp, o in zip(self._raw, offsets, strict=True)]
        commit(self._consumer, *moved)


def _fill(cluster: LocalKafka, topic: str, first: int, last: int) -> None:
    for partition in range(2):
        values = [f"{partition}-{number}" for number in range(first, last)]
        produce(cluster.bootstrap_servers, topic, *values, partition=partition)


def test_given_a_group_when_a_query_starts_there_then_it_reads_on_and_the_group_follows_through_kills_and_failures(
    spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    _fill(kafka_cluster, topic_name, 0, 30)
    group = Group(kafka_cluster, topic_name, topic_name, 2)
    group.move(10, 25)
    options = {
        "subscribe": topic_name,
        "startingOffsets": "committed",
        "kafka.group.id": topic_name,
        "commitOffsets": "true",
    }
    reading = read_stream(options, available_now=True)
    reading.wait_end()
    assert reading.values() == sorted([*(f"0-{i}" for i in range(10, 30)), *(f"1-{i}" for i in range(25, 30))])
    assert group.stands() == [30, 30], "a bounded query commits before it ends"

    # While it runs the group follows, the last batch included.
    reading = read_stream(options)
    _fill(kafka_cluster, topic_name, 30, 40)
    reading.wait_rows(20)
    eventually(lambda: group.stands() == [40, 40], 30, "the commit of the last batch")
    reading.query.stop()

    # A batch that Spark has not recorded is never committed.
    _fill(kafka_cluster, topic_name, 40, 45)

    def fail(batch: DataFrame, _: int) -> None:
        if batch.count():
            raise ValueError("the sink is full")

    frame = spark.readStream.format("kafka-discovery").options(
        **{"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, **options}
    )
    writer = frame.load().writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(60)
    assert group.stands() == [40, 40]

    # What a killed driver had not committed is committed by the next start, without a new record.
    reading = read_stream(options)
    eventually(lambda: sum(p.numInputRows for p in reading.query.recentProgress) == 10, 60, "a recorded batch")
    reading.query.stop()
    group.move(1, 1)
    reading = read_stream(options, available_now=True)
    reading.wait_end()
    assert reading.rows == []
    assert group.stands() == [45, 45]


def test_given_a_new_query_at_latest_when_it_is_stopped_before_its_first_record_then_the_next_run_skips_nothing(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(10, prefix="old"))
    reading = read_stream({"subscribe": topic_name}, available_now=True)
    reading.wait_end()
    assert reading.rows == []
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(5, prefix="new"))
    reading = read_stream({"subscribe": topic_name}, available_now=True)
    reading.wait_end()
    assert reading.values() == sorted(numbered(5, prefix="new"))


def test_given_a_new_query_when_it_dies_before_its_first_row_then_each_partition_starts_once(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(10, prefix="old"))
    reading = read_stream({"subscribe": topic_name}, available_now=True)
    reading.wait_end()
    # As if the driver had died there: the first batch is planned, and nothing says that it was done.
    commits = tmp_path / "checkpoint" / "commits"
    for written in commits.iterdir():
        written.unlink()
    assert (tmp_path / "checkpoint" / "offsets" / "0").exists()
    kafka_cluster.add_partitions(topic_name, 2)
    wanted = [*numbered(5, prefix="new"), *numbered(3, prefix="added")]
    produce(kafka_cluster.bootstrap_servers, topic_name, *wanted[:5], partition=0)
    produce(kafka_cluster.bootstrap_servers, topic_name, *wanted[5:], partition=1)
    for rows in (wanted, []):
        reading = read_stream({"subscribe": topic_name}, available_now=True)
        reading.wait_end()
        assert reading.values() == sorted(rows)
