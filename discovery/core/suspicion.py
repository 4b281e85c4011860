"""May a topic have been recreated behind our back? Plain metadata carries no topic id, and ids are asked seldom.

Three signs cost nothing: a topic that an answer missed is named again, an end or a leader epoch went back, and a topic
is known from a saved view that nobody has confirmed yet. Then the id is asked at once, and until it is answered the
topic's offsets are shown to nobody: the new topic's would be taken for the old one's, so that its first records were
skipped.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from discovery.core.answers import OffsetsAnswer, TopicIdsAnswer
from discovery.core.model import PartitionOffsets, TopicName
from discovery.core.offsets import OffsetBook

_PATIENCE_SECONDS = 10.0
"""An id that nobody tells (no right to describe) is unknown, and unknown is never a blocker for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Since when (monotonic), and whether an id was answered that was asked for afterwards."""

    since: float
    id_answered: bool = False


Doubts = Mapping[TopicName, Doubt]


def went_back(book: OffsetBook, answer: OffsetsAnswer) -> frozenset[TopicName]:
    """Return the topics of which a leader tells less than we knew.

    Runs: anywhere (pure); O(partitions of the answer).
    """
    known = book.offsets
    return frozenset(
        tp.topic for tp, reported in answer.offsets.items() if (before := known.get(tp)) and _is_less(reported, before)
    )


def _is_less(reported: PartitionOffsets, before: PartitionOffsets) -> bool:
    pairs = (
        (reported.high_watermark, before.high_watermark),
        (reported.last_stable_offset, before.last_stable_offset),
        (reported.leader_epoch, before.leader_epoch),
    )
    return any(now is not None and then is not None and now < then for now, then in pairs)


def raised(doubts: Doubts, topics: Iterable[TopicName], *, now: float) -> Doubts:
    """Return the doubts with these topics; one that was answered already begins again.

    Runs: anywhere (pure).
    """
    fresh = {t: Doubt(since=now) for t in topics if t not in doubts or doubts[t].id_answered}
    return {**doubts, **fresh} if fresh else doubts


def answered(doubts: Doubts, answer: TopicIdsAnswer) -> Doubts:
    """Mark the doubts whose topic's id was asked for after they arose.

    Runs: anywhere (pure).
    """
    return {
        topic: replace(d, id_answered=True) if topic in answer.topic_ids and d.since <= answer.asked_at else d
        for topic, d in doubts.items()
    }


def settled(doubts: Doubts, *, now: float) -> Doubts:
    """Return what is left once metadata was merged with the ids answered.

    Runs: anywhere (pure).
    """
    return {t: d for t, d in doubts.items() if not d.id_answered and now - d.since < _PATIENCE_SECONDS}
