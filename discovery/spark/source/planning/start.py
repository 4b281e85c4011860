"""Where a new query begins, and whether the feed knows enough to say so."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from discovery.core.errors import ConfigError, DataLossError
from discovery.core.model import LoopState, TopicPartition, Verdict
from discovery.feed.base import ID_ASKED, FeedView, Interest, PartitionView, verdicts
from discovery.spark.source.planning.bounds import STARTING, mismatch
from discovery.spark.source.planning.offsets import EARLIEST, LATEST, Offsets


def is_living(view: FeedView) -> bool:
    """Tell whether a living broker of the right cluster confirmed this view, rather than a file of an earlier run.

    Runs: anywhere (pure).
    """
    return view.state in {LoopState.FRESH, LoopState.STALE} and bool(view.bootstrap)


def is_confirmed(view: FeedView) -> bool:
    """Tell whether a listed address lives, or all of them were judged: else the list may name another cluster.

    Runs: anywhere (pure).
    """
    listed = [report.verdict for report in view.addresses.values() if report.configured]
    return Verdict.ALIVE in listed or None not in listed


def moved(view: FeedView) -> str:
    """Say that the list replaced the saved view.

    Runs: anywhere (pure).
    """
    return (
        f"every listed address belongs to cluster {view.cluster_id}, but the saved state says {view.left_cluster}, "
        "whose brokers are gone"
    )


def is_usable(view: FeedView, interest: Interest) -> bool:
    """Tell whether a view can start a query: from a living cluster, with every named topic found or known missing.

    Runs: anywhere (pure).
    """
    if not is_living(view):
        return False
    found = {tp.topic for tp in view.partitions}
    if interest.assigned:
        return set(interest.assigned) <= set(view.partitions)
    if interest.topics:
        return bool(found) and set(interest.topics) <= found | set(view.missing_topics)
    # A pattern may match nothing yet, and a query that begins before its topics is what patterns are for.
    return True


def is_settled(view: FeedView, interest: Interest) -> bool:
    """Tell whether every partition that may still answer has said where it begins and ends, and its topic's id.

    Leaderless ones will not, nor will those whose leader has a bad verdict.

    Runs: anywhere (pure).
    """
    return all(
        p.start_offset is not None and p.end_offset(interest.isolation) is not None and p.parked_reason != ID_ASKED
        for p in view.partitions.values()
        if _may_answer(p, view)
    )


def is_heard(view: FeedView, partitions: Iterable[TopicPartition]) -> bool:
    """Tell whether it is known of each leader that may still answer whether it is slow.

    Runs: anywhere (pure).
    """
    known = (p for tp in partitions if (p := view.partitions.get(tp)) is not None and _may_answer(p, view))
    return all(p.answer_seconds or p.high_watermark is not None or p.last_stable_offset is not None for p in known)


def _may_answer(partition: PartitionView, view: FeedView) -> bool:
    if partition.leader is None:
        return False
    known = view.addresses.get(partition.leader)
    return known is None or known.verdict in {None, Verdict.ALIVE}


def first_offsets(
    view: FeedView, interest: Interest, starting: int | Mapping[TopicPartition, int], *, option: str = STARTING.offsets
) -> Offsets:
    """Turn a start into numbers.

    A partition whose leader does not answer is left out where it begins at earliest (as every new one does), and
    is noted as LATEST where it begins at its end: Spark's log keeps that, and it becomes a number with its leader.

    Args:
        view: The feed's picture.
        interest: What is read.
        starting: EARLIEST, LATEST or offsets by partition.
        option: Which option says so, for messages.

    Raises:
        ConfigError: JSON offsets do not name exactly the partitions of the view.

    Runs: anywhere (pure).
    """
    there = existing(view)
    if not isinstance(starting, int):
        refuse_mismatch(set(starting), there, option=option)
    wanted = {tp: starting if isinstance(starting, int) else starting[tp] for tp in there}
    placed = {tp: _place(wanted[tp], partition, interest) for tp, partition in there.items()}
    return {tp: offset for tp, offset in placed.items() if offset is not None}


def moving(start: int | Mapping[TopicPartition, int], there: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    """Return the partitions whose start may be another place when it is asked again: the end, where a group stands.

    Args:
        start: What the options say, times turned into offsets.
        there: All partitions.

    Runs: anywhere (pure).
    """
    if isinstance(start, int):
        return frozenset() if start == EARLIEST else frozenset(there)
    return frozenset(tp for tp, offset in start.items() if offset == LATEST)


def existing(view: FeedView) -> dict[TopicPartition, PartitionView]:
    """Return the followed partitions without those whose topic is gone.

    Runs: anywhere (pure).
    """
    return {tp: partition for tp, partition in view.partitions.items() if not partition.gone}


def refuse_mismatch(
    named: AbstractSet[TopicPartition], there: Mapping[TopicPartition, PartitionView], *, option: str
) -> None:
    """Refuse a JSON option that names other partitions than there are.

    Raises:
        ConfigError: names both sides.

    Runs: anywhere (pure).
    """
    if named != there.keys():
        raise ConfigError(mismatch(named, there.keys(), option=option))


def refuse_out_of_range(
    wanted: Mapping[TopicPartition, int], view: FeedView, interest: Interest, *, option: str
) -> None:
    """Refuse offsets of an option that a partition does not have; unknown is never out of range.

    Raises:
        DataLossError: names option, partition, value and what there is.

    Runs: anywhere (pure).
    """
    for tp, offset in wanted.items():
        partition = view.partitions.get(tp)
        if partition is None or offset < 0:
            continue
        begin, end = partition.start_offset, partition.end_offset(interest.isolation)
        if (begin is not None and offset < begin) or (end is not None and offset > end):
            raise DataLossError(
                f"{option}: {tp} has no offset {offset}, it holds {begin} to {end}; correct the option, "
                'or set failOnDataLoss to "false" to read what is there'
            )


def _place(wanted: int, partition: PartitionView, interest: Interest) -> int | None:
    if wanted == EARLIEST:
        return partition.start_offset
    if wanted == LATEST:
        end = partition.end_offset(interest.isolation)
        return LATEST if end is None else end
    return wanted


def explain(view: FeedView, interest: Interest) -> str:
    """Say why a query cannot start yet: what is missing, and each address with its verdict.

    Runs: anywhere (pure).
    """
    if not is_living(view):
        alive = any(report.verdict is Verdict.ALIVE for report in view.addresses.values())
        return view.sentence if alive else f"no living broker; {verdicts(view)}"
    if view.missing_topics:
        return f"topic {', '.join(view.missing_topics)} does not exist; create it or correct the subscription"
    absent = sorted(set(interest.assigned) - set(view.partitions))
    if absent:
        return f"assign names partitions that do not exist: {', '.join(map(str, absent))}"
    return f"no topic matches {interest.pattern or ', '.join(interest.topics)!r}"
