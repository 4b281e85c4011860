"""Small helpers every kind of test may use."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

Record = str | bytes | tuple[str | bytes | None, str | bytes | None]
"""A value, or (key, value)."""


def eventually(condition: Callable[[], object], deadline_seconds: float, message: str | Callable[[], str] = "") -> None:
    """Ask until the condition is truthy; fail with `message` after the deadline. For real processes only.

    A message that is called says how things stand when the time is over, not when it began.
    """
    deadline = time.monotonic() + deadline_seconds
    while not condition():
        if time.monotonic() > deadline:
            said = message() if callable(message) else message
            raise AssertionError(f"{said or condition} did not happen within {deadline_seconds:g} s")
        time.sleep(0.05)


_COORDINATOR_STARTS = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def commit(consumer: Consumer, *offsets: TopicPartition, deadline_seconds: float = 30.0) -> None:
    """Commit a group's offsets, as soon as its coordinator has come up; a fresh cluster's takes a moment."""

    def committed() -> bool:
        try:
            consumer.commit(offsets=list(offsets), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in _COORDINATOR_STARTS:
                return False
            raise
        return True

    eventually(committed, deadline_seconds, "offsets to be committed")


def produce(
    bootstrap_servers: str,
    topic: str,
    *records: Record,
    partition: int = -1,
    options: Mapping[str, str] | None = None,
    deadline_seconds: float = 30.0,
) -> None:
    """Write records with acks=all and return when all are acknowledged; fail on the first that is not.

    Records are values or (key, value); `partition=-1` lets the key choose.
    """
    failures: list[tuple[Record, KafkaError]] = []

    def note(error: KafkaError | None, _: object, record: Record) -> None:
        if error:
            failures.append((record, error))

    until = time.monotonic() + deadline_seconds
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            # A new partition would be seen after 5 minutes otherwise.
            "topic.metadata.refresh.interval.ms": 500,
            "message.timeout.ms": int(deadline_seconds * 1000),
            "log_level": 0,
            **(options or {}),
        }
    )
    for record in records:
        key, value = record if isinstance(record, tuple) else (None, record)
        while True:
            try:
                producer.produce(
                    topic, value=value, key=key, partition=partition, on_delivery=partial(note, record=record)
                )
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as refused:
                failures.append((record, refused.args[0]))
                break
        producer.poll(0)
    left = producer.flush(deadline_seconds)
    assert left == 0, f"{left} of {len(records)} records were not acknowledged within {deadline_seconds:g} s"
    # A broker that does not know a new partition yet makes the client refuse it by itself: nothing was sent.
    too_early = [record for record, error in failures if error.code() == KafkaError._UNKNOWN_PARTITION]
    if too_early and len(too_early) == len(failures) and until - time.monotonic() > 1:
        time.sleep(0.2)
        remaining = until - time.monotonic()
        produce(bootstrap_servers, topic, *too_early, partition=partition, options=options, deadline_seconds=remaining)
        return
    assert not failures, f"{len(failures)} records were refused, the first: {failures[0][1]}"


def partitions_of(
    client: Consumer | Producer | AdminClient, topic: str, *, deadline_seconds: float = 60.0
) -> dict[int, Any]:
    """Return an existing topic's partitions by number, as soon as a broker knows them.

    A broker that lags behind its controller answers with an unknown topic and no partitions, one that is frozen
    not at all.
    """
    found: dict[int, Any] = {}

    def known() -> bool:
        with contextlib.suppress(KafkaException):
            found.update(client.list_topics(topic, timeout=10).topics[topic].partitions)
        return bool(found)

    eventually(known, deadline_seconds, f"a broker that knows topic {topic}")
    return found


def numbered(count: int, *, prefix: str = "v") -> Sequence[str]:
    """Return `v0`, `v1`, …: distinct values."""
    return [f"{prefix}{number}" for number in range(count)]
