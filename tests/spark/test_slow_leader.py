"""A leader that lives and answers late, beside Spark's own source, and one that answers the driver alone."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.progress.listener import SourceProgress
from tests.spark.conftest import ReadStream
from tests.support.helpers import eventually, numbered, produce
from tests.support.proxy import Api, KafkaProxy, Rule
from tests.support.spark.native import BOTH

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
SLOW = 2
FIRST, LATER = numbered(5), numbered(5, prefix="later-")
CONNECTED = 8
"""Answers, one after another, until a new loop and a new worker have the first record: the impatient try, then first
answer, metadata, end and start; first answer, metadata and records."""
NAMED = MappingProxyType({"sourceId": "slow-leader"})
NONE: Mapping[str, str] = MappingProxyType({})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("named", [NONE, NAMED], ids=["plain", "named"])
def test_given_a_leader_that_answers_late_when_read_then_its_rows_flow_in_both_sources(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, named: Mapping[str, str]
) -> None:
    both_read(kafka_cluster, topic_name, read_stream, delay_seconds=1.3, named=named)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("delay_seconds", [5.0, 20.0])
@pytest.mark.parametrize("named", [NONE, NAMED], ids=["plain", "named"])
def test_given_a_leader_that_takes_many_seconds_when_read_then_its_rows_flow_in_both_sources(
    kafka_cluster: LocalKafka,
    topic_name: str,
    read_stream: ReadStream,
    delay_seconds: float,
    named: Mapping[str, str],
) -> None:
    both_read(kafka_cluster, topic_name, read_stream, delay_seconds=delay_seconds, named=named)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("delay_seconds", [5.0, 20.0])
def test_given_a_leader_that_takes_many_seconds_when_all_there_is_is_read_then_both_sources_end_with_it(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, delay_seconds: float
) -> None:
    with slow_leader(kafka_cluster, topic_name, delay_seconds) as proxy:
        for name in BOTH:
            given = {**options(proxy, topic_name), "kafka.default.api.timeout.ms": "120000"}
            reading = read_stream(given, format=name, checkpoint=name, available_now=True)
            reading.wait_end(90 + CONNECTED * delay_seconds)
            assert reading.values() == sorted([*FIRST, *FIRST])


@pytest.mark.timeout(300)
def test_given_a_leader_that_tasks_do_not_reach_when_read_then_the_driver_hears_and_a_restart_reads_all(
    spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    registry = CollectorRegistry()
    progress = SourceProgress(spark, state_dir=tmp_path, registry=registry)
    with slow_leader(kafka_cluster, topic_name, delay_seconds=0.0) as proxy:
        held = proxy.rule(Rule(api=Api.FETCH, broker=SLOW, count=10**9, hold_reply=True))
        given = {**options(proxy, topic_name), "stateDir": str(tmp_path), "stallTimeout": "20s"}
        progress.start()
        try:
            stalled = read_stream(given)
            eventually(lambda: held.hits and since(registry, topic_name), 60, "a batch that waits")
            (report,) = progress.reports().values()
            assert report.batch_since == since(registry, topic_name)
            assert report.parked_partitions == 0, "the driver reaches every leader"
            assert report.waiting_partitions == 0, "so it does not know for whom the tasks wait"
            with pytest.raises(StreamingQueryException) as error:
                stalled.wait_end()
        finally:
            progress.stop()
        (line,) = set(re.findall(r"stallTimeout: .*", str(error.value)))
        assert line.startswith("stallTimeout: no record came for ")
        assert f" from the leader of {topic_name}-1 at offset 0 of 5 (broker {SLOW}); " in line
        assert line.endswith("raise stallTimeout, or set sourceId, with which a batch ends without it")
        assert stalled.rows == []
        held.release.set()
        again = read_stream(given)
        produce(kafka_cluster.bootstrap_servers, topic_name, *LATER, partition=1)
        again.wait_rows(15)
        assert again.values() == sorted([*FIRST, *FIRST, *LATER])


def since(registry: CollectorRegistry, topic_name: str) -> float | None:
    """Return since when a batch of the source runs, as the driver's metrics show it; 0: none does."""
    name = "kafka_discovery_source_batch_started_timestamp_seconds"
    samples = (sample for family in registry.collect() for sample in family.samples)
    return next((s.value for s in samples if s.name == name and s.labels["source"] == topic_name), None)


def both_read(
    kafka_cluster: LocalKafka,
    topic_name: str,
    read_stream: ReadStream,
    *,
    delay_seconds: float,
    named: Mapping[str, str],
) -> None:
    """Read what a slow leader and a quick one have, then what the slow one gets; each row comes once."""
    with slow_leader(kafka_cluster, topic_name, delay_seconds) as proxy:
        given = {"kafka": NONE, "kafka-discovery": named}
        readings = {
            name: read_stream({**options(proxy, topic_name), **given[name]}, format=name, checkpoint=name)
            for name in BOTH
        }
        for reading in readings.values():
            reading.wait_rows(10, 90 + CONNECTED * delay_seconds)
        produce(kafka_cluster.bootstrap_servers, topic_name, *LATER, partition=1)
        for reading in readings.values():
            reading.wait_rows(15, 90 + CONNECTED * delay_seconds)
            assert reading.values() == sorted([*FIRST, *FIRST, *LATER])
            reading.query.stop()


def slow_leader(kafka_cluster: LocalKafka, topic_name: str, delay_seconds: float) -> KafkaProxy:
    """Write to two leaders and put a proxy before them that delays each answer of one."""
    kafka_cluster.create_topic(topic_name, assignment=[[1], [SLOW]])
    for partition in range(2):
        produce(kafka_cluster.bootstrap_servers, topic_name, *FIRST, partition=partition)
    proxy = KafkaProxy({number: kafka_cluster.address(number) for number in kafka_cluster.broker_ids})
    proxy.slow[SLOW] = delay_seconds
    return proxy


def options(proxy: KafkaProxy, topic_name: str) -> dict[str, str]:
    """How both read."""
    return {
        "kafka.bootstrap.servers": proxy.bootstrap_servers,
        "subscribe": topic_name,
        "startingOffsets": "earliest",
    }
