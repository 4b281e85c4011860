"""Committed offsets of a group, by a short-lived consumer."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawTopicPartition

from discovery.core.errors import ConfigError
from discovery.core.model import TopicName, TopicPartition
from discovery.kafka.settings import QuietLog

_AGAIN_SECONDS = 0.1
_COORDINATOR_MOVING = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE}
)


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
    answer = _patiently(lambda left: consumer.committed(raw, timeout=left), timeout_seconds)
    return {
        TopicPartition(TopicName(tp.topic), tp.partition): tp.offset
        for tp in answer
        if tp.error is None and tp.offset >= 0
    }


def _patiently(ask: Callable[[float], Any], timeout_seconds: float) -> Any:
    """Ask again while the coordinator is moving or still being found, as on a new cluster; librdkafka does not."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return ask(max(0.001, deadline - time.monotonic()))
        except KafkaException as exc:
            if exc.args[0].code() not in _COORDINATOR_MOVING or time.monotonic() + _AGAIN_SECONDS >= deadline:
                raise
        time.sleep(_AGAIN_SECONDS)
