"""Committed offsets of a group, by a short-lived consumer."""

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as RawTopicPartition

from discovery.core.errors import ConfigError
from discovery.core.model import TopicName, TopicPartition
from discovery.kafka.settings import QuietLog


def committed_offsets(
    properties: Mapping[str, Any], group: str, partitions: Collection[TopicPartition], *, timeout_seconds: float
) -> Mapping[TopicPartition, int]:
    """Ask the group's coordinator; partitions without a committed offset are absent.

    `AdminClient.list_consumer_group_offsets` would need no client of its own, but it crashes the whole process with
    a segmentation fault whenever the asked broker is not the coordinator (any more): on a new cluster, and when the
    coordinator moves, that is in every scale-in (librdkafka issue 5040, seen with 2.16.0).

    Raises:
        ConfigError: librdkafka refuses a property.
        KafkaException: the coordinator did not answer.

    Runs: anywhere; blocks <= timeout_seconds. The consumer joins no group and is dropped, not closed: `close` has
    no limit.
    """
    try:
        consumer = Consumer(
            {**properties, "group.id": group, "enable.auto.commit": False, "enable.auto.offset.store": False},
            logger=QuietLog(),
        )
    except KafkaException as exc:
        raise ConfigError(f"kafka options: {exc.args[0].str()}") from exc
    raw = [RawTopicPartition(tp.topic, tp.partition) for tp in partitions]
    answer = consumer.committed(raw, timeout=timeout_seconds)
    return {
        TopicPartition(TopicName(tp.topic), tp.partition): tp.offset
        for tp in answer
        if tp.error is None and tp.offset >= 0
    }
