"""librdkafka's options for reading ranges, and how the memory of one worker is shared out."""

from collections.abc import Mapping
from dataclasses import dataclass

from discovery.fetch.ranges import FetchSettings

_DEFAULTS = {
    "group.id": "kafka-discovery",
    # A range is known to exist, so an answer is due at once; a broker has one request in flight, so a long poll
    # at the end of one partition would delay the first records of the next task by as much.
    "fetch.wait.max.ms": "20",
    "fetch.queue.backoff.ms": "10",
    "fetch.error.backoff.ms": "100",
    # A dead leader must be replaced as soon as the cluster has a new one. A frozen one holds every request until the
    # socket times out, the request for metadata too, since librdkafka prefers the connection it used last.
    "topic.metadata.refresh.interval.ms": "2000",
    "reconnect.backoff.max.ms": "1000",
    "socket.connection.setup.timeout.ms": "3000",
    "socket.timeout.ms": "5000",
    "socket.max.fails": "1",
    "enable.metrics.push": "false",
    "log.connection.close": "false",
}
_INSISTED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "allow.auto.create.topics": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Shares of `max_memory_bytes`."""

    queue_kbytes: int
    """What is prefetched; librdkafka looks at it before it asks, so one answer may come on top."""
    answer_bytes: int
    """What one answer of a broker may bring."""
    batch_bytes: int
    """One Arrow batch; for a moment the messages it was made of and Spark's copy lie beside it."""


def limits_of(settings: FetchSettings) -> Limits:
    """Share a worker's memory out: half is prefetched, a quarter is one answer, the rest the batch and its copies.

    Runs: anywhere (pure).
    """
    memory = settings.max_memory_bytes
    return Limits(queue_kbytes=max(memory // 2 >> 10, 1), answer_bytes=memory // 4, batch_bytes=memory // 4)


def complete(client_options: Mapping[str, str], limits: Limits) -> dict[str, str]:
    """Add to a user's client options what he left to us, and what reading ranges depends on.

    Runs: anywhere (pure).
    """
    derived = {
        "queued.max.messages.kbytes": str(limits.queue_kbytes),
        "fetch.max.bytes": str(max(limits.answer_bytes, 1_000_000)),
    }
    return {**_DEFAULTS, **derived, **client_options, **_INSISTED}
