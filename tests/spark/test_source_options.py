"""Options of streams, each beside Spark's own source: the same words mean the same."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from discovery.localkafka.cluster import LocalKafka
from tests.spark.conftest import ReadStream
from tests.support.helpers import numbered, produce
from tests.support.spark.native import BOTH, fill, in_order, stays, written

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
EARLIEST = {"startingOffsets": "earliest"}
LENIENT = {"startingOffsetsByTimestampStrategy": "latest"}

STARTS: list[tuple[dict[str, object], int]] = [
    ({"startingOffsets": (7, 5, -2)}, 3),
    ({"startingTimestamp": "1045", **LENIENT}, 5),
    ({"startingOffsetsByTimestamp": (1_050, 1_040, 0), **LENIENT}, 6),
    (
        {
            "startingTimestamp": "1090",
            "startingOffsetsByTimestamp": (1_000, 1_000, 1_000),
            "startingOffsets": "earliest",
            **LENIENT,
        },
        1,
    ),
]


@pytest.mark.parametrize(("start", "count"), STARTS, ids=[next(iter(start)) for start, _ in STARTS])
def test_given_a_start_when_a_query_begins_then_both_sources_give_the_same_rows(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, start: dict[str, object], count: int
) -> None:
    fill(kafka_cluster, topic_name)
    options = {"subscribe": topic_name, **written(topic_name, start)}
    readings = [read_stream(options, format=name, checkpoint=name, trigger={"availableNow": True}) for name in BOTH]
    for reading in readings:
        reading.wait_end()
    native, ours = (in_order(reading.rows) for reading in readings)
    assert len(ours) == count
    assert ours == native


def test_given_no_record_at_a_time_when_that_is_an_error_then_both_fail(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    fill(kafka_cluster, topic_name)
    options = {"subscribe": topic_name, "startingTimestamp": "1045"}
    for name, text in zip(BOTH, ("No offset matched", "startingTimestamp: "), strict=True):
        reading = read_stream(options, format=name, checkpoint=name, trigger={"availableNow": True})
        with pytest.raises(Exception, match=text) as error:
            reading.wait_end()
    ours = str(error.value)
    assert f"{topic_name}-1 and 1 more has no record at or after 1045 (1970-01-01 00:00:01 UTC)" in ours
    assert "set startingOffsetsByTimestampStrategy to latest" in ours
    assert "Traceback" not in ours


@pytest.mark.parametrize("source", BOTH)
def test_given_a_least_batch_when_too_few_records_are_there_then_both_sources_wait(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, source: str
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(3))
    least = {"subscribe": topic_name, "minOffsetsPerTrigger": "5", **EARLIEST}
    patient = read_stream({**least, "maxTriggerDelay": "1h"}, format=source, checkpoint="patient")
    hasty = read_stream({**least, "maxTriggerDelay": "2s"}, format=source, checkpoint="hasty")
    patient.wait_rows(3)
    hasty.wait_rows(3)
    produce(kafka_cluster.bootstrap_servers, topic_name, "a", "b")
    stays(lambda: len(patient.rows) == 3, 1.0, "two records came although five are the least")
    hasty.wait_rows(5)
    produce(kafka_cluster.bootstrap_servers, topic_name, "c", "d", "e")
    patient.wait_rows(8)
    # A first batch of nothing comes where the topic is so new that its leader has not reported its end offset.
    assert patient.batches in ([3, 5], [0, 3, 5])


def test_given_both_limits_when_read_to_the_end_then_nothing_is_left_behind(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(25))
    limits = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "10"}
    batches = []
    for name in BOTH:
        options = {"subscribe": topic_name, **limits, **EARLIEST}
        reading = read_stream(options, format=name, checkpoint=name, trigger={"availableNow": True})
        reading.wait_end()
        batches.append(reading.batches)
    # The native source ends with five records unread: its own least batch holds them back, and nobody asks again.
    assert batches == [[10, 10], [10, 10, 5]]


def test_given_trigger_once_when_run_again_and_again_then_both_sources_take_all_there_is_in_one_batch(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    limited = {"subscribe": topic_name, "maxOffsetsPerTrigger": "7", **EARLIEST}
    for name in (*BOTH, *BOTH):
        # One checkpoint: each run continues where the other source stood.
        fresh = numbered(20, prefix=f"{name}-")
        produce(kafka_cluster.bootstrap_servers, topic_name, *fresh)
        reading = read_stream(limited, format=name, trigger={"once": True})
        reading.wait_end()
        assert reading.values() == sorted(fresh), name
        assert reading.batches == [20]


def test_given_task_limits_when_read_then_tasks_follow_them(
    spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    fill(kafka_cluster, topic_name)
    required = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, "subscribe": topic_name, **EARLIEST}
    streams: dict[str, list[int]] = {name: [] for name in BOTH}
    batches: dict[str, list[int]] = {name: [] for name in BOTH}
    for name in BOTH:
        for number, limit in enumerate(({"minPartitions": "6"}, {"maxRecordsPerPartition": "4"}, {})):
            frame = spark.readStream.format(name).options(**required, **limit).load()

            def count(batch: DataFrame, _batch_id: int, counts: list[int] = streams[name]) -> None:
                counts.append(batch.rdd.getNumPartitions())

            writer = frame.writeStream.foreachBatch(count)
            writer = writer.option("checkpointLocation", str(tmp_path / f"{name}-{number}"))
            assert writer.trigger(availableNow=True).start().awaitTermination(60)
            batches[name].append(spark.read.format(name).options(**required, **limit).load().rdd.getNumPartitions())
    assert streams["kafka"] == [6, 5, 2]
    assert batches["kafka"] == [6, 3, 3], "batch reads of the native source ignore maxRecordsPerPartition"
    # Few records share a task.
    assert streams["kafka-discovery"] == batches["kafka-discovery"] == [6, 5, 1]
