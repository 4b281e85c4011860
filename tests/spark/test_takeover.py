"""Stateful queries that move from Spark's own source to ours and back on one checkpoint: no row lost, none twice."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ORDER = ("kafka", "kafka-discovery", "kafka", "kafka-discovery")
"""Who reads in which run; each run goes on from the checkpoint of the one before."""
Read = Callable[[str], DataFrame]
Run = Callable[[str, Callable[[Read], DataFrame], str], list[tuple[object, ...]]]


@pytest.fixture
def run(spark: SparkSession, kafka_cluster: LocalKafka, tmp_path: Path) -> Run:
    """Run a query once to the end of this moment: `run("kafka", query, "update")` returns what it gave."""

    def once(source: str, query: Callable[[Read], DataFrame], mode: str) -> list[tuple[object, ...]]:
        given: list[tuple[object, ...]] = []

        def read(topic: str) -> DataFrame:
            options = {
                "kafka.bootstrap.servers": kafka_cluster.bootstrap_servers,
                "subscribe": topic,
                "startingOffsets": "earliest",
                # Several batches a run, so that the state is used within one, too.
                "maxOffsetsPerTrigger": "12",
            }
            return spark.readStream.format(source).options(**options).load()

        def keep(batch: DataFrame, _batch_id: int) -> None:
            given.extend(tuple(row) for row in batch.collect())

        writer = query(read).writeStream.outputMode(mode).foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        started = writer.trigger(availableNow=True).start()
        assert started.awaitTermination(120)
        return given

    return once


def rounds() -> Iterator[tuple[int, str]]:
    return iter(enumerate(ORDER))


def test_given_an_aggregation_when_the_source_changes_back_and_forth_then_every_count_goes_on(
    kafka_cluster: LocalKafka, topic_name: str, run: Run
) -> None:
    def counts(read: Read) -> DataFrame:
        return read(topic_name).groupBy(f.col("value").cast("string").alias("word")).count()

    kafka_cluster.create_topic(topic_name, 3)
    for number, source in rounds():
        words = [f"w{i % 5}" for i in range(20)] + [f"only-{number}"]
        produce(kafka_cluster.bootstrap_servers, topic_name, *words)
        latest: dict[object, int] = {}
        for word, count in run(source, counts, "update"):
            latest[word] = max(int(str(count)), latest.get(word, 0))
        assert latest == {**{f"w{i}": 4 * (number + 1) for i in range(5)}, f"only-{number}": 1}, source


def test_given_deduplication_when_the_source_changes_back_and_forth_then_each_key_comes_once(
    kafka_cluster: LocalKafka, topic_name: str, run: Run
) -> None:
    def distinct(read: Read) -> DataFrame:
        return read(topic_name).select(f.col("key").cast("string")).dropDuplicates(["key"])

    kafka_cluster.create_topic(topic_name, 3)
    for number, source in rounds():
        # Half of each round's keys were there before, and each comes twice.
        keys = range(number * 5, number * 5 + 10)
        produce(kafka_cluster.bootstrap_servers, topic_name, *[(f"k{key}", "x") for key in (*keys, *keys)])
        fresh = keys if number == 0 else range(number * 5 + 5, number * 5 + 10)
        assert sorted(run(source, distinct, "append")) == sorted((f"k{key}",) for key in fresh), source


@pytest.mark.long
def test_given_a_join_of_two_streams_when_the_source_changes_back_and_forth_then_each_pair_comes_once(
    kafka_cluster: LocalKafka, topic_name: str, run: Run
) -> None:
    ordered, paid = f"{topic_name}-orders", f"{topic_name}-payments"

    def events(frame: DataFrame, side: str) -> DataFrame:
        return frame.select(
            f.get_json_object(f.col("value").cast("string"), "$.id").alias("id"),
            f.col("timestamp").alias(f"{side}_at"),
        ).withWatermark(f"{side}_at", "1 hour")

    def pairs(read: Read) -> DataFrame:
        orders, payments = events(read(ordered), "ordered"), events(read(paid), "paid")
        soon = f.expr("paid_at BETWEEN ordered_at - INTERVAL 1 HOUR AND ordered_at + INTERVAL 1 HOUR")
        return orders.join(payments, "id").where(soon).select("id")

    for topic in (ordered, paid):
        kafka_cluster.create_topic(topic, 2)
    for number, source in rounds():
        orders, payments = range(number * 10, number * 10 + 10), range(number * 10 - 5, number * 10 + 5)
        # Half of the payments meet orders of the round before: the state must have come along.
        for topic, ids in ((ordered, orders), (paid, payments)):
            produce(kafka_cluster.bootstrap_servers, topic, *[json.dumps({"id": f"o{i}"}) for i in ids if i >= 0])
        met = [(f"o{i}",) for i in payments if i >= 0]
        assert sorted(run(source, pairs, "append")) == sorted(met), source
