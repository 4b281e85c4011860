"""How an embedded loop's view stands in for one shown before: nothing vanishes because somebody else looks."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from discovery.core.model import TopicId, TopicName, TopicPartition
from discovery.feed.base import FeedView, PartitionView

_GONE = "its topic is gone"
_UNSEEN = "the service knew it, the embedded loop has not found it"


def covers_all(view: FeedView, shown: FeedView) -> bool:
    """Tell whether a view knows every partition shown; those of deleted topics are nobody's loss.

    Runs: anywhere (pure); O(partitions).
    """
    return all(tp in view.partitions or _is_explained(tp, one, view) for tp, one in shown.partitions.items())


def with_carried(view: FeedView, shown: FeedView, *, wall: float) -> FeedView:
    """Return a view with those partitions shown before that it lacks: parked, or gone where it says so.

    Args:
        view: What the embedded loop sees.
        shown: What is shown now.
        wall: Since when those newly carried are parked.

    Runs: anywhere (pure); O(partitions) where it lacks some.
    """
    lacking = shown.partitions.keys() - view.partitions.keys()
    ids = {tp.topic: one.topic_id for tp, one in view.partitions.items()} if lacking else {}
    carried = {
        tp: _parked(shown.partitions[tp], is_gone=tp.topic in view.missing_topics, wall=wall)
        for tp in lacking
        if not _is_recreated(tp.topic, shown.partitions[tp], ids)
    }
    if not carried:
        return view
    merged = dict(sorted({**view.partitions, **carried}.items()))
    return replace(view, partitions=MappingProxyType(merged))


def _is_explained(tp: TopicPartition, one: PartitionView, view: FeedView) -> bool:
    return one.gone or tp.topic in view.missing_topics


def _is_recreated(topic: TopicName, held: PartitionView, ids: Mapping[TopicName, TopicId | None]) -> bool:
    """Tell whether the topic has another id now: then its old partitions are not its partitions."""
    known = ids.get(topic)
    return known is not None and held.topic_id is not None and known != held.topic_id


def _parked(one: PartitionView, *, is_gone: bool, wall: float) -> PartitionView:
    if one.gone:
        return one
    return replace(
        one,
        gone=is_gone,
        leader=None,
        leader_id=None,
        parked_reason=_GONE if is_gone else _UNSEEN,
        parked_since_wall=one.parked_since_wall if one.parked_since_wall is not None else wall,
    )
