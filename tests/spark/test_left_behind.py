"""A query that goes on without the ledger in Kafka in which a cut of its own waits: refused by its workers."""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core.interest import CUT_LEDGER_TOPIC
from discovery.core.model import TopicName, TopicPartition, parse_bootstrap_servers
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.source.cuts.ledger import Entry, Incarnation
from discovery.spark.source.cuts.ledger_kafka import KafkaLedger
from discovery.spark.source.cuts.rules import CutRecord
from tests.support.helpers import produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def write_ledger(bootstrap: str, source_id: str, *entries: Entry) -> None:
    brokers = parse_bootstrap_servers(bootstrap)
    ledger = KafkaLedger(CUT_LEDGER_TOPIC, source_id, properties=dict, brokers=lambda: brokers)
    ledger.open()
    ledger.append(entries)


def test_given_a_cut_in_the_ledger_in_kafka_when_its_query_goes_on_without_a_name_then_its_workers_refuse(
    spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    def run(checkpoint: str) -> StreamingQuery:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic_name, "startingOffsets": "earliest"}
        given |= {"stateDir": str(tmp_path / "state")}
        stream = spark.readStream.format("kafka-discovery").options(**given).load()
        writer = stream.writeStream.foreachBatch(lambda batch, _: rows.append(batch.count()))
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return query

    bootstrap = kafka_cluster.bootstrap_servers
    rows: list[int] = []
    kafka_cluster.create_topic(topic_name, 1)
    produce(bootstrap, topic_name, *"abcde")
    query_id = run("mine").id
    run("another")
    assert sum(rows) == 10
    cut = CutRecord(
        topic_partition=TopicPartition(TopicName(topic_name), 0), topic_id=None, start=0, end=5, cut=3, plan=1,
        incarnation=1, query=query_id,
    )  # fmt: skip
    write_ledger(bootstrap, topic_name, Incarnation(number=1), cut)
    produce(bootstrap, topic_name, *"fg")
    rows.clear()
    with pytest.raises(StreamingQueryException, match=r"loses \[3, 5\).*remove offsets/\d+ from the checkpoint first"):
        run("mine")
    assert not rows
    run("another")
    assert sum(rows) == 2
