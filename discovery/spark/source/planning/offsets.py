"""The offsets of a checkpoint: `{"topic": {"0": 123}}`, the JSON of Spark's own Kafka source, and our values for it."""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

from discovery.core.errors import ConfigError
from discovery.core.model import TopicName, TopicPartition

Offsets = dict[TopicPartition, int]
OffsetsJson = dict[str, dict[str, int]]

EARLIEST = -2
LATEST = -1
"""In a checkpoint: the end was unknown when the query began at "latest"; it becomes a number as soon as one does."""

_OFFSET = (EARLIEST, f"an offset (0 or more, {LATEST} for latest, {EARLIEST} for earliest)")
_TIME = (0, "a time in milliseconds since 1970-01-01 UTC (a whole number, 0 or more)")

COMMITTED = -3
"""As a start only, never in a checkpoint: where the consumer group `kafka.group.id` stands."""


def parse_offsets(raw: object, *, what: str) -> Offsets:
    """Read an offsets object as Spark hands it over, or its JSON text.

    Args:
        raw: `{"topic": {"0": 123}}`, partitions as text or number, or the text of it.
        what: Where it stands, for the message: an option's name, "the checkpoint".

    Returns:
        Offsets by partition: numbers >= 0, or EARLIEST, or LATEST.

    Raises:
        ConfigError: it has another shape; names position, topic or partition.

    Runs: anywhere (pure).
    """
    return {tp: _number(tp, offset, _OFFSET, what) for tp, offset in _leaves(raw, what)}


class Remembered:
    """The last few objects that were read, each with its offsets: Spark hands the same ones over again and again.

    Spark's are copies, so they are found by comparing, a fiftieth of what reading costs. One thread.
    """

    def __init__(self, keep: int = 3) -> None:
        """Remember nothing yet."""
        self._known: deque[tuple[Mapping[str, Any], Mapping[TopicPartition, int]]] = deque(maxlen=keep)

    def offsets(self, raw: Mapping[str, Any], *, what: str) -> Offsets:
        """See `parse_offsets`. What it returns is shared: it must not be changed."""
        for known, offsets in self._known:
            if known == raw:
                return cast("Offsets", offsets)
        parsed = parse_offsets(raw, what=what)
        self.learn(raw, parsed)
        return parsed

    def learn(self, raw: Mapping[str, Any], offsets: Mapping[TopicPartition, int]) -> None:
        """Remember what an object of ours says, before Spark hands it back."""
        self._known.appendleft((raw, offsets))


def parse_timestamps(text: str, *, what: str) -> dict[TopicPartition, int]:
    """Read `{"topic": {"0": 1767225600000}}`: milliseconds since the epoch by partition.

    Raises:
        ConfigError: it has another shape; names position, topic or partition.

    Runs: anywhere (pure).
    """
    return {tp: _number(tp, time, _TIME, what) for tp, time in _leaves(text, what)}


def to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    """Write offsets in the one canonical form: topics by name, partitions by number.

    Spark compares offsets as texts; another order would be new data on every trigger.

    Runs: anywhere (pure).
    """
    canonical: OffsetsJson = {}
    # Plain tuples, because hashing a partition costs more than all the rest and this runs five times a second.
    for topic, partition, offset in sorted([(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]):
        canonical.setdefault(topic, {})[str(partition)] = offset
    return canonical


def _leaves(raw: object, what: str) -> list[tuple[TopicPartition, object]]:
    topics = _load(raw, what) if isinstance(raw, str) else raw
    if not isinstance(topics, Mapping):
        raise ConfigError(f'{what}: expected an object like {{"topic": {{"0": 123}}}}, not {_short(topics)}')
    return [
        (_partition(topic, partition, what), value)
        for topic, partitions in topics.items()
        for partition, value in _partitions(topic, partitions, what).items()
    ]


def _load(text: str, what: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except ValueError as error:
        at = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise ConfigError(f"{what}: not valid JSON{at}: {reason}") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is named twice")
    return seen


def _partitions(topic: object, partitions: object, what: str) -> Mapping[Any, Any]:
    if not isinstance(topic, str) or not topic:
        raise ConfigError(f"{what}: {topic!r} is not a topic name")
    if not isinstance(partitions, Mapping):
        raise ConfigError(f'{what}: topic {topic}: expected partitions like {{"0": 123}}, not {_short(partitions)}')
    return partitions


def _partition(topic: str, partition: object, what: str) -> TopicPartition:
    text = str(partition)
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{what}: topic {topic}: {_short(partition)} is not a partition number (0 or more)")
    return TopicPartition(TopicName(topic), int(text))


def _number(tp: TopicPartition, value: object, kind: tuple[int, str], what: str) -> int:
    least, expected = kind
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise ConfigError(f"{what}: topic {tp.topic}, partition {tp.partition}: {_short(value)} is not {expected}")
    return value


def _short(value: object, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
