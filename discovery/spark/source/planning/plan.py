"""What one trigger may read: end offsets under limits, without the partitions that cannot be read now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, floor

from discovery.core.model import Isolation, TopicPartition
from discovery.feed.base import PartitionView
from discovery.spark.source.planning.offsets import LATEST, Offsets


class OnParked(Enum):
    """What to do while a partition cannot be read."""

    CONTINUE = "continue"
    """The others go on; its rows come late."""
    HOLD = "hold"
    """Nothing is planned: complete rather than available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds one plan."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    max_offsets: int | None = None
    """None: everything that is there."""
    on_parked: OnParked = OnParked.CONTINUE
    target: Mapping[TopicPartition, int] | None = None
    """Trigger.AvailableNow: never above these offsets, and no partition that is neither here nor owed."""
    owed: frozenset[TopicPartition] = frozenset()
    """Trigger.AvailableNow: could not be read when the target was fixed; parked until it has an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The end offsets of one batch and what stayed out of it."""

    end: Offsets
    parked: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions that cannot be read now, each with its reason."""
    backlog: int = 0
    """How many offsets could be read, whatever the limit."""
    suspect: bool = False
    """A partition stands outside of what its leader has: look for lost records."""


_Span = tuple[int, int]
"""Where a partition stands and how far it could go."""


def plan_end(
    start: Mapping[TopicPartition, int],
    partitions: Mapping[TopicPartition, PartitionView],
    limits: Limits,
    *,
    resets: Mapping[TopicPartition, int] | None = None,
) -> Plan:
    """Choose the end offsets of the next batch.

    A partition of `start` that is parked or gone keeps its offset, so it resumes there. A partition that is
    not in `start` begins at its earliest offset, once that is known.

    Args:
        start: Where the last batch ended.
        partitions: The feed's picture of all followed partitions.
        limits: See `Limits`.
        resets: Where partitions go whose records are lost for certain: they get this as their end, an empty range.
            Nothing else ever moves a partition back.

    Returns:
        A plan whose `end` holds every partition of `start`.

    Runs: anywhere (pure); under 2 ms for 1 000 partitions.
    """
    spans, parked, suspect = _spans(start, partitions, limits)
    if parked and limits.on_parked is OnParked.HOLD:
        return Plan(end={**start, **(resets or {})}, parked=parked, suspect=suspect)
    ends = split_by_backlog(spans, limits.max_offsets)
    backlog = sum(end - begin for begin, end in spans.values())
    return Plan(end={**start, **ends, **(resets or {})}, parked=parked, backlog=backlog, suspect=suspect)


def split_by_backlog(spans: Mapping[TopicPartition, _Span], max_offsets: int | None) -> Offsets:
    """Share a limit over partitions by their backlog, as the native source does: small ones never starve.

    Returns:
        One end per span; the total exceeds `max_offsets` by at most one record per partition.

    Runs: anywhere (pure).
    """
    if max_offsets is None:
        return {tp: end for tp, (_, end) in spans.items()}
    total = sum(end - begin for begin, end in spans.values())
    if total <= max_offsets:
        return {tp: end for tp, (_, end) in spans.items()}
    return {tp: _share(span, max_offsets / total) for tp, span in spans.items()}


def _share(span: _Span, fraction: float) -> int:
    begin, end = span
    exact = (end - begin) * fraction
    return min(end, begin + (ceil(exact) if exact < 1 else floor(exact)))


def _spans(  # noqa: C901 - one flat loop on purpose: it runs for every partition whenever something is new
    start: Mapping[TopicPartition, int], partitions: Mapping[TopicPartition, PartitionView], limits: Limits
) -> tuple[dict[TopicPartition, _Span], dict[TopicPartition, str], bool]:
    suspect = False
    spans: dict[TopicPartition, _Span] = {}
    parked: dict[TopicPartition, str] = {}
    committed = limits.isolation is Isolation.READ_COMMITTED
    target = limits.target
    for tp, view in partitions.items():
        if view.gone or (target is not None and tp not in target):
            if tp in limits.owed:
                parked[tp] = view.parked_reason or "its end is not fixed yet"
            continue
        begin = start.get(tp)
        end = view.last_stable_offset if committed else view.high_watermark
        if view.parked_reason is not None or end is None:
            parked[tp] = view.parked_reason or "its end offset is unknown"
            continue
        if begin is None:
            begin = view.start_offset
            if begin is None:
                parked[tp] = "its earliest offset is unknown"
            if begin is None or begin >= end:
                # An empty one begins with its first record: naming it now would cost a batch without rows.
                continue
        elif begin == LATEST:
            # Never beyond the target, which was fixed when the query began: it would stay LATEST for ever.
            begin = end if target is None else min(end, target[tp])
        elif begin > end or (view.start_offset is not None and begin < view.start_offset):
            suspect = True
        if target is not None:
            end = min(end, target[tp])
        if end >= begin:
            spans[tp] = (begin, end)
    return spans, parked, suspect


def describe(partitions: Iterable[tuple[TopicPartition, str]], *, limit: int = 10) -> str:
    """Name partitions with their reasons in one line, the tail as a count.

    Runs: anywhere (pure).
    """
    named = [f"{tp} ({reason})" for tp, reason in partitions]
    more = f" and {len(named) - limit} more" if len(named) > limit else ""
    return ", ".join(named[:limit]) + more
