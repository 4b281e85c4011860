"""Mistakes: one line that names option, value, what was expected and the remedy; no traceback, no hang."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.launch.queries import StartedQuery
from tests.spark.conftest import NORMAL_TRIGGER, Reading, ReadStream
from tests.support.helpers import eventually, numbered, produce
from tests.support.kafka_fixtures import KafkaFactory
from tests.support.spark.native import per_partition

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
EARLIEST = {"startingOffsets": "earliest"}


def ended_with(reading: object) -> str:
    """Wait for the query's failure and return its text, which shows no stack of ours."""
    assert isinstance(reading, Reading)
    eventually(lambda: not reading.query.isActive, 60, "the end of the query")
    message = str(reading.query.exception()).partition("JVM stacktrace")[0]
    assert "Traceback" not in message
    return message


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"startingOffsets": '{"t":{"0":5}'},
            "startingOffsets: not valid JSON at character 12: Expecting ',' delimiter",
        ),
        ({"startingOffsets": '{"t":{"0":5,"0":6}}'}, "startingOffsets: not valid JSON: '0' is named twice"),
        (
            {"startingOffsets": '{"t":{"zero":5}}'},
            "startingOffsets: topic t: 'zero' is not a partition number (0 or more)",
        ),
        (
            {"startingOffsets": '{"t":{"0":-3}}'},
            "startingOffsets: topic t, partition 0: -3 is not an offset (0 or more, -1 for latest, -2 for earliest)",
        ),
        ({"startingOffsets": '{"t":{"0":9223372036854775808}}'}, "partition 0: 9223372036854775808 is not an offset"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger: 9 is more than maxOffsetsPerTrigger=8 allows",
        ),
        ({"maxOffsetPerTrigger": "1"}, "maxoffsetpertrigger: unknown option; did you mean"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is not one of true, false"),
        ({"startingTimestamp": "noon"}, "startingTimestamp: 'noon' is not a time"),
        ({"kafka.interceptor.classes": "a.B"}, "kafka.interceptor.classes is not supported"),
        ({"assign": "{}"}, "exactly one of subscribe, subscribePattern and assign is needed, found"),
        ({"subscribePattern": "a"}, "exactly one of subscribe, subscribePattern and assign is needed, found"),
    ],
)
def test_given_a_malformed_value_when_loaded_then_one_line_says_where(
    spark: SparkSession, options: Mapping[str, str], text: str
) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **options}
    for reader in (spark.readStream, spark.read):
        with pytest.raises(PySparkException) as error:
            reader.format("kafka-discovery").options(**given).load()
        message = str(error.value).partition("JVM stacktrace")[0]
        assert text in message
        assert "Traceback" not in message


def test_given_an_end_of_reading_when_a_stream_starts_then_it_is_refused(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    message = ended_with(read_stream({"subscribe": topic_name, "endingOffsets": "latest"}))
    assert "endingOffsets: a stream has no end; remove it, and use Trigger.AvailableNow" in message


def test_given_asynchronous_progress_tracking_when_a_named_source_plans_then_one_line_refuses_it(
    spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(20))
    options = {"subscribe": topic_name, "maxOffsetsPerTrigger": "2", "sourceId": topic_name, **EARLIEST}
    frame = spark.readStream.format("kafka-discovery").options(
        **{"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "stateDir": str(tmp_path / "state"), **options}
    )
    writer = frame.load().writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")
    start = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(**NORMAL_TRIGGER).start
    query = StartedQuery(start, print).current()
    eventually(lambda: not query.isActive, 60, "the end of the query")
    message = str(query.exception()).partition("JVM stacktrace")[0]
    assert "asyncProgressTrackingEnabled: true leaves batches out of Spark's log" in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((5,), "not named: {topic}-1; named but not there: none; use -2 for earliest, -1 for latest"),
        ((5, 5, 5), "not named: none; named but not there: {topic}-2"),
        ((5, 11), "startingOffsets: {topic}-1 has no offset 11, it holds 0 to 10; correct the option"),
    ],
    ids=["too few", "too many", "out of range"],
)  # fmt: skip
def test_given_offsets_that_are_not_there_when_a_query_starts_then_one_line_says_what_is(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, numbers: tuple[int, ...], text: str
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    for partition in range(2):
        produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(10), partition=partition)
    reading = read_stream({"subscribe": topic_name, "startingOffsets": per_partition(topic_name, *numbers)})
    assert text.format(topic=topic_name) in ended_with(reading)


