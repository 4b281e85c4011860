"""A query that goes on without the ledger in Kafka in which a cut of its own waits: refused by its workers."""

from functools import reduce
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from discovery.core.interest import CUT_LEDGER_TOPIC
from discovery.core.model import TopicName, TopicPartition, parse_bootstrap_servers
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.source.cuts.ledger import Entry, Incarnation
from discovery.spark.source.cuts.ledger_kafka import KafkaLedger
from discovery.spark.source.cuts.rules import CutRecord
from tests.support.helpers import produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def write_ledger(bootstrap: str, source_id: str, *entries: Entry, topic: str = CUT_LEDGER_TOPIC) -> None:
    brokers = parse_bootstrap_servers(bootstrap)
    ledger = KafkaLedger(TopicName(topic), source_id, properties=dict, brokers=lambda: brokers)
    ledger.open()
    ledger.append(entries)
    ledger.close()


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


def test_given_a_cut_in_the_ledger_in_kafka_when_its_query_goes_on_under_another_name_then_it_is_refused(
    spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    def run(*source_ids: str) -> StreamingQuery:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic_name, "startingOffsets": "earliest"}
        given |= {"stateDir": str(tmp_path / "state"), "cutLedger": "kafka", "cutLedgerTopic": f"{topic_name}-cuts"}
        sources = [
            spark.readStream.format("kafka-discovery").options(**given, sourceId=source_id).load()
            for source_id in source_ids
        ]
        writer = reduce(DataFrame.unionAll, sources).writeStream.foreachBatch(lambda df, _: rows.append(df.count()))
        checkpoint = str(tmp_path / "-".join(["c", str(len(source_ids))]))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return query

    def write(source_id: str, *records: CutRecord) -> None:
        write_ledger(bootstrap, source_id, Incarnation(number=1), *records, topic=f"{topic_name}-cuts")

    def cut_of(query: StreamingQuery) -> CutRecord:
        place = TopicPartition(TopicName(topic_name), 0)
        return CutRecord(
            topic_partition=place, topic_id=None, start=0, end=5, cut=3, plan=1, incarnation=1, query=query.id, batch=0
        )

    bootstrap = kafka_cluster.bootstrap_servers
    rows: list[int] = []
    kafka_cluster.create_topic(topic_name, 1)
    produce(bootstrap, topic_name, *"abcde")
    write("old", cut_of(run("old")))
    write("one", cut_of(run("one", "two")))
    assert sum(rows) == 15
    produce(bootstrap, topic_name, *"fg")
    rows.clear()
    run("one", "two")
    assert sum(rows) == 2 + 2 + 2, "two records of what was cut off, and the new ones, of each source"
    rows.clear()
    write("new")
    with pytest.raises(StreamingQueryException, match=r"loses \[3, 5\); start once more with sourceId=old"):
        run("new")
    assert not rows
