"""Small helpers every kind of test may use."""

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Producer

Record = str | bytes | tuple[str | bytes | None, str | bytes | None]
"""A value, or (key, value)."""


def eventually(condition: Callable[[], object], deadline_seconds: float, message: str = "") -> None:
    """Ask until the condition is truthy; fail with `message` after the deadline. For real processes only."""
    deadline = time.monotonic() + deadline_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{message or condition} did not happen within {deadline_seconds:g} s")
        time.sleep(0.05)


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
    failures: list[str] = []

    def note(error: object, _: object) -> None:
        if error:
            failures.append(str(error))

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
                producer.produce(topic, value=value, key=key, partition=partition, on_delivery=note)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(deadline_seconds)
    assert not failures, f"{len(failures)} records were refused, the first: {failures[0]}"
    assert left == 0, f"{left} of {len(records)} records were not acknowledged within {deadline_seconds:g} s"


def numbered(count: int, *, prefix: str = "v") -> Sequence[str]:
    """Return `v0`, `v1`, …: distinct values."""
    return [f"{prefix}{number}" for number in range(count)]
