"""What tests of the data plane share."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from discovery.core.model import TopicId, TopicName, TopicPartition
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.fetch import FetchRange
from discovery.spark.fetch.cache import close_all


@pytest.fixture
def closed_consumers() -> Iterator[None]:
    """Close this process's consumers after the test; `pytestmark = pytest.mark.usefixtures("closed_consumers")`."""
    yield
    close_all()


def range_of(topic: str, partition: int, start: int, end: int, topic_id: str | None = None) -> FetchRange:
    """A range of one partition."""
    return FetchRange(
        topic_partition=TopicPartition(TopicName(topic), partition),
        start_offset=start,
        end_offset=end,
        topic_id=None if topic_id is None else TopicId(topic_id),
    )


def end_of(cluster: LocalKafka, topic: str, partition: int = 0) -> int:
    """Ask a broker for the end of a partition."""
    client = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "probe", "log_level": 0})
    try:
        return int(client.get_watermark_offsets(ConfluentPartition(topic, partition), timeout=10)[1])
    finally:
        client.close()
