"""`spark.read.format("kafka-discovery")` beside Spark's own source: the same options give the same rows."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    Snapshot,
    parse_bootstrap_servers,
)
from discovery.localkafka.cluster import LocalKafka
from discovery.store.snapshots import SnapshotStore
from tests.support.faults import refused_port
from tests.support.helpers import numbered, produce
from tests.support.kafka_fixtures import KafkaFactory
from tests.support.spark.native import delete_records, fill, rows, written

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


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.collect())


def failure(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as error:
        frame.collect()
    return str(error.value).partition("JVM stacktrace")[0]


@pytest.fixture
def filled(kafka_cluster: LocalKafka, topic_name: str) -> str:
    fill(kafka_cluster, topic_name)
    return topic_name


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
    options = {"subscribe": filled, **written(filled, bounds)}
    ours = rows(read_batch(options))
    assert len(ours) == count
    assert ours == rows(read_batch(options, format="kafka"))


def test_given_headers_when_read_at_once_then_both_sources_give_the_same(
    kafka_cluster: LocalKafka, topic_name: str, read_batch: ReadBatch
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "log_level": 0})
    producer.produce(topic_name, value="1", headers=[("a", b"x"), ("a", None), ("b", b"")])
    producer.produce(topic_name, value=None, key=b"")
    assert producer.flush(20) == 0
    options = {"subscribe": topic_name, "includeHeaders": "true"}
    assert rows(read_batch(options)) == rows(read_batch(options, format="kafka"))


def test_given_a_pattern_and_single_partitions_when_read_at_once_then_both_sources_give_the_same(
    kafka_cluster: LocalKafka, topic_name: str, read_batch: ReadBatch
) -> None:
    for topic in (f"{topic_name}-one", f"{topic_name}-two"):
        kafka_cluster.create_topic(topic, 2)
        for partition in range(2):
            produce(kafka_cluster.bootstrap_servers, topic, *numbered(4), partition=partition)
    assigned = json.dumps({f"{topic_name}-one": [1], f"{topic_name}-two": [0]})
    for options, count in (({"subscribePattern": f"{topic_name}-t"}, 8), ({"assign": assigned}, 8)):
        ours = rows(read_batch(options))
        assert len(ours) == count
        assert ours == rows(read_batch(options, format="kafka"))


def test_given_a_frame_when_used_again_after_more_was_written_then_it_still_means_the_same_records(
    kafka_cluster: LocalKafka, topic_name: str, read_batch: ReadBatch
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(3))
    options = {"subscribe": topic_name}
    ours, native = read_batch(options), read_batch(options, format="kafka")
    joined = ours.alias("a").join(ours.alias("b"), ["partition", "offset"])
    assert ours.count() == native.count() == joined.count() == 3
    produce(kafka_cluster.bootstrap_servers, topic_name, "later")
    # Spark plans a Python source once per `load`, the native one once per action.
    assert (ours.count(), native.count()) == (3, 4)
    assert read_batch(options).count() == 4


def test_given_mostly_dead_addresses_when_read_at_once_then_the_rows_come(
    filled: str, kafka_cluster: LocalKafka, read_batch: ReadBatch, tmp_path: Path
) -> None:
    living = kafka_cluster.address(2)
    dead = ",".join([*(f"127.0.0.1:{port}" for port in range(1, 9)), "gone.invalid:9092", living])
    options = {"kafka.bootstrap.servers": dead, "subscribe": filled, "stateDir": str(tmp_path / "state")}
    assert read_batch({**options, "startupTimeout": "20s"}).count() == 15


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets: latest is no start of a batch read"),
        ({"startingOffsets": (3, 0, 5)}, "-2 has no offset 5, it holds 0 to 0; correct the option"),
        ({"endingOffsets": (11, 5, 0)}, "-0 has no offset 11, it holds 0 to 10; correct the option"),
        (
            {"endingOffsets": (10, 5)},
            "endingOffsets: the JSON must name exactly the partitions that are read; not named",
        ),
        ({"startingTimestamp": "1050"}, "-1 and 1 more has no record at or after 1050 (1970-01-01 00:00:01 UTC)"),
        ({"subscribe": "no-such-topic", "startupTimeout": "3s"}, "after 3 s topic no-such-topic does not exist"),
    ],
    ids=["latest", "behind the end", "above the end", "a partition missing", "no record", "no topic"],
)
def test_given_bounds_that_are_not_there_when_read_at_once_then_one_line_says_what_is(
    filled: str, read_batch: ReadBatch, options: dict[str, object], text: str
) -> None:
    message = failure(read_batch({"subscribe": filled, **written(filled, options)}))
    assert text in message
    assert "Traceback" not in message


def test_given_offsets_that_are_not_there_when_loss_is_accepted_then_what_is_there_is_read(
    filled: str, read_batch: ReadBatch, kafka_cluster: LocalKafka
) -> None:
    delete_records(kafka_cluster, filled, 0, before=4)
    bounds: dict[str, object] = {"startingOffsets": (2, 0, 0), "endingOffsets": (10, 5, 0)}
    options = {"subscribe": filled, **written(filled, bounds), "failOnDataLoss": "false"}
    ours = rows(read_batch(options))
    assert len(ours) == 11
    assert ours == rows(read_batch(options, format="kafka"))
    assert "it holds 4 to 10" in failure(read_batch({**options, "failOnDataLoss": "true"}))


def test_given_a_dead_leader_when_read_at_once_then_the_read_fails_whole_and_names_its_partitions(
    kafka_factory: KafkaFactory, topic_name: str, read_batch: ReadBatch
) -> None:
    cluster = kafka_factory(brokers=2)
    cluster.create_topic(topic_name, assignment=[[1], [2]])
    produce(cluster.bootstrap_servers, topic_name, *numbered(10))
    cluster.kill([2])
    message = failure(read_batch({"subscribe": topic_name, "startupTimeout": "8s"}, cluster=cluster))
    assert f"a batch read is complete or fails: waited 8 s for {topic_name}-1 (it" in message
    assert "Traceback" not in message


def test_given_a_saved_view_of_a_cluster_that_is_gone_when_read_then_the_list_is_followed(
    kafka_cluster: LocalKafka, read_batch: ReadBatch, filled: str, tmp_path: Path
) -> None:
    store = SnapshotStore(tmp_path)
    with refused_port() as gone:
        broker = Broker(broker_id=BrokerId(1), address=BrokerAddress.parse(gone))
        snapshot = Snapshot(generation=Generation(3), cluster_id=ClusterId("gone"), brokers=(broker,))
        assert store.save(snapshot, parse_bootstrap_servers(kafka_cluster.bootstrap_servers, option="list"))
        store.close()
        assert read_batch({"subscribe": filled, "stateDir": str(tmp_path)}).count() == 15
        assert "belongs to cluster" in failure(
            read_batch({"subscribe": filled, "stateDir": str(tmp_path), "clusterId": "gone"})
        )
