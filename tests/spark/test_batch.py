"""`spark.read.format("kafka-discovery")` beside Spark's own source: the same options give the same rows."""

import json
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from discovery.localkafka.cluster import LocalKafka

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ReadBatch = Callable[..., DataFrame]


@pytest.fixture
def read_batch(spark: SparkSession, kafka_cluster: LocalKafka) -> ReadBatch:
    """Read once: `read_batch({"subscribe": topic}, format="kafka")`."""

    def read(
        options: Mapping[str, str],
        *,
        format: str = "kafka-discovery",  # noqa: A002 - Spark's word
        cluster: LocalKafka = kafka_cluster,
    ) -> DataFrame:
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, **options}
        return spark.read.format(format).options(**given).load()

    return read


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    """Return all rows, ordered by partition and offset."""
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: row[2:5])


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.collect())


def failure(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as error:
        frame.collect()
    return str(error.value).partition("JVM stacktrace")[0]


def timed(cluster: LocalKafka, topic: str, partition: int, *times: int) -> None:
    """Write one record for each time."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for time_ms in times:
        producer.produce(topic, value=f"p{partition}@{time_ms}", partition=partition, timestamp=time_ms)
    assert producer.flush(20) == 0


@pytest.fixture
def filled(kafka_cluster: LocalKafka, topic_name: str) -> str:
    """Three partitions: ten records, five, none; the times of the first two are 1000, 1010 …"""
    kafka_cluster.create_topic(topic_name, 3)
    timed(kafka_cluster, topic_name, 0, *range(1_000, 1_100, 10))
    timed(kafka_cluster, topic_name, 1, *range(1_000, 1_050, 10))
    return topic_name


def per_partition(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


BOUNDS: list[tuple[dict[str, object], int]] = [
    ({}, 15),
    ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 15),
    ({"startingOffsets": (7, -2, 0)}, 8),
    ({"endingOffsets": (4, -1, 0)}, 9),
    ({"startingOffsets": (2, 1, 0), "endingOffsets": (4, 1, 0)}, 2),
    ({"endingTimestamp": "1015"}, 4),
    ({"endingTimestamp": "999"}, 0),
    ({"endingOffsetsByTimestamp": (1_020, 9_999_999_999_999, 0)}, 7),
    ({"startingOffsetsByTimestamp": (1_050, 1_040, 0), "startingOffsetsByTimestampStrategy": "latest"}, 6),
    ({"startingTimestamp": "1045", "startingOffsetsByTimestampStrategy": "latest"}, 5),
    # The strongest of three wins, as in the native source.
    (
        {
            "startingTimestamp": "1090",
            "startingOffsetsByTimestamp": (1_000, 1_000, 1_000),
            "startingOffsets": (0, 0, 0),
            "startingOffsetsByTimestampStrategy": "LATEST",
        },
        1,
    ),
    ({"endingTimestamp": "1010", "endingOffsetsByTimestamp": (0, 0, 0), "endingOffsets": "latest"}, 2),
    ({"startingTimestamp": "1010", "endingTimestamp": "1030", "startingOffsetsByTimestampStrategy": "latest"}, 4),
]


@pytest.mark.parametrize(("bounds", "count"), BOUNDS, ids=[" ".join(b) or "default" for b, _ in BOUNDS])
def test_given_bounds_when_read_at_once_then_both_sources_give_the_same_rows(
    filled: str, read_batch: ReadBatch, bounds: dict[str, object], count: int
) -> None:
    given = {name: v if isinstance(v, str) else per_partition(filled, *v) for name, v in bounds.items()}  # type: ignore[misc]
    options = {"subscribe": filled, **given}
    ours = rows(read_batch(options))
    assert len(ours) == count
    assert ours == rows(read_batch(options, format="kafka"))
