"""librdkafka's options for reading ranges, and how the memory of one worker is shared out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from discovery.spark.fetch.ranges import FetchSettings

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
    "reconnect.backoff.max.ms": "500",
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


_OP_BYTES = 400
"""What librdkafka keeps for each message besides its key and value."""
_FRAME_BYTES = 512
"""How much larger than `fetch.max.bytes` librdkafka wants `receive.message.max.bytes` to be."""
_LEAST_ANSWER_BYTES = 1_000_000
"""librdkafka's own least for `fetch.max.bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Shares of `max_memory_bytes`."""

    queue_bytes: int
    queue_messages: int
    """What is prefetched; librdkafka looks at both before it asks, so an answer of each leader may come on top."""
    answer_bytes: int
    """What one answer of a broker may bring; small messages take up several times as much when they are unpacked."""
    batch_bytes: int
    """One Arrow batch; for a moment the messages it was made of and Spark's copy lie beside it."""


def limits_of(settings: FetchSettings) -> Limits:
    """Share a worker's memory out, so that small messages and large ones, of a few leaders, find room.

    Runs: anywhere (pure).
    """
    memory = settings.max_memory_bytes
    return Limits(
        queue_bytes=memory // 4,
        queue_messages=max(memory // 4 // _OP_BYTES, 1),
        answer_bytes=max(memory // 16, _LEAST_ANSWER_BYTES),
        batch_bytes=memory // 16,
    )


def with_uncounted(limits: Limits, bytes_per_message: int) -> Limits:
    """Bound by number what librdkafka does not count in bytes.

    Args:
        limits: Those in use.
        bytes_per_message: Of keys and headers.

    Runs: anywhere (pure).
    """
    most = max(limits.queue_bytes // (_OP_BYTES + bytes_per_message), 1)
    return replace(limits, queue_messages=min(limits.queue_messages, most))


def complete(client_options: Mapping[str, str], limits: Limits) -> dict[str, str]:
    """Add to a user's client options what he left to us, and what reading ranges depends on.

    Runs: anywhere (pure).
    """
    derived = {
        "queued.max.messages.kbytes": str(max(limits.queue_bytes >> 10, 1)),
        "queued.min.messages": str(limits.queue_messages),
        "fetch.max.bytes": str(limits.answer_bytes),
    }
    ours = {**_DEFAULTS, **derived}
    return {**ours, **_agreeing(ours, client_options), **client_options, **_INSISTED}


def _agreeing(ours: Mapping[str, str], client_options: Mapping[str, str]) -> dict[str, str]:
    """Bring our values into line with a user's where librdkafka compares the two, as the JVM client does silently."""
    given = {name: int(value) for name, value in client_options.items() if value.strip().isascii() and value.isdigit()}
    answer = max(int(ours["fetch.max.bytes"]), given.get("message.max.bytes", 0))
    if "receive.message.max.bytes" in given:
        answer = min(answer, given["receive.message.max.bytes"] - _FRAME_BYTES)
    longest = max(int(ours["reconnect.backoff.max.ms"]), given.get("reconnect.backoff.ms", 0))
    return {"fetch.max.bytes": str(answer), "reconnect.backoff.max.ms": str(longest)}
