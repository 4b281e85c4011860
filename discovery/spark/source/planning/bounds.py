"""Where reading begins and where a batch read ends: what the options say, in the native source's precedence."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from discovery.core.errors import ConfigError
from discovery.core.model import TopicPartition
from discovery.feed.base import Interest
from discovery.spark.source.planning.offsets import (
    COMMITTED,
    EARLIEST,
    LATEST,
    Offsets,
    parse_offsets,
    parse_timestamps,
)


class NoneAfter(Enum):
    """What `startingOffsetsByTimestampStrategy` does with a partition without a record at or after the timestamp."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByTimestamp:
    """The first record at or after a time, in every partition."""

    option: str
    """Which option says so, for messages."""
    milliseconds: int | Mapping[TopicPartition, int]
    """Since the epoch: one for all partitions, or one by partition."""
    none_after: NoneAfter = NoneAfter.LATEST

    def of(self, tp: TopicPartition) -> int:
        """Return the time of one partition."""
        return self.milliseconds if isinstance(self.milliseconds, int) else self.milliseconds[tp]


Bound = int | Offsets | ByTimestamp
"""EARLIEST, LATEST, COMMITTED (as a start), offsets by partition, or a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundNames:
    """The three options of one end of a range, the strongest first."""

    timestamp: str
    by_timestamp: str
    offsets: str

    @property
    def all(self) -> tuple[str, str, str]:
        """Return them in their precedence."""
        return self.timestamp, self.by_timestamp, self.offsets


STARTING = BoundNames(
    timestamp="startingTimestamp", by_timestamp="startingOffsetsByTimestamp", offsets="startingOffsets"
)
ENDING = BoundNames(timestamp="endingTimestamp", by_timestamp="endingOffsetsByTimestamp", offsets="endingOffsets")
STRATEGY = "startingOffsetsByTimestampStrategy"


def parse_bound(given: Mapping[str, str], names: BoundNames, interest: Interest, none_after: NoneAfter) -> Bound | None:
    """Return what the strongest of three options says; None when none is given.

    As in the native source the weaker ones are not even looked at.

    Raises:
        ConfigError: names option, value, what was expected.

    Runs: anywhere (pure).
    """
    if names.timestamp in given:
        time = _milliseconds(names.timestamp, given[names.timestamp])
        return ByTimestamp(option=names.timestamp, milliseconds=time, none_after=none_after)
    if names.by_timestamp in given:
        times = parse_timestamps(given[names.by_timestamp].strip(), what=names.by_timestamp)
        _match_assigned(set(times), interest, names.by_timestamp)
        return ByTimestamp(option=names.by_timestamp, milliseconds=times, none_after=none_after)
    if names.offsets in given:
        return _offsets(given[names.offsets], interest, names.offsets)
    return None


def ignored(given: Mapping[str, str], names: BoundNames) -> tuple[str, ...]:
    """Say which of three options have no effect, because a stronger one is given.

    Runs: anywhere (pure).
    """
    present = [name for name in names.all if name in given]
    return tuple(f"{name} has no effect: {present[0]} is given too and goes first" for name in present[1:])


def _offsets(text: str, interest: Interest, option: str) -> int | Offsets:
    match text.strip().lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case "committed" if option == STARTING.offsets:
            return COMMITTED
    if not text.strip().startswith("{"):
        words = "earliest, latest, committed" if option == STARTING.offsets else "earliest, latest"
        raise ConfigError(f'{option}: {text!r} is neither {words} nor JSON like {{"topic": {{"0": 5}}}}')
    offsets = parse_offsets(text.strip(), what=option)
    _match_assigned(set(offsets), interest, option)
    return offsets


def _milliseconds(option: str, text: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()) or int(stripped) >= 2**63:
        raise ConfigError(
            f"{option}: {text!r} is not a time; write milliseconds since 1970-01-01 UTC as a whole number, "
            "like 1767225600000"
        )
    return int(stripped)


def _match_assigned(named: AbstractSet[TopicPartition], interest: Interest, option: str) -> None:
    if interest.assigned and named != set(interest.assigned):
        raise ConfigError(mismatch(named, set(interest.assigned), option=option))


def mismatch(named: AbstractSet[TopicPartition], followed: AbstractSet[TopicPartition], *, option: str) -> str:
    """Say which partitions a JSON option lacks and which it has too many.

    Runs: anywhere (pure).
    """
    lacking = ", ".join(map(str, sorted(followed - named))) or "none"
    surplus = ", ".join(map(str, sorted(named - followed))) or "none"
    remedy = (
        "0 is the time before all records"
        if "Timestamp" in option
        else f"use {EARLIEST} for earliest, {LATEST} for latest"
    )
    return (
        f"{option}: the JSON must name exactly the partitions that are read; "
        f"not named: {lacking}; named but not there: {surplus}; {remedy}"
    )


def check_batch_bounds(start: Bound, end: Bound) -> None:
    """Refuse ends that no batch read can have.

    Raises:
        ConfigError: names option, partition, both values.

    Runs: anywhere (pure).
    """
    _refuse_value(start, LATEST, f"{STARTING.offsets}: latest is no start of a batch read, nothing would be read")
    if start == COMMITTED:
        raise ConfigError(f"{STARTING.offsets}: committed is for streams; give a batch read offsets as JSON or a time")
    _refuse_value(end, EARLIEST, f"{ENDING.offsets}: earliest is no end of a batch read, nothing would be read")
    if isinstance(start, ByTimestamp) is not isinstance(end, ByTimestamp):
        return
    first, last = _values(start), _values(end)
    if isinstance(first, int) or isinstance(last, int):
        _check_global(first, last, option_of(start, STARTING), option_of(end, ENDING))
        return
    options = option_of(start, STARTING), option_of(end, ENDING)
    if first.keys() != last.keys():
        lacking = ", ".join(map(str, sorted(first.keys() ^ last.keys())))
        raise ConfigError(f"{options[0]} and {options[1]} must name the same partitions; only one names {lacking}")
    for tp, begin in first.items():
        if begin > last[tp] >= 0:
            raise ConfigError(
                f"{options[0]}: {tp} begins at {begin}, behind its end {last[tp]} in {options[1]}; swap or correct them"
            )


def _refuse_value(bound: Bound, value: int, text: str) -> None:
    if isinstance(bound, int) and bound == value:
        raise ConfigError(f"{text}; use the other word, offsets as JSON or a timestamp")
    if isinstance(bound, dict) and (wrong := sorted(tp for tp, offset in bound.items() if offset == value)):
        raise ConfigError(f"{text} of {wrong[0]} ({value}); write another offset for it")


def _values(bound: Bound) -> int | Mapping[TopicPartition, int]:
    return bound.milliseconds if isinstance(bound, ByTimestamp) else bound


def _check_global(first: object, last: object, start_option: str, end_option: str) -> None:
    if isinstance(first, int) and isinstance(last, int) and first > last >= 0:
        raise ConfigError(f"{start_option}: {first} is behind the end {last} in {end_option}; swap or correct them")


def option_of(bound: Bound, names: BoundNames) -> str:
    """Return the option that says this bound.

    Runs: anywhere (pure).
    """
    return bound.option if isinstance(bound, ByTimestamp) else names.offsets