def test_given_an_unknown_topic_or_partition_when_a_query_starts_then_it_is_named_in_time(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    quick = {"startupTimeout": "3s"}
    absent = read_stream({"subscribe": "no-such-topic", **quick}, checkpoint="topic")
    assigned = read_stream({"assign": json.dumps({topic_name: [0, 7]}), **quick}, checkpoint="partition")
    assert "startupTimeout: after 3 s topic no-such-topic does not exist; create it or correct" in ended_with(absent)
    assert f"after 3 s assign names partitions that do not exist: {topic_name}-7" in ended_with(assigned)


def test_given_a_checkpoint_of_another_topic_when_a_query_starts_then_it_says_so(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    one, two = f"{topic_name}-one", f"{topic_name}-two"
    for topic in (one, two):
        kafka_cluster.create_topic(topic, 1)
        produce(kafka_cluster.bootstrap_servers, topic, "x")
    read_stream({"subscribe": one, **EARLIEST}, available_now=True).wait_end()
    reading = read_stream({"subscribe": two, **EARLIEST}, available_now=True)
    message = ended_with(reading)
    assert f"the checkpoint has {one}-0 at offset 1, but the subscription does not name it" in message
    assert 'set failOnDataLoss to "false" to go on without these records, or start with a new checkpoint' in message
    accepting = read_stream({"subscribe": two, "failOnDataLoss": "false", **EARLIEST}, available_now=True)
    accepting.wait_end()
    assert accepting.values() == ["x"]


def test_given_a_checkpoint_that_is_no_offsets_of_kafka_when_a_query_starts_then_it_says_what_it_found(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, "x")
    read_stream({"subscribe": topic_name, **EARLIEST}, available_now=True).wait_end()
    log = tmp_path / "checkpoint" / "offsets" / "0"
    log.write_text(log.read_text().replace(json.dumps({topic_name: {"0": 1}}), '{"other": "source"}'))
    (log.parent / ".0.crc").unlink(missing_ok=True)
    message = ended_with(read_stream({"subscribe": topic_name}, available_now=True))
    assert "the checkpoint's offsets: topic other: expected partitions like {\"0\": 123}, not 'source'" in message


def test_given_another_clusters_id_when_started_then_the_query_says_both(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    message = ended_with(read_stream({"subscribe": topic_name, "clusterId": "not-this-one", "startupTimeout": "20s"}))
    assert "not-this-one" in message
    assert kafka_cluster.cluster_id in message


def test_given_a_checkpoint_of_another_cluster_when_a_query_starts_then_its_topics_are_not_mixed_up(
    kafka_cluster: LocalKafka, kafka_factory: KafkaFactory, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    other = kafka_factory(brokers=1)
    named = {"subscribe": topic_name, "sourceId": topic_name, "stateDir": str(tmp_path / "state"), **EARLIEST}
    for cluster in (kafka_cluster, other):
        cluster.create_topic(topic_name, 1, 1)
        produce(cluster.bootstrap_servers, topic_name, *numbered(10, prefix=cluster.cluster_id))
    read_stream(named, available_now=True).wait_end()
    reading = read_stream({**named, "startupTimeout": "20s"}, cluster=other, available_now=True)
    message = ended_with(reading)
    assert reading.rows == []
    assert kafka_cluster.cluster_id in message
    assert other.cluster_id in message
