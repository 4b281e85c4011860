"""`format("kafka-discovery")` in real Spark over real brokers."""

import json
import time
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.checkpoint.read import Writer, read_checkpoint
from discovery.spark.checkpoint.verify import judge
from discovery.spark.source.planning.offsets import to_json
from tests.spark.conftest import ReadStream
from tests.support.helpers import eventually, numbered, produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
EARLIEST = {"startingOffsets": "earliest"}


def test_given_records_when_read_from_earliest_then_each_comes_once_with_all_columns(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 3)
    produce(kafka_cluster.bootstrap_servers, topic_name, *[(f"k{i}", f"v{i}") for i in range(300)])
    produce(kafka_cluster.bootstrap_servers, topic_name, (None, None), partition=1)
    reading = read_stream({"subscribe": topic_name, **EARLIEST})
    reading.wait_rows(301)
    rows = [row.asDict() for row in reading.rows]  # type: ignore[attr-defined]
    keyed = {bytes(row["key"]).decode(): row for row in rows if row["key"] is not None}
    assert {key: bytes(row["value"]).decode() for key, row in keyed.items()} == {f"k{i}": f"v{i}" for i in range(300)}
    assert [(row["value"], row["partition"]) for row in rows if row["key"] is None] == [(None, 1)]
    assert len({(row["partition"], row["offset"]) for row in rows}) == 301
    assert {row["topic"] for row in rows} == {topic_name}
    assert {row["timestampType"] for row in rows} == {0}
    assert all(abs(row["timestamp"].timestamp() - time.time()) < 86_400 for row in rows)


def test_given_both_sources_when_their_schemas_are_compared_then_they_are_equal(
    spark: SparkSession, kafka_cluster: LocalKafka
) -> None:
    for headers in ("false", "true"):
        options = {
            "kafka.bootstrap.servers": kafka_cluster.bootstrap_servers,
            "subscribe": "x",
            "includeHeaders": headers,
        }
        ours = spark.readStream.format("kafka-discovery").options(**options).load()
        native = spark.readStream.format("kafka").options(**options).load()
        assert ours.schema == native.schema


def test_given_latest_when_the_query_runs_then_only_later_records_come(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(50, prefix="old"))
    reading = read_stream({"subscribe": topic_name})
    eventually(lambda: _planned(reading.query), 60, "the first plan")
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(20, prefix="new"))
    reading.wait_rows(20)
    assert reading.values() == sorted(numbered(20, prefix="new"))


def test_given_json_offsets_when_read_then_each_partition_begins_where_it_is_asked_to(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 3)
    for partition in range(3):
        produce(
            kafka_cluster.bootstrap_servers, topic_name, *numbered(10, prefix=f"p{partition}-"), partition=partition
        )
    starting = json.dumps({topic_name: {"0": 7, "1": -2, "2": -1}})
    reading = read_stream({"subscribe": topic_name, "startingOffsets": starting}, available_now=True)
    reading.wait_end()
    assert reading.values() == sorted([*(f"p0-{i}" for i in (7, 8, 9)), *numbered(10, prefix="p1-")])


def test_given_a_query_at_latest_when_partitions_are_added_then_theirs_come_from_the_first(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    for partition in range(2):
        produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(10, prefix="old"), partition=partition)
    reading = read_stream({"subscribe": topic_name})
    eventually(lambda: _planned(reading.query), 60, "the first plan")
    kafka_cluster.add_partitions(topic_name, 4)
    wanted: list[str] = []
    for partition in (2, 3, 0, 1):
        wanted += numbered(10, prefix=f"{partition}-")
        produce(kafka_cluster.bootstrap_servers, topic_name, *wanted[-10:], partition=partition)
    reading.wait_rows(40)
    assert reading.values() == sorted(wanted)


