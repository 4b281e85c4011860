"""The lanes protocol on real brokers, without Spark."""

from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from spark_jobs.sink.writer import Outcome
from tests.sink_support import Sink
from tests.support import numbered

pytestmark = pytest.mark.kafka


@pytest.fixture
def sink(kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path) -> Sink:
    kafka_cluster.create_topic(topic_name, partitions=3, replication_factor=3)
    return Sink(kafka_cluster, tmp_path, sink_id=topic_name, topic=topic_name)


def test_given_a_batch_when_written_and_replayed_then_its_records_are_there_once(sink: Sink) -> None:
    first = sink.write(0, numbered(10))
    assert first.outcome is Outcome.WRITTEN
    again = sink.write(0, numbered(10))
    assert (again.outcome, again.fingerprint) == (Outcome.KEPT, first.fingerprint)
    sink.confirm(again)
    sink.confirm(again)
    assert sink.write(1, ["later"]).outcome is Outcome.WRITTEN
    assert sink.visible() == sorted([*numbered(10), "later"])
