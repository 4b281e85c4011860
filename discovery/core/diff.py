"""Two snapshots in, what happened between them out."""

from dataclasses import dataclass
from enum import Enum

from discovery.core.model import PartitionMetadata, Snapshot, TopicMetadata, TopicName
from discovery.core.plural import counted


class EventKind(Enum):
    """Closed set of things worth an event."""

    CLUSTER_PINNED = "cluster_pinned"
    CLUSTER_MISMATCH = "cluster_mismatch"
    BROKER_ADDED = "broker_added"
    BROKER_REMOVED = "broker_removed"
    BROKER_MOVED = "broker_moved"
    TOPIC_ADDED = "topic_added"
    TOPIC_GONE = "topic_gone"
    TOPIC_RETURNED = "topic_returned"
    TOPIC_RECREATED = "topic_recreated"
    PARTITIONS_ADDED = "partitions_added"
    LEADER_CHANGED = "leader_changed"
    SHRINK_BLOCKED = "shrink_blocked"
    VERDICT_CHANGED = "verdict_changed"
    CLIENT_REBUILT = "client_rebuilt"
    STUCK_CALL = "stuck_call"
    BOOTSTRAP_CHANGED = "bootstrap_changed"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: a kind for machines, a subject, a sentence for people."""

    kind: EventKind
    subject: str
    sentence: str


def diff(old: Snapshot | None, new: Snapshot) -> tuple[Event, ...]:
    """List what changed from `old` to `new`, brokers first, then topics by name; exact and complete.

    Runs: anywhere (pure).
    """
    return (*_brokers(old, new), *_topics(old, new))


def _brokers(old: Snapshot | None, new: Snapshot) -> list[Event]:
    before = {b.broker_id: b for b in old.brokers} if old else {}
    after = {b.broker_id: b for b in new.brokers}
    events = [
        Event(EventKind.BROKER_ADDED, str(i), f"broker {i} joined at {after[i].address}")
        for i in after
        if i not in before
    ]
    events += [
        Event(EventKind.BROKER_REMOVED, str(i), f"broker {i} at {before[i].address} left")
        for i in before
        if i not in after
    ]
    events += [
        Event(EventKind.BROKER_MOVED, str(i), f"broker {i} moved from {before[i].address} to {after[i].address}")
        for i in after
        if i in before and before[i].address != after[i].address
    ]
    return events


def _topics(old: Snapshot | None, new: Snapshot) -> list[Event]:
    before = old.topics if old else {}
    tombs = old.tombstones if old else {}
    events: list[Event] = []
    for name in sorted(new.topics):
        now = new.topics[name]
        known = before.get(name)
        if known is not None:
            events += _one_topic(known, now)
        elif name in tombs and not recreated(tombs[name].topic, now):
            events.append(Event(EventKind.TOPIC_RETURNED, name, f"topic {name} is back"))
        elif name in tombs:
            events.append(_recreation(tombs[name].topic, now))
        else:
            events.append(
                Event(EventKind.TOPIC_ADDED, name, f"topic {name} has {counted(len(now.partitions), 'partition')}")
            )
    events += [
        Event(EventKind.TOPIC_GONE, name, f"topic {name} is gone") for name in sorted(before) if name not in new.topics
    ]
    return events


def recreated_topics(old: Snapshot | None, new: Snapshot) -> tuple[TopicName, ...]:
    """Return the topics that have another id than before, also those that were gone in between.

    Runs: anywhere (pure); O(topics).
    """
    gone = {name: tomb.topic for name, tomb in old.tombstones.items()} if old else {}
    before = {**gone, **(old.topics if old else {})}
    return tuple(name for name, topic in new.topics.items() if name in before and recreated(before[name], topic))


def recreated(old: TopicMetadata, new: TopicMetadata) -> bool:
    """Tell whether both ids are known and differ; an unknown id is never evidence."""
    return old.topic_id is not None and new.topic_id is not None and old.topic_id != new.topic_id


def _recreation(old: TopicMetadata, new: TopicMetadata) -> Event:
    text = f"topic {new.name} was recreated: id {old.topic_id} became {new.topic_id}"
    return Event(EventKind.TOPIC_RECREATED, new.name, text)


def _one_topic(old: TopicMetadata, new: TopicMetadata) -> list[Event]:
    if recreated(old, new):
        return [_recreation(old, new)]
    events = []
    if len(new.partitions) > len(old.partitions):
        text = f"topic {new.name} grew from {len(old.partitions)} to {len(new.partitions)} partitions"
        events.append(Event(EventKind.PARTITIONS_ADDED, new.name, text))
    before = {p.partition: p for p in old.partitions}
    moved = [p for p in new.partitions if p.partition in before and p.leader_id != before[p.partition].leader_id]
    events += [_leader_event(new.name, before[p.partition], p) for p in moved]
    return events


def _leader_event(topic: str, old: PartitionMetadata, new: PartitionMetadata) -> Event:
    def named(leader: int | None) -> str:
        return "nobody" if leader is None else f"broker {leader}"

    text = f"{topic}-{new.partition} is led by {named(new.leader_id)}, before by {named(old.leader_id)}"
    return Event(EventKind.LEADER_CHANGED, f"{topic}-{new.partition}", text)
