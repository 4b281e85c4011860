"""What a driver sees of its sources."""

import logging
import tempfile
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.progress.listener import SourceProgress
from tests.spark.conftest import ReadStream
from tests.support.helpers import eventually, numbered, produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_given_two_queries_when_they_run_then_the_driver_sees_each_ones_lag_state_and_end(
    spark: SparkSession,
    kafka_cluster: LocalKafka,
    topic_name: str,
    read_stream: ReadStream,
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = CollectorRegistry()
    with tempfile.TemporaryDirectory() as state, caplog.at_level(logging.INFO, "kafka_discovery.progress"):
        progress = SourceProgress(spark, state_dir=Path(state), registry=registry).start()
        try:
            kafka_cluster.create_topic(topic_name, 2)
            produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(40))
            options = {"subscribe": topic_name, "startingOffsets": "earliest", "stateDir": state}
            # One reads everything, one is held back.
            free = read_stream({**options, "sourceId": "free"}, checkpoint="free")
            free.wait_rows(40)
            held = read_stream(
                {**options, "sourceId": "held", "maxOffsetsPerTrigger": "1", "onParked": "continue"}, checkpoint="held"
            )
            keys = {f"{free.query.id}/free", f"{held.query.id}/held"}
            eventually(lambda: keys <= progress.reports().keys(), 60, f"both queries among {progress.reports().keys()}")
            eventually(lambda: progress.reports()[f"{free.query.id}/free"].lag_records == 0, 60, "no lag")
            report = progress.reports()[f"{free.query.id}/free"]
            assert (report.state, report.partitions, report.parked_partitions) == ("fresh", 2, 0)
            labels = {"source": "free", "query": str(free.query.id)}
            assert registry.get_sample_value("kafka_discovery_source_partitions", labels) == 2
            assert "source free: fresh: 3 of 3 addresses alive" in caplog.text
            free.query.stop()
            held.query.stop()
            eventually(lambda: not progress.reports(), 60, "the end of the reports")
        finally:
            progress.stop()
