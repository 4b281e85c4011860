"""Merging what an answer says of topics into what we hold, so that nothing vanishes on one word."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from discovery.core.answers import MetadataAnswer
from discovery.core.diff import recreated
from discovery.core.model import PartitionMetadata, Snapshot, Tombstone, TopicId, TopicMetadata, TopicName
from discovery.core.state import Absence

_ABSENT_ANSWERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The topics after an answer."""

    topics: Mapping[TopicName, TopicMetadata]
    tombstones: Mapping[TopicName, Tombstone]
    absences: Mapping[TopicName, Absence]
    shrunk: tuple[TopicName, ...] = ()
    """Topics whose answer had fewer partitions than we hold, without a new id: kept as they were."""


def merge_topics(
    old: Snapshot | None,
    absences: Mapping[TopicName, Absence],
    answer: MetadataAnswer,
    topic_ids: Mapping[TopicName, TopicId],
    *,
    grace_seconds: float,
    now: float,
    wall: float,
) -> Merged:
    """Merge one answer.

    A partition count never shrinks without a new topic id. A topic is retired to a tombstone after
    three answers and `grace_seconds` without it, and comes back from there with what it had.

    Args:
        old: The snapshot before, or None.
        absences: Topics missed by earlier answers.
        answer: From the right cluster.
        topic_ids: Ids answered by the slower question; they win over what is held.
        grace_seconds: Shortest absence that retires a topic.
        now: Monotonic seconds.
        wall: Seconds since the epoch, for the tombstone.

    Returns:
        Topics, tombstones and absences after the answer.

    Runs: anywhere (pure).
    """
    held = dict(old.topics) if old else {}
    tombstones = dict(old.tombstones) if old else {}
    shrunk: list[TopicName] = []
    for reported in answer.topics:
        before = held.get(reported.name) or (tombstones[reported.name].topic if reported.name in tombstones else None)
        merged, short = _merge_one(before, reported, topic_ids.get(reported.name))
        shrunk += [reported.name] * short
        held[reported.name] = merged
        tombstones.pop(reported.name, None)
    never_held = [name for name in answer.unknown_topics if name not in held and name not in tombstones]
    missing = (*_missing(held, answer), *never_held)
    absent = {name: _longer(absences.get(name), now) for name in missing}
    for name, absence in absent.items():
        if name in held and is_confirmed(absence) and now - absence.since >= grace_seconds:
            tombstones[name] = Tombstone(topic=held.pop(name), since_wall=wall)
    still = {name: absence for name, absence in absent.items() if name not in tombstones}
    return Merged(topics=held, tombstones=tombstones, absences=still, shrunk=tuple(shrunk))


def is_confirmed(absence: Absence | None) -> bool:
    """Tell whether enough answers in a row did not know the topic."""
    return absence is not None and absence.answers >= _ABSENT_ANSWERS


def _missing(held: Iterable[TopicName], answer: MetadataAnswer) -> tuple[TopicName, ...]:
    named = {topic.name for topic in answer.topics}
    unknown = set(answer.unknown_topics)
    return tuple(name for name in held if name in unknown or (answer.complete and name not in named))


def _longer(absence: Absence | None, now: float) -> Absence:
    return Absence(since=now) if absence is None else replace(absence, answers=absence.answers + 1)


def _merge_one(
    before: TopicMetadata | None, reported: TopicMetadata, answered_id: TopicId | None
) -> tuple[TopicMetadata, bool]:
    """Return the topic to hold, and whether partitions were kept that the answer left out."""
    new_id = reported.topic_id or answered_id
    if before is not None and before.partitions == reported.partitions and new_id in {None, before.topic_id}:
        return before, False  # the very same object: what is made from it need not be made again
    reported = replace(reported, topic_id=new_id)
    if before is None or recreated(before, reported):
        return reported, False
    partitions = _with_kept(before.partitions, reported.partitions)
    kept = len(partitions) > len(reported.partitions)
    return TopicMetadata(name=reported.name, topic_id=new_id or before.topic_id, partitions=partitions), kept


def _with_kept(
    before: tuple[PartitionMetadata, ...], reported: tuple[PartitionMetadata, ...]
) -> tuple[PartitionMetadata, ...]:
    """Take the reported partitions, and of those left out the held ones, without a leader: nobody confirms it."""
    by_index = {p.partition: replace(p, leader_id=None, is_listed=False) for p in before}
    by_index |= {p.partition: p for p in reported}
    return tuple(by_index[index] for index in sorted(by_index))
