"""May a topic have been recreated unseen? Plain metadata carries no topic id, and ids are asked for seldom.

Three signs cost nothing: a topic that an answer missed is named again, an end or a leader epoch went back, and a topic
is known from a saved view that nobody has confirmed yet. Then the id is asked for at once, and until it is answered the
topic's offsets are shown to nobody: the new topic's would be taken for the old one's, so that its first records were
skipped. A topic that is seen for the first time waits for its id, too, if not as long: what is read of it before could
not be distinguished from another one's.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from discovery.core.answers import OffsetsAnswer, TopicIdsAnswer
from discovery.core.model import PartitionOffsets, TopicName
from discovery.core.offsets import OffsetBook

_PATIENCE_SECONDS = 10.0
"""An id that nobody answers (no right to describe) is unknown, and unknown is never a blocker for ever."""
_FIRST_SECONDS = 0.8
"""How long a topic waits for its first id, should brokers lag behind its creation; less than a start waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Since when (monotonic), and whether an id was answered that was asked for afterwards."""

    since: float
    id_answered: bool = False
    at_first_sight: bool = False


Suspicions = Mapping[TopicName, Suspicion]


def went_back(book: OffsetBook, answer: OffsetsAnswer) -> frozenset[TopicName]:
    """Return the topics of which a leader reports less than we knew.

    Runs: anywhere (pure); O(partitions of the answer).
    """
    known = book.offsets
    return frozenset(
        tp.topic for tp, now in answer.offsets.items() if (before := known.get(tp)) and _is_less(now, before)
    )


def _is_less(now: PartitionOffsets, before: PartitionOffsets) -> bool:
    pairs = (
        (now.high_watermark, before.high_watermark),
        (now.last_stable_offset, before.last_stable_offset),
        (now.leader_epoch, before.leader_epoch),
    )
    return any(new is not None and old is not None and new < old for new, old in pairs)


def raised(suspicions: Suspicions, topics: Iterable[TopicName], *, now: float, first: bool = False) -> Suspicions:
    """Return the suspicions with these topics; one that was answered already, or was of a first sight, begins again.

    Args:
        suspicions: So far.
        topics: Those in question.
        now: Monotonic seconds.
        first: They are seen for the first time.

    Runs: anywhere (pure).
    """
    fresh = {t: Suspicion(since=now, at_first_sight=first) for t in topics if _is_over(suspicions.get(t))}
    return {**suspicions, **fresh} if fresh else suspicions


def _is_over(known: Suspicion | None) -> bool:
    return known is None or known.id_answered or known.at_first_sight


def answered(suspicions: Suspicions, answer: TopicIdsAnswer) -> Suspicions:
    """Mark the suspicions whose topic's id was asked for after they arose.

    Runs: anywhere (pure).
    """
    return {
        topic: replace(s, id_answered=True) if topic in answer.topic_ids and s.since <= answer.asked_at else s
        for topic, s in suspicions.items()
    }


def settled(suspicions: Suspicions) -> Suspicions:
    """Return what is left once metadata was merged with the ids answered.

    Runs: anywhere (pure).
    """
    return {t: s for t, s in suspicions.items() if not s.id_answered}


def unanswered(suspicions: Suspicions) -> Suspicions:
    """Return them as they were before any id was answered: what was is not trusted.

    Runs: anywhere (pure).
    """
    return {t: replace(s, id_answered=False) for t, s in suspicions.items()}


def expired(suspicions: Suspicions, *, now: float) -> Suspicions:
    """Return what is left, the same object if all is, of what waits for an id that nobody answers.

    Runs: anywhere (pure).
    """
    over = {t for t, s in suspicions.items() if not s.id_answered and now - s.since >= _patience_seconds(s)}
    return {t: s for t, s in suspicions.items() if t not in over} if over else suspicions


def _patience_seconds(one: Suspicion) -> float:
    return _FIRST_SECONDS if one.at_first_sight else _PATIENCE_SECONDS


def named(suspicions: Suspicions, topics: Container[TopicName]) -> Suspicions:
    """Return what is left once these topics were given the id that was answered: there is none it could differ from.

    Runs: anywhere (pure).
    """
    return {t: s for t, s in suspicions.items() if t not in topics or not s.id_answered}
