"""From a decision of the loop to the view a planner reads; only what changed is made again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from discovery.core.decide import Decision
from discovery.core.interest import Interest
from discovery.core.model import (
    BrokerAddress,
    Generation,
    PartitionMetadata,
    PartitionOffsets,
    Snapshot,
    TopicMetadata,
    TopicName,
    TopicPartition,
    Verdict,
)
from discovery.core.parking import parked_reason
from discovery.core.state import State
from discovery.core.topics import is_confirmed
from discovery.feed.base import ID_ASKED, AddressReport, FeedView, PartitionView

_UNKNOWN = PartitionOffsets()
_NO_GENERATION = Generation(0)
_Shape = tuple[object, ...]


@dataclass(slots=True)
class Assembler:
    """Turns decisions into views. Owned by the loop's thread.

    Offsets change five times a second and leader, everything else seldom: while the shape (snapshot and verdicts) is
    the same, only the partitions the decision touched are made again.
    """

    interest: Interest
    _shape: _Shape = ()
    _partitions: Mapping[TopicPartition, PartitionView] = field(default_factory=lambda: MappingProxyType({}))
    """Replaced, never changed; the same object while nothing in it changes."""
    _metadata: dict[TopicPartition, tuple[TopicMetadata, PartitionMetadata]] = field(default_factory=dict)
    _version: int = 0

    def assemble(self, decision: Decision, *, mono_to_wall: float) -> FeedView:
        """Return the view after a decision; its age is that of this moment and is set again by the feed.

        Args:
            decision: What the loop shows.
            mono_to_wall: What to add to monotonic seconds to get seconds since the epoch.
        """
        state = decision.state
        shape = (state.offsets.epoch, *self._shape_of(state))
        if shape != self._shape:
            self._shape = shape
            self._metadata = dict(self._followed(state))
            touched = list(self._metadata)
            before, made = self._partitions, dict[TopicPartition, PartitionView]()
            changed = True
        else:
            touched = [tp for tp in decision.touched if tp in self._metadata]
            before = self._partitions
            made = dict(before) if touched else {}
            changed = False
        for tp in touched:
            old = before.get(tp)
            new = self._partition(tp, old, state, mono_to_wall)
            if old == new and old is not None:
                new = old  # the same object tells whoever compares views that nothing changed
            else:
                changed = True
            made[tp] = new
        if changed:
            self._partitions = MappingProxyType(made)
        self._version += 1
        return self._view(state, decision.sentence, mono_to_wall)

    @staticmethod
    def _shape_of(state: State) -> _Shape:
        generation = state.snapshot.generation if state.snapshot else None
        verdicts = ((address, known.verdict) for address, known in state.addresses.items())
        return (generation, *state.suspicions, *verdicts)

    def _followed(self, state: State) -> list[tuple[TopicPartition, tuple[TopicMetadata, PartitionMetadata]]]:
        if state.snapshot is None:
            return []
        gone = [tomb.topic for tomb in state.snapshot.tombstones.values()]
        return sorted(
            (
                (tp, (topic, partition))
                for topic in (*state.snapshot.topics.values(), *gone)
                if self.interest.wants_topic(topic.name)
                for partition in topic.partitions
                if (tp := TopicPartition(topic.name, partition.partition)) and self._assigned(tp)
            ),
            key=lambda item: item[0],
        )

    def _assigned(self, tp: TopicPartition) -> bool:
        return not self.interest.assigned or tp in self.interest.assigned

    def _partition(
        self, tp: TopicPartition, before: PartitionView | None, state: State, mono_to_wall: float
    ) -> PartitionView:
        assert state.snapshot is not None  # noqa: S101 - there is no partition without a snapshot
        topic, metadata = self._metadata[tp]
        offsets = state.offsets.offsets.get(tp, _UNKNOWN)
        end_known = offsets.high_watermark is not None or offsets.last_stable_offset is not None
        since, why = state.offsets.unanswered.get(tp, (None, None))
        if topic.name in state.snapshot.tombstones:
            reason: str | None = "its topic is gone"
        elif topic.name in state.suspicions:
            reason = ID_ASKED
        else:
            reason = parked_reason(metadata, state, end_known=end_known, unanswered=why)
        leader = state.snapshot.broker(metadata.leader_id)
        return PartitionView(
            topic_id=None if topic.name in state.suspicions else topic.topic_id,
            leader_id=metadata.leader_id,
            leader=leader.address if leader else None,
            leader_epoch=offsets.leader_epoch,
            start_offset=offsets.start_offset,
            high_watermark=offsets.high_watermark,
            last_stable_offset=offsets.last_stable_offset,
            parked_reason=reason,
            answer_seconds=_answer_seconds(metadata, state),
            gone=topic.name in state.snapshot.tombstones,
            parked_since_wall=_parked_since(before, reason, since, mono_to_wall, state),
        )

    def _view(self, state: State, sentence: str, mono_to_wall: float) -> FeedView:
        snapshot = state.snapshot
        asked = self.interest.asked_topics or ()
        missing = tuple(t for t in asked if snapshot is not None and _is_missing(t, snapshot, state))
        return FeedView(
            version=self._version,
            generation=snapshot.generation if snapshot else _NO_GENERATION,
            state=state.loop_state,
            cluster_id=state.pin,
            age_seconds=float("inf"),
            bootstrap=_bootstrap(state),
            partitions=self._partitions,
            missing_topics=missing if state.confirmed_at is not None else (),
            addresses=MappingProxyType(_reports(state, mono_to_wall)),
            answered=MappingProxyType(state.agenda.newest),
            first_topic_ids=MappingProxyType(state.first_ids),
            left_cluster=state.left.cluster_id if state.left else None,
            sentence=sentence,
            fatal=state.fatal,
        )


def _is_missing(topic: TopicName, snapshot: Snapshot, state: State) -> bool:
    return topic in snapshot.tombstones or (topic not in snapshot.topics and is_confirmed(state.absences.get(topic)))


def _answer_seconds(metadata: PartitionMetadata, state: State) -> float:
    """Whole seconds: whoever compares views is not to take each answer for news."""
    took = state.agenda.took_seconds.get(metadata.leader_id, 0.0) if metadata.leader_id is not None else 0.0
    return float(round(took))


def _parked_since(
    before: PartitionView | None, reason: str | None, since: float | None, mono_to_wall: float, state: State
) -> float | None:
    if reason is None:
        return None
    if before is not None and before.parked_since_wall is not None:
        return before.parked_since_wall
    if since is not None:
        return since + mono_to_wall
    return state.snapshot.confirmed_wall if state.snapshot else None


def _bootstrap(state: State) -> tuple[BrokerAddress, ...]:
    """Living addresses; with none alive those last known, for they may come back; never one of a foreign cluster."""
    if state.pin is None:
        return ()
    if state.living:
        return state.living
    learned = tuple(b.address for b in state.snapshot.brokers) if state.snapshot else ()
    known = dict.fromkeys((*learned, *state.configured))
    return tuple(a for a in known if (k := state.addresses.get(a)) is None or k.verdict is not Verdict.FOREIGN_CLUSTER)


def _reports(state: State, mono_to_wall: float) -> dict[BrokerAddress, AddressReport]:
    return {
        address: AddressReport(
            verdict=known.verdict,
            detail=known.detail,
            since_wall=None if known.since is None else known.since + mono_to_wall,
            configured=address in state.configured,
        )
        for address, known in state.addresses.items()
    }
