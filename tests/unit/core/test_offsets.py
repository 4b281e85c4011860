"""What is known of offsets, and who did not answer."""

from discovery.core.answers import OffsetsAnswer
from discovery.core.model import (
    BrokerId,
    PartitionOffsets,
    TopicName,
    TopicPartition,
)
from discovery.core.offsets import OffsetBook

T0 = TopicPartition(TopicName("t"), 0)


def test_given_unanswered_partitions_when_reported_again_then_the_mark_goes_and_offsets_stay() -> None:
    seen = OffsetsAnswer(
        leader_id=BrokerId(1), asked=(T0,), offsets={T0: PartitionOffsets(start_offset=1, high_watermark=5)}
    )
    silent = OffsetsAnswer(leader_id=BrokerId(1), asked=(T0,), offsets={}, detail="no answer within 1 s")
    book = OffsetBook().with_answer(seen, now=1.0).with_answer(silent, now=2.0).with_answer(silent, now=3.0)
    assert book.unanswered[T0] == (2.0, "no answer within 1 s")
    assert book.offsets[T0].high_watermark == 5
    grown = OffsetsAnswer(leader_id=BrokerId(1), asked=(T0,), offsets={T0: PartitionOffsets(high_watermark=9)})
    book = book.with_answer(grown, now=4.0)
    assert book.offsets[T0] == PartitionOffsets(start_offset=1, high_watermark=9)
    assert not book.unanswered
    assert not book.without_topic(TopicName("t")).offsets
