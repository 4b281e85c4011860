"""What of a plan can no longer be read, and how to say so. Unknown is never lost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from discovery.core.model import Isolation, TopicId, TopicName, TopicPartition
from discovery.core.plural import counted
from discovery.feed.base import FeedView, PartitionView


class LossKind(Enum):
    """Why records are lost."""

    AGED_OUT = "aged_out"
    """The start offset is below the earliest one: retention took records."""
    SHRUNK = "shrunk"
    """The start offset is above the end: the topic was truncated or recreated."""
    RECREATED = "recreated"
    """The topic has another id."""
    CUT_SHRUNK = "cut_shrunk"
    """The end is below that of a range which was cut: the topic was truncated before the rest was read."""
    GONE = "gone"
    """A partition of the checkpoint does not exist, or is not followed any more."""


RECREATED_REMEDY = 'set onTopicRecreated to "restart" to read the new topic from its beginning'
REMEDY = 'set failOnDataLoss to "false" to go on without these records, or start with a new checkpoint'


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One partition whose records are lost; `text` is one line for a user."""

    kind: LossKind
    topic_partition: TopicPartition
    text: str


def find_losses(
    start: Mapping[TopicPartition, int],
    view: FeedView,
    *,
    isolation: Isolation,
    topic_ids: Mapping[TopicPartition, TopicId],
    followed: Mapping[TopicName, bool] | None = None,
    cut_ends: Mapping[TopicPartition, int] | None = None,
) -> tuple[Loss, ...]:
    """Compare a query's offsets with what the cluster has.

    Args:
        start: Where the last batch ended.
        view: The feed's picture.
        isolation: Which end counts.
        topic_ids: The ids under which partitions were read so far; absent means not seen yet.
        followed: For topics of `start` that are not in the view: whether the subscription still names them.
        cut_ends: Ends of ranges that were cut: their partitions once reached that far.

    Returns:
        At most one loss per partition; none for what is unknown or parked.

    Runs: anywhere (pure).
    """
    found = tuple(_losses(start, view, isolation, topic_ids, followed or {}))
    lost = {loss.topic_partition for loss in found}
    return (
        *found,
        *(loss for loss in _shrunk(start, view, isolation, cut_ends or {}) if loss.topic_partition not in lost),
    )


def _shrunk(
    start: Mapping[TopicPartition, int], view: FeedView, isolation: Isolation, cut_ends: Mapping[TopicPartition, int]
) -> Iterator[Loss]:
    for tp, reached in cut_ends.items():
        known = view.partitions.get(tp)
        end = None if known is None or known.gone or known.parked_reason else known.end_offset(isolation)
        if end is not None and end < reached:
            text = (
                f"{tp} ends at offset {end}, but a batch was planned to {reached} and cut at {start.get(tp)}: "
                "the topic was truncated"
            )
            yield _loss(LossKind.CUT_SHRUNK, tp, text)


def _losses(
    start: Mapping[TopicPartition, int],
    view: FeedView,
    isolation: Isolation,
    topic_ids: Mapping[TopicPartition, TopicId],
    followed: Mapping[TopicName, bool],
) -> Iterator[Loss]:
    missing = frozenset(view.missing_topics)
    committed = isolation is Isolation.READ_COMMITTED
    # One flat loop on purpose, as in `plan`: a partition without a loss costs two look-ups.
    for tp, offset in start.items():
        partition = view.partitions.get(tp)
        if partition is None or partition.gone or (missing and tp.topic in missing):
            loss = _absent(
                tp, offset, gone=tp.topic in missing or partition is not None, followed=followed.get(tp.topic, True)
            )
        else:
            end = partition.last_stable_offset if committed else partition.high_watermark
            known_id, begin = topic_ids.get(tp), partition.start_offset
            if partition.topic_id == known_id and (begin is None or begin <= offset) and (end is None or offset <= end):
                continue
            loss = _judge(tp, offset, partition, end, known_id)
        if loss is not None:
            yield loss


def _absent(tp: TopicPartition, offset: int, *, gone: bool, followed: bool) -> Loss | None:
    if gone:
        return _loss(LossKind.GONE, tp, f"topic {tp.topic} does not exist any more; {tp} was at offset {offset}")
    if not followed:
        text = f"the checkpoint has {tp} at offset {offset}, but the subscription does not name it"
        return _loss(LossKind.GONE, tp, text)
    return None


def _judge(
    tp: TopicPartition, offset: int, view: PartitionView, end: int | None, known_id: TopicId | None
) -> Loss | None:
    if known_id is not None and view.topic_id is not None and view.topic_id != known_id:
        return _loss(
            LossKind.RECREATED,
            tp,
            f"topic {tp.topic} was recreated (id {known_id} became {view.topic_id}); {tp} was at offset {offset}",
        )
    if view.parked_reason is not None:
        return None
    if end is not None and offset > end:
        return _loss(
            LossKind.SHRUNK,
            tp,
            f"{tp} ends at offset {end} but the query is at offset {offset}: the topic was truncated or recreated",
        )
    if view.start_offset is not None and 0 <= offset < view.start_offset:
        return _loss(
            LossKind.AGED_OUT,
            tp,
            f"{tp} begins at offset {view.start_offset} but the query is at offset {offset}: "
            f"{counted(view.start_offset - offset, 'offset')} deleted by retention",
        )
    return None


def _loss(kind: LossKind, tp: TopicPartition, text: str) -> Loss:
    return Loss(kind=kind, topic_partition=tp, text=text)


def summarize(losses: tuple[Loss, ...], *, limit: int = 5) -> str:
    """Say all losses in one line with the remedy.

    Runs: anywhere (pure).
    """
    more = f"; and {counted(len(losses) - limit, 'more partition')}" if len(losses) > limit else ""
    remedy = f"{RECREATED_REMEDY}, or {REMEDY}" if any(loss.kind is LossKind.RECREATED for loss in losses) else REMEDY
    return f"data loss: {'; '.join(loss.text for loss in losses[:limit])}{more}; {remedy}"
