import pytest
from confluent_kafka import Consumer, TopicPartition

from discovery.localkafka.cluster import LocalKafka
from tests.support import produce

pytestmark = pytest.mark.kafka


def test_given_the_shared_cluster_when_records_are_written_then_they_are_read(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 2, 3)
    produce(kafka_cluster.bootstrap_servers, topic_name, "a", ("k", "b"), partition=1)
    consumer = Consumer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": "t"})
    try:
        consumer.assign([TopicPartition(topic_name, 1, 0)])
        read = consumer.consume(2, timeout=10)
    finally:
        consumer.close()
    assert [(m.key(), m.value()) for m in read] == [(None, b"a"), (b"k", b"b")]
