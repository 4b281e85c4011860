"""What the topics take that records name: brokers are asked when a topic is first met, and later at times."""

import hashlib
import json
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from discovery.core.errors import SinkRefusedError, TransactionError, TransactionTimeoutError
from discovery.core.model import BrokerAddress, TopicName
from discovery.core.plural import counted
from discovery.spark.sink.columns import Record
from discovery.spark.sink.plan import DEFAULT_LARGEST_BYTES, SinkPlan

if TYPE_CHECKING:
    from discovery.kafka.topics import TopicAdmin

OVERHEAD_BYTES = 70
"""What the format adds to a record at most, apart from its headers."""
_HEADER_BYTES = 10
_HEAD_BYTES = 10_000
"""So much of a key and of a value stays in a dead letter at most."""
_MOST_NAME_CHARACTERS = 249
_ANSWER_SECONDS = 10.0
_HOLDS_SECONDS = 600.0


class Target(NamedTuple):
    """A topic as it is."""

    partitions: int
    """0: there is no such topic."""
    largest_bytes: int


_known: dict[tuple[tuple[BrokerAddress, ...], str | None, str], tuple[Target, float]] = {}
"""By cluster and topic, with `time.monotonic` of the answer; of this worker process."""


class Targets:
    """The topics of one task. The constructor does no I/O."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan
        self._admin: TopicAdmin | None = None
        self._asked: dict[str, Target] = {}
        """By this task."""

    def limits(self, topics: Collection[str]) -> Mapping[TopicName, int]:
        """Return the most bytes a record may have, by topic: of those that the plan knows, and of these.

        Raises:
            ConfigError: a topic may not be described.
            TransactionError: no answer in time.

        Runs: a worker; blocks for an answer of the brokers where one of them is new.
        """
        return {**self._plan.largest_bytes, **{TopicName(topic): self.largest(topic) for topic in topics}}

    def largest(self, topic: str, *, fresh: bool = False) -> int:
        """Return the most bytes that a record of this topic may have. Raises and blocks like `limits`."""
        known = None if fresh else self._plan.largest_bytes.get(TopicName(topic))
        largest = self._target(topic, fresh=fresh).largest_bytes if known is None else known
        return min(largest, int(self._plan.options.producer.get("message.max.bytes", largest)))

    def admissible(self, record: Record, what: str) -> Record:
        """Return the record, or its dead letter where it can never be written.

        Args:
            record: As it would be written.
            what: Names it in the error.

        Raises:
            SinkRefusedError: it can never be written, and there is no topic of dead letters.

        Blocks like `limits`.
        """
        options, problem = self._plan.options, self._problem(record)
        if problem is None:
            return record
        if options.dead_letter_topic is None:
            raise SinkRefusedError(
                f"sinkId {options.sink_id!r}: {what} can never be written: {problem}; filter it out, raise "
                "max.message.bytes, or set onBadRecord=dead-letter"
            )
        dead = options.dead_letter_topic
        return dead_letter(record, dead, problem, room_bytes=self.largest(dead))

    def _problem(self, record: Record) -> str | None:
        """Topics are made, get partitions and higher limits: nothing is refused by an answer from before this task."""
        if record.topic is None:
            return "its topic is null"
        return self._refused(record, record.topic, fresh=False) and self._refused(record, record.topic, fresh=True)

    def _refused(self, record: Record, topic: str, *, fresh: bool) -> str | None:
        options, name = self._plan.options, topic[:_MOST_NAME_CHARACTERS]
        # Where an option names it and it is gone, the batch fails: its records are sound.
        is_named = topic in {options.topic, options.named_topic}
        if options.dead_letter_topic is not None and (not is_named or record.partition is not None):
            partitions = self._target(topic, fresh=fresh).partitions
            if not partitions and not is_named:
                return f"topic {name} does not exist"
            if partitions and record.partition is not None and not 0 <= record.partition < partitions:
                return f"partition {record.partition} is none of the {counted(partitions, 'partition')} of topic {name}"
        size, largest = size_of(record), self.largest(topic, fresh=fresh)
        return f"it has {size} bytes, topic {name} takes {largest}" if size > largest else None

    def _target(self, topic: str, *, fresh: bool) -> Target:
        if topic in self._asked:
            return self._asked[topic]
        options, now = self._plan.options, time.monotonic()
        key = (options.bootstrap, options.cluster_id, topic)
        if not fresh and key in _known and now - _known[key][1] < _HOLDS_SECONDS:
            return _known[key][0]
        self._asked[topic] = self._ask(TopicName(topic))
        _known[key] = (self._asked[topic], now)
        return self._asked[topic]

    def _ask(self, topic: TopicName) -> Target:
        from discovery.kafka.topics import TopicAdmin  # noqa: PLC0415 - only tasks need it, and few of them

        self._admin = self._admin or TopicAdmin(self._plan.access)
        try:
            shape = self._admin.shape(topic, timeout_seconds=_ANSWER_SECONDS)
        except TransactionTimeoutError as error:
            raise TransactionError(str(error)) from error  # this limit is not the user's
        if shape is None:
            return Target(0, DEFAULT_LARGEST_BYTES)
        limits = self._admin.largest_records([topic], timeout_seconds=_ANSWER_SECONDS)
        return Target(shape.partitions, limits.get(topic, DEFAULT_LARGEST_BYTES))


def size_of(record: Record) -> int:
    """Return the most bytes a record can take in the log, before compression.

    Runs: workers, once per record (pure).
    """
    size = OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    if record.headers:
        size += sum(len(name.encode()) + len(value or b"") + _HEADER_BYTES for name, value in record.headers)
    return size


def dead_letter(record: Record, topic: str, problem: str, *, room_bytes: int) -> Record:
    """Return the beginning of what cannot be written, with the reason, its true size and its hash in a header.

    Args:
        record: What cannot be written.
        topic: Of dead letters.
        problem: Why.
        room_bytes: The most that a record of that topic may have.

    Runs: workers (pure).
    """
    key, value = record.key, record.value
    reason = {
        "topic": record.topic and record.topic[:_MOST_NAME_CHARACTERS],
        "partition": record.partition,
        "bytes": size_of(record),
        "value_bytes": None if value is None else len(value),
        "value_sha256": None if value is None else hashlib.sha256(value).hexdigest(),
        "reason": problem,
    }
    headers: list[tuple[str, bytes | None]] = [("kafka-discovery-error", json.dumps(reason).encode())]
    letter = Record(topic, None, None, None, headers, record.lane)
    room = max(0, room_bytes - size_of(letter))
    key = None if key is None else key[: min(_HEAD_BYTES, room // 2)]
    value = None if value is None else value[: min(_HEAD_BYTES, room - len(key or b""))]
    return letter._replace(key=key, value=value)
