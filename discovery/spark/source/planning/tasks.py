"""From offsets to Spark tasks: which ranges one task reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heapreplace
from math import ceil
from types import MappingProxyType

from discovery.core.model import BrokerId, TopicId, TopicPartition
from discovery.feed.base import PartitionView
from discovery.spark.fetch import FetchRange
from discovery.spark.source.planning.offsets import EARLIEST, LATEST

RECORDS_PER_TASK = 1_000
"""A task costs 55-60 ms of its own, which a thousand records outweigh as soon as each is worth 60 us to the query.

What a record costs there is not known beforehand, and is not measured: a batch's time ends with a trigger, not with its
work. Too many tasks cost a few of those 60 ms; too few leave cores idle for as long as the slowest query runs.
"""

Task = tuple[FetchRange, ...]


def pack(
    ranges: Iterable[FetchRange],
    *,
    partitions: int = 0,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> tuple[Task, ...]:
    """Make tasks of whole ranges, as many as the work is worth: a few records one task, a backlog one per partition.

    Ranges of one leader share a task before those of two do, since a task that waits for a dead leader holds its slot;
    those of a slow leader share one with no other.
    `min_partitions` asks for more tasks; ranges are split, as Spark's KafkaOffsetRangeCalculator does, only where it is
    more than there are partitions, or where `max_records`, the most offsets of one task, asks for it.

    Args:
        ranges: 0..n, a partition at most once; empty ones are left out.
        partitions: How many partitions the plan has, with those that have nothing to read.
        min_partitions: As the option; >= 1.
        max_records: As the option; >= 1.

    Returns:
        0..n tasks without empty ranges; no partition twice in a task.

    Runs: anywhere (pure).
    """
    readable = [r for r in ranges if _size(r) > 0]
    least = min_partitions or 1
    if not readable:
        return ()
    wanted = max(ceil(_weight(readable) / RECORDS_PER_TASK), least)
    if max_records is not None:
        pieces = [piece for r in readable for piece in _pieces(r, ceil(_size(r) / max_records))]
        if len(pieces) < least:
            pieces = split(pieces, least)
        tasks = [task for group in _by_leader(pieces) for task in _filled(group, max_records)]
        return tuple(map(_task, _spread(tasks, max(len(tasks), min(wanted, len(pieces))))))
    if least > max(partitions, len(readable)):
        return tuple((r,) for r in split(readable, least))
    return tuple(map(_task, _spread(_by_leader(readable), min(wanted, len(readable)))))


def split(ranges: Sequence[FetchRange], min_partitions: int) -> list[FetchRange]:
    """Split large ranges until there are about `min_partitions`, evenly, as Spark does.

    Runs: anywhere (pure).
    """
    total = _weight(ranges)
    large_total = sum(_size(r) for r in ranges if _parts(r, total, min_partitions) > 1)
    whole = sum(_parts(r, total, min_partitions) == 1 for r in ranges)
    share = max(min_partitions - whole, 1)
    return [
        piece
        for r in ranges
        for piece in ([r] if _parts(r, total, min_partitions) == 1 else _pieces(r, _parts(r, large_total, share)))
    ]


def _parts(range_: FetchRange, total: int, min_partitions: int) -> int:
    # Java's Math.round: half up, not to even.
    return max(int(_size(range_) / total * min_partitions + 0.5), 1)


def _pieces(range_: FetchRange, parts: int) -> list[FetchRange]:
    pieces, start, remaining = [], range_.start_offset, _size(range_)
    if start < 0:
        # Where it begins is not known yet: a second piece might end before the first record there is.
        return [range_]
    for left in range(parts, 0, -1):
        size = remaining // left
        remaining -= size
        if size:
            pieces.append(replace(range_, start_offset=start, end_offset=start + size))
        start += size
    return pieces


def _filled(group: list[FetchRange], max_records: int) -> list[list[FetchRange]]:
    """Fill one task after the other, the smallest pieces first; two of one partition never share a task."""
    tasks: list[list[FetchRange]] = []
    room, inside = 0, set[TopicPartition]()
    for piece in sorted(group, key=_size):
        if _size(piece) > room or piece.topic_partition in inside:
            tasks.append([])
            room, inside = max_records, set()
        tasks[-1].append(piece)
        room -= _size(piece)
        inside.add(piece.topic_partition)
    return tasks


def _spread(groups: list[list[FetchRange]], tasks: int) -> list[list[FetchRange]]:
    """Merge small groups of quick leaders, or give the heaviest of all more than one task each."""
    if tasks <= len(groups):
        slow = [group for group in groups if group[0].is_slow]
        quick = [group for group in groups if not group[0].is_slow]
        return [*slow, *(_lightest_first(quick, max(1, tasks - len(slow))) if quick else ())]
    weights = list(map(_weight, groups))
    shares = [1] * len(groups)
    heaviest = [(-float(weight), index) for index, weight in enumerate(weights) if len(groups[index]) > 1]
    heapify(heaviest)
    for _ in range(tasks - len(groups)):
        index = heaviest[0][1]
        shares[index] += 1
        if shares[index] < len(groups[index]):
            heapreplace(heaviest, (-weights[index] / shares[index], index))
        else:
            heappop(heaviest)
    return [
        task
        for group, share in zip(groups, shares, strict=True)
        for task in (_lightest_first([[r] for r in group], share) if share > 1 else [group])
    ]


def _lightest_first(groups: list[list[FetchRange]], bins: int) -> list[list[FetchRange]]:
    """Longest processing time first: the heaviest group goes to the lightest bin."""
    filled: list[list[FetchRange]] = [[] for _ in range(bins)]
    lightest = [(0, index) for index in range(bins)]
    for group in sorted(groups, key=_weight, reverse=True):
        weight, index = lightest[0]
        filled[index].extend(group)
        # An empty bin must win over one with very small groups, so that none stays empty.
        heapreplace(lightest, (weight + max(_weight(group), 1), index))
    return filled


def _by_leader(ranges: list[FetchRange]) -> list[list[FetchRange]]:
    """Group ranges by their leader; one whose leader is not known is alone."""
    groups: dict[BrokerId | TopicPartition, list[FetchRange]] = {}
    for r in ranges:
        groups.setdefault(r.topic_partition if r.leader is None else r.leader, []).append(r)
    return list(groups.values())


def _task(group: list[FetchRange]) -> Task:
    return tuple(sorted(group, key=_position))


def _position(range_: FetchRange) -> TopicPartition:
    return range_.topic_partition


def _size(range_: FetchRange) -> int:
    return range_.end_offset - range_.start_offset


def _weight(group: Iterable[FetchRange]) -> int:
    return sum(map(_size, group))


def ranges_between(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    partitions: Mapping[TopicPartition, PartitionView],
    topic_ids: Mapping[TopicPartition, TopicId] = MappingProxyType({}),
) -> list[FetchRange]:
    """Pair start and end offsets; a partition that is new in `end` begins at `earliest`.

    Where even that is unknown (a replay while its leader is dead) the range says EARLIEST and the task resolves it.
    A start of LATEST was not a number then: it gives nothing, and neither does an end below its start.
    A range names the id in `topic_ids`, under which its end was planned: the present one may be another topic's.

    Runs: anywhere (pure).
    """
    return [
        FetchRange(
            topic_partition=tp,
            start_offset=begin,
            end_offset=until,
            topic_id=topic_ids.get(tp, known.topic_id if (known := partitions.get(tp)) else None),
            leader=known.leader_id if known else None,
            leader_address=known.leader if known else None,
            answer_seconds=known.answer_seconds if known else 0.0,
        )
        for tp, until in end.items()
        if LATEST != (begin := start.get(tp, earliest.get(tp, EARLIEST))) < until
    ]
