"""From offsets to Spark tasks: which ranges one task reads."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil

from discovery.core.model import TopicId, TopicPartition
from discovery.spark.fetch import FetchRange
from discovery.spark.source.planning.offsets import EARLIEST, LATEST

RECORDS_PER_TASK = 10_000
"""A task costs 55-60 ms of its own; under this many records another one does not pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedRange:
    """A range and who leads it; `leader` None is unknown."""

    range: FetchRange
    leader: Hashable


Task = tuple[FetchRange, ...]


def pack(
    ranges: Iterable[LedRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> tuple[Task, ...]:
    """Group ranges into tasks so that one leader's ranges share a task.

    A task that waits for a dead leader holds its slot, so one dead leader must not reach two of them. Only
    `min_partitions` asks for more tasks than leaders; then ranges split as Spark's KafkaOffsetRangeCalculator does.
    So does `max_records`, the most offsets of one task.

    Returns:
        0..n tasks without empty ranges; no partition twice in a task.

    Runs: anywhere (pure).
    """
    readable = [led for led in ranges if _size(led.range) > 0]
    if not readable:
        return ()
    if max_records is not None:
        return _at_most(max_records, readable, min_partitions or 1)
    groups = _by_leader(readable)
    if min_partitions is not None and min_partitions > len(groups):
        return _at_least(min_partitions, readable, groups)
    wanted = max(ceil(sum(map(_weight, groups)) / RECORDS_PER_TASK), min_partitions or 1)
    return _merge_into(min(wanted, len(groups)), groups)


def split(ranges: Sequence[LedRange], min_partitions: int) -> list[LedRange]:
    """Split large ranges until there are about `min_partitions`, evenly, as Spark does.

    Runs: anywhere (pure).
    """
    total = sum(_size(led.range) for led in ranges)
    whole = [led for led in ranges if _parts(led.range, total, min_partitions) == 1]
    large_total = total - sum(_size(led.range) for led in whole)
    share = max(min_partitions - len(whole), 1)
    whole_ids = {id(led) for led in whole}
    return [
        piece
        for led in ranges
        for piece in ([led] if id(led) in whole_ids else _pieces(led, _parts(led.range, large_total, share)))
    ]


def _parts(range_: FetchRange, total: int, min_partitions: int) -> int:
    # Java's Math.round: half up, not to even.
    return max(int(_size(range_) / total * min_partitions + 0.5), 1)


def _pieces(led: LedRange, parts: int) -> list[LedRange]:
    pieces, start, remaining = [], led.range.start_offset, _size(led.range)
    if start < 0:
        # Where it begins is not known yet: a second piece might end before the first record there is.
        return [led]
    for left in range(parts, 0, -1):
        size = remaining // left
        remaining -= size
        if size:
            pieces.append(replace(led, range=replace(led.range, start_offset=start, end_offset=start + size)))
        start += size
    return pieces


def _at_least(min_partitions: int, ranges: list[LedRange], groups: list[list[LedRange]]) -> tuple[Task, ...]:
    if len(ranges) < min_partitions:
        return tuple((led.range,) for led in split(ranges, min_partitions))
    while len(groups) < min_partitions:
        heaviest = max((g for g in groups if len(g) > 1), key=_weight)
        groups.remove(heaviest)
        groups.extend(_halves(heaviest))
    return tuple(map(_task, groups))


def _at_most(max_records: int, ranges: list[LedRange], min_partitions: int) -> tuple[Task, ...]:
    """Cut large ranges into even pieces of at most `max_records`; small ones of a leader share tasks."""
    small = [led for led in ranges if _size(led.range) <= max_records]
    large = [led for led in ranges if _size(led.range) > max_records]
    pieces = [piece for led in large for piece in _pieces(led, ceil(_size(led.range) / max_records))]
    if len(small) + len(pieces) <= min_partitions:
        return tuple((led.range,) for led in split(small + pieces, min_partitions))
    tasks = [[piece] for piece in pieces]
    for group in _by_leader(small):
        tasks += _filled(group, max_records)
    while len(tasks) < min_partitions:
        heaviest = max((task for task in tasks if len(task) > 1), key=_weight)
        tasks.remove(heaviest)
        tasks.extend(_halves(heaviest))
    return tuple(map(_task, tasks))


def _filled(group: list[LedRange], max_records: int) -> list[list[LedRange]]:
    """Fill one task after the other, the smallest ranges first."""
    tasks: list[list[LedRange]] = []
    room = 0
    for led in sorted(group, key=lambda led: _size(led.range)):
        if _size(led.range) > room:
            tasks.append([])
            room = max_records
        tasks[-1].append(led)
        room -= _size(led.range)
    return tasks


def _halves(group: list[LedRange]) -> list[list[LedRange]]:
    return _lightest_first([[led] for led in group], 2)


def _merge_into(tasks: int, groups: list[list[LedRange]]) -> tuple[Task, ...]:
    return tuple(map(_task, _lightest_first(groups, tasks)))


def _lightest_first(groups: list[list[LedRange]], bins: int) -> list[list[LedRange]]:
    """Longest processing time first: the heaviest group goes to the lightest bin."""
    filled: list[list[LedRange]] = [[] for _ in range(bins)]
    weights = [0] * bins
    for group in sorted(groups, key=_weight, reverse=True):
        lightest = weights.index(min(weights))
        filled[lightest].extend(group)
        # An empty bin must win over one with very small groups, so that none stays empty.
        weights[lightest] += max(_weight(group), 1)
    return filled


def _by_leader(ranges: list[LedRange]) -> list[list[LedRange]]:
    ordered = sorted(ranges, key=lambda led: str(led.leader))
    return [list(group) for _, group in groupby(ordered, key=lambda led: str(led.leader))]


def _task(group: list[LedRange]) -> Task:
    return tuple(sorted((led.range for led in group), key=_position))


def _position(range_: FetchRange) -> TopicPartition:
    return range_.topic_partition


def _size(range_: FetchRange) -> int:
    return range_.end_offset - range_.start_offset


def _weight(group: list[LedRange]) -> int:
    return sum(_size(led.range) for led in group)


def led_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    leaders: Mapping[TopicPartition, Hashable],
    topic_ids: Mapping[TopicPartition, TopicId | None],
) -> list[LedRange]:
    """Pair start and end offsets; a partition that is new in `end` begins at `earliest`.

    Where even that is unknown (a replay while its leader is dead) the range says EARLIEST and the task resolves it.
    A start of LATEST was not a number then: it gives nothing, and neither does an end below its start.

    Runs: anywhere (pure).
    """
    return [
        LedRange(
            range=FetchRange(topic_partition=tp, start_offset=begin, end_offset=until, topic_id=topic_ids.get(tp)),
            leader=leaders.get(tp),
        )
        for tp, until in end.items()
        if LATEST != (begin := start.get(tp, earliest.get(tp, EARLIEST))) < until
    ]
