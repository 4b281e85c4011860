"""When a topic may have been recreated: raised, answered, settled."""

import pytest

from discovery.core.answers import OffsetsAnswer, TopicIdsAnswer
from discovery.core.model import BrokerId, PartitionOffsets, TopicId, TopicName, TopicPartition
from discovery.core.offsets import OffsetBook
from discovery.core.suspicion import Suspicion, answered, expired, raised, settled, went_back

T, U = TopicName("t"), TopicName("u")
P = TopicPartition(T, 0)
IDS = {T: TopicId("x")}


def _answer(offsets: PartitionOffsets) -> OffsetsAnswer:
    return OffsetsAnswer(leader_id=BrokerId(1), asked=(P,), offsets={P: offsets})


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (PartitionOffsets(high_watermark=9, leader_epoch=3), {T}),
        (PartitionOffsets(high_watermark=12, leader_epoch=2), {T}),
        (PartitionOffsets(high_watermark=10, leader_epoch=3), set()),
        (PartitionOffsets(high_watermark=11, leader_epoch=4), set()),
        (PartitionOffsets(start_offset=4), set()),
    ],
)
def test_given_a_known_end_when_a_leader_tells_another_then_only_a_smaller_end_or_epoch_raises_a_suspicion(
    seen: PartitionOffsets, expected: set[TopicName]
) -> None:
    book = OffsetBook().with_answer(_answer(PartitionOffsets(high_watermark=10, leader_epoch=3)), now=0)
    assert went_back(book, _answer(seen)) == expected
    assert went_back(OffsetBook(), _answer(seen)) == set()


def test_given_a_suspicion_when_an_id_was_asked_for_before_it_then_it_stays_until_a_later_one() -> None:
    suspicions = raised({}, [T, U], now=5)
    early = settled(answered(suspicions, TopicIdsAnswer(topic_ids=IDS, asked_at=4.9)))
    assert set(early) == {T, U}
    late = settled(answered(suspicions, TopicIdsAnswer(topic_ids=IDS, asked_at=5)))
    assert set(late) == {U}


def test_given_a_suspicion_when_raised_again_then_it_keeps_its_time_unless_it_was_answered() -> None:
    suspicions = raised({T: Suspicion(since=1), U: Suspicion(since=1, id_answered=True)}, [T, U], now=3)
    assert suspicions == {T: Suspicion(since=1), U: Suspicion(since=3)}


@pytest.mark.parametrize(("first", "seconds"), [(False, 10), (True, 0.8)])
def test_given_nobody_who_answers_the_id_when_time_passed_then_the_suspicion_blocks_no_longer(
    *, first: bool, seconds: float
) -> None:
    suspicions = raised({}, [T], now=0, first=first)
    assert expired(suspicions, now=seconds - 0.1) is suspicions
    assert not expired(suspicions, now=seconds)
    waits_for_metadata = {T: Suspicion(since=0, id_answered=True, at_first_sight=first)}
    assert expired(waits_for_metadata, now=seconds)
