"""The book of offsets: what leaders reported, and since when they are silent."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from discovery.core.answers import OffsetsAnswer
from discovery.core.model import PartitionOffsets, TopicName, TopicPartition

_UNKNOWN = PartitionOffsets()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBook:
    """Offsets by partition, and the partitions whose last question stayed unanswered."""

    offsets: Mapping[TopicPartition, PartitionOffsets] = field(default_factory=dict)
    unanswered: Mapping[TopicPartition, tuple[float, str]] = field(default_factory=dict)
    """Since when (monotonic) and why."""
    epoch: int = 0
    """Grows when everything in it was thrown away."""

    def with_answer(self, answer: OffsetsAnswer, *, now: float) -> "OffsetBook":
        """Return the book after one leader's answer.

        An answer may hold the end, the start or both; what it leaves out stays as it was. A partition that was asked
        and not answered keeps its offsets and is marked: an unknown end is not a smaller end.
        """
        offsets = dict(self.offsets)
        unanswered = dict(self.unanswered)
        for partition in answer.asked:
            reported = answer.offsets.get(partition)
            if reported is None:
                unanswered.setdefault(partition, (now, answer.detail or "its leader did not answer"))
            else:
                before = offsets.get(partition, _UNKNOWN)
                if before != (merged := _merged(before, reported)):
                    offsets[partition] = merged
                unanswered.pop(partition, None)
        return OffsetBook(offsets=offsets, unanswered=unanswered, epoch=self.epoch)

    def newer_terms(self, answer: OffsetsAnswer) -> frozenset[TopicPartition]:
        """Return the partitions whose leader answers in a later term than any we have heard of."""
        known = self.offsets
        return frozenset(
            tp
            for tp, now in answer.offsets.items()
            if (term := now.leader_epoch) is not None
            and ((before := known.get(tp, _UNKNOWN).leader_epoch) is None or term > before)
        )

    def without_topic(self, topic: TopicName) -> "OffsetBook":
        """Return the book without a topic that was recreated: its old offsets mean nothing now."""
        return OffsetBook(
            offsets={tp: known for tp, known in self.offsets.items() if tp.topic != topic},
            unanswered={tp: why for tp, why in self.unanswered.items() if tp.topic != topic},
            epoch=self.epoch + 1,
        )

    def emptied(self) -> "OffsetBook":
        """Return an empty book: nothing in this one can be trusted."""
        return OffsetBook(epoch=self.epoch + 1)


def not_less(earlier: PartitionOffsets, later: PartitionOffsets) -> PartitionOffsets:
    """Return what the answer to an earlier question adds: its start, larger ends, and all of it in a newer term.

    Runs: anywhere (pure).
    """
    if (earlier.leader_epoch or 0) > (later.leader_epoch or 0):
        return earlier
    return replace(
        earlier,
        high_watermark=_larger(earlier.high_watermark, later.high_watermark),
        last_stable_offset=_larger(earlier.last_stable_offset, later.last_stable_offset),
        leader_epoch=later.leader_epoch,
    )


def _larger(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)


def _merged(old: PartitionOffsets, new: PartitionOffsets) -> PartitionOffsets:
    """Take what was reported, field by field: written out, for it runs for every partition several times a second."""
    return PartitionOffsets(
        start_offset=old.start_offset if new.start_offset is None else new.start_offset,
        high_watermark=old.high_watermark if new.high_watermark is None else new.high_watermark,
        last_stable_offset=old.last_stable_offset if new.last_stable_offset is None else new.last_stable_offset,
        leader_epoch=old.leader_epoch if new.leader_epoch is None else new.leader_epoch,
    )