def test_given_a_checkpoint_of_each_phase_when_restarted_then_it_holds_what_was_found(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    options, topic = {"subscribePattern": f"{topic_name}-.*"}, f"{topic_name}-x"

    def logged() -> Mapping[str, Mapping[str, int]]:
        found = read_checkpoint(tmp_path / "checkpoint")
        assert found.planned == found.done
        assert found.done is not None
        (source,) = found.done.sources
        return to_json(source.offsets)

    def run() -> tuple[list[str], Mapping[str, Mapping[str, int]]]:
        """Read what is there; return the rows, and what the checkpoint says then."""
        reading = read_stream(options, available_now=True)
        reading.wait_end()
        return reading.values(), logged()

    reading = read_stream(options)
    eventually(lambda: reading.query.status["message"].startswith("Waiting for"), 60, "a query without a topic")
    eventually((tmp_path / "checkpoint" / "commits" / "0").exists, 30, "the first batch, an empty one")
    reading.query.stop()
    assert logged() == {}, "the first look is over, and nothing was there"
    kafka_cluster.create_topic(topic, 1)
    produce(kafka_cluster.bootstrap_servers, topic, *numbered(3))
    assert run() == (numbered(3), {topic: {"0": 3}}), "so this topic is a later one: from its first record"
    kafka_cluster.add_partitions(topic, 2)
    assert run() == ([], {topic: {"0": 3}}), "found, and nothing to read"
    produce(kafka_cluster.bootstrap_servers, topic, "added", partition=1)
    produce(kafka_cluster.bootstrap_servers, topic, "more", partition=0)
    assert run() == (["added", "more"], {topic: {"0": 4, "1": 1}})
    assert run() == ([], {topic: {"0": 4, "1": 1}})


def test_given_a_pattern_when_a_topic_appears_then_it_is_read_too(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    reading = read_stream({"subscribePattern": f"{topic_name}-.*"})
    eventually(lambda: reading.query.status["message"].startswith("Waiting for"), 60, "a query without a topic")
    kafka_cluster.create_topic(f"{topic_name}-one", 1)
    produce(kafka_cluster.bootstrap_servers, f"{topic_name}-one", "1")
    reading.wait_rows(1)
    kafka_cluster.create_topic(f"{topic_name}-two", 1)
    produce(kafka_cluster.bootstrap_servers, f"{topic_name}-two", "2")
    reading.wait_rows(2)
    assert reading.values() == ["1", "2"]


def test_given_assign_when_read_then_only_those_partitions_come(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 3)
    for partition in range(3):
        produce(kafka_cluster.bootstrap_servers, topic_name, f"p{partition}", partition=partition)
    reading = read_stream({"assign": json.dumps({topic_name: [0, 2]}), **EARLIEST}, available_now=True)
    reading.wait_end()
    assert reading.values() == ["p0", "p2"]


def test_given_headers_when_asked_for_then_nulls_repeats_and_their_absence_are_kept(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "log_level": 0})
    producer.produce(topic_name, value="1", headers=[("a", b"x"), ("a", None), ("b", b"")])
    producer.produce(topic_name, value="2")
    assert producer.flush(20) == 0
    ours = read_stream({"subscribe": topic_name, "includeHeaders": "true", **EARLIEST}, available_now=True)
    native = read_stream(
        {"subscribe": topic_name, "includeHeaders": "true", **EARLIEST},
        available_now=True, format="kafka", checkpoint="native",
    )  # fmt: skip
    ours.wait_end()
    native.wait_end()
    assert ours.rows == native.rows
    found = [row.headers for row in ours.rows]  # type: ignore[attr-defined]
    assert [(h.key, h.value) for h in found[0]] == [("a", b"x"), ("a", None), ("b", b"")]
    assert found[1] is None


def test_given_a_rate_limit_when_read_then_no_batch_exceeds_it(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(400))
    options = {"subscribe": topic_name, "maxOffsetsPerTrigger": "100", **EARLIEST}
    reading = read_stream(options, available_now=True)
    reading.wait_end()
    assert reading.values() == sorted(numbered(400))
    assert max(reading.batches) <= 102
    assert len(reading.batches) >= 4


def test_given_a_restart_from_the_checkpoint_when_read_then_nothing_is_lost_or_repeated(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    values = numbered(90)
    read: list[str] = []
    for part in (values[:30], values[30:60], values[60:]):
        produce(kafka_cluster.bootstrap_servers, topic_name, *part)
        reading = read_stream({"subscribe": topic_name, **EARLIEST}, available_now=True)
        reading.wait_end()
        assert reading.values() == sorted(part)
        read += reading.values()
    assert sorted(read) == sorted(values)


def test_given_the_native_sources_checkpoint_when_taken_over_and_handed_back_then_every_record_comes_once(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, 3)
    for number, source in enumerate(("kafka", "kafka-discovery", "kafka", "kafka-discovery")):
        fresh = numbered(40, prefix=f"{number}-")
        produce(kafka_cluster.bootstrap_servers, topic_name, *fresh)
        reading = read_stream({"subscribe": topic_name, **EARLIEST}, available_now=True, format=source)
        reading.wait_end()
        assert reading.values() == sorted(fresh), source
        written = read_checkpoint(tmp_path / "checkpoint")
        assert written.done is not None
        assert [kafka.writer.value for kafka in written.done.sources] == [source]
        assert written.planned == written.done
        assert all(judge(written, reader=reader).sound for reader in (Writer.NATIVE, Writer.OURS))


def put_transactions(cluster: LocalKafka, topic: str) -> None:
    """Write 0 to 5, of which the even ones are aborted."""
    cluster.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, value=str(number))
        producer.flush(20)
        producer.commit_transaction(20) if number % 2 else producer.abort_transaction(20)


def test_given_aborted_transactions_when_read_by_default_then_sparks_own_source_has_them_and_librdkafka_has_not(
    kafka_cluster: LocalKafka, topic_name: str, spark: SparkSession
) -> None:
    put_transactions(kafka_cluster, topic_name)
    servers = kafka_cluster.bootstrap_servers
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic_name}
    rows = spark.read.format("kafka").options(**options).load().collect()
    assert sorted(row.value.decode() for row in rows) == list("012345")
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": topic_name, "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic_name, 0, 0)])
    messages = iter(lambda: consumer.poll(30), None)
    found = [message.value() for message in takewhile(lambda message: message.error() is None, messages)]
    consumer.close()
    assert found == [b"1", b"3", b"5"]


def test_given_committed_and_aborted_transactions_when_read_committed_then_only_the_committed_come(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    put_transactions(kafka_cluster, topic_name)
    options = {"subscribe": topic_name, "kafka.isolation.level": "read_committed", **EARLIEST}
    reading = read_stream(options, available_now=True)
    reading.wait_end()
    assert reading.values() == ["1", "3", "5"]


def _planned(query: object) -> bool:
    progress = query.lastProgress  # type: ignore[attr-defined]
    return progress is not None and progress["sources"][0]["endOffset"] is not None
