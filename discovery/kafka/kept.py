"""The last value of each key in a compacted topic, as committed transactions left it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from discovery.core.errors import ConfigError, TransactionError
from discovery.core.model import TopicName
from discovery.kafka.patience import may_pass, outcome_of
from discovery.kafka.settings import QuietLog
from discovery.kafka.transactions import Access, patiently

_POLL_SECONDS = 0.1
_AT_ONCE = 1_000
_NOT_YET_KNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001 - public
"""Of a topic that exists: it was made a moment ago, and this broker has not heard of it."""


def last_values(
    access: Access,
    topic: TopicName,
    wanted: Callable[[str], bool],
    *,
    group: str,
    timeout_seconds: float,
    committed: bool = True,
) -> Mapping[tuple[int, str], str]:
    """Return the last value by partition and key; a key whose last value is null is absent.

    Reads to the high watermark of this moment, and waits for transactions that are open before it: what stands behind
    another's open transaction must not be taken for absent.

    Args:
        access: How the brokers are reached.
        topic: Exists.
        wanted: Which keys are kept in memory.
        group: A consumer has to name one that it may use; nothing is committed under it.
        timeout_seconds: Bounds it all.
        committed: False: do not wait; what is returned may yet be aborted.

    Raises:
        ConfigError: librdkafka refuses a property, or the topic may not be read.
        TransactionError: not at the end in time, or brokers do not say what the topic has.

    Runs: driver and operators' commands; blocks <= timeout_seconds + 0.5.
    """
    deadline = time.monotonic() + timeout_seconds
    ends = _ends(access, topic, deadline)
    found: dict[tuple[int, str], str] = {}
    consumer = _consumer(access, group, committed=committed)
    consumer.assign([RawTopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
    while ends:
        if time.monotonic() >= deadline:
            raise TransactionError(
                f"topic {topic} was not read to its end in {timeout_seconds:g} s: is a transaction open? start again"
            )
        for message in consumer.consume(_AT_ONCE, _POLL_SECONDS):
            _take_in(message, found, ends, wanted)
    return found


def _take_in(
    message: Any, found: dict[tuple[int, str], str], ends: dict[int, int], wanted: Callable[[str], bool]
) -> None:
    partition, error = message.partition(), message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public name
            if message.offset() >= ends.get(partition, 0):
                ends.pop(partition, None)
        elif not may_pass(error):
            raise ConfigError(f"topic {message.topic()}: {error.str()}; allow READ and DESCRIBE on it")
        return
    key = (message.key() or b"").decode(errors="replace")
    if not wanted(key):
        return
    found.pop((partition, key), None)
    if message.value() is not None:
        found[partition, key] = message.value().decode(errors="replace")


def _ends(access: Access, topic: TopicName, deadline: float) -> dict[int, int]:
    """Return the high watermark of each partition that ever had a record."""
    admin = AdminClient(access.properties(), logger=QuietLog())

    def look(left: float) -> list[int]:
        found: Any = admin.list_topics(topic, timeout=left)
        known = found.topics[topic]
        if known.error is not None:
            # Not to be taken for a topic without partitions: then nothing was ever recorded.
            raise KafkaException(known.error)
        return list(known.partitions)

    numbers: list[int] = patiently(look, deadline, f"look for topic {topic}", passes=_passes)
    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {RawTopicPartition(topic, number): latest for number in numbers}

    def ask(left: float) -> dict[int, int]:
        answered = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=left)
        return {place.partition: outcome_of(future, left).offset for place, future in answered.items()}

    ends: dict[int, int] = patiently(ask, deadline, f"find the end of topic {topic}", passes=_passes)
    return {number: end for number, end in ends.items() if end > 0}


def _passes(error: KafkaError) -> bool:
    return may_pass(error) or error.code() in _NOT_YET_KNOWN


def _consumer(access: Access, group: str, *, committed: bool) -> Any:
    properties = {
        **access.properties(),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
    }
    try:
        return Consumer(properties, logger=QuietLog())
    except KafkaException as exc:
        raise ConfigError(f"kafka options: {exc.args[0].str()}") from exc
