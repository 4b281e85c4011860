"""Why a partition is not read."""

from discovery.core.model import (
    TopicName,
)
from discovery.core.parking import parked_reason
from tests.support.core_values import (
    dead,
    run,
    settled,
    snapshot_of,
    topic,
)


def test_given_each_trouble_when_a_partition_is_parked_then_the_reason_names_it() -> None:
    state = settled(2, topic(partitions=1))
    led = snapshot_of(state).topics[TopicName("t")].partitions[0]
    nobody = topic(partitions=1, leader=None).partitions[0]
    stranger = topic(partitions=1, leader=7).partitions[0]
    dead_leader = run(state, dead(1)).state
    cases = [
        (nobody, state, True, None, "no leader"),
        (stranger, state, True, None, "broker 7, is not listed"),
        (led, dead_leader, True, None, "broker 1 at b1:9092, is refused"),
        (led, state, True, "no answer within 1 s", "no answer within 1 s"),
        (led, state, False, None, "has not reported its end offset yet"),
    ]
    for partition, known, end_known, unanswered, expected in cases:
        assert expected in (parked_reason(partition, known, end_known=end_known, unanswered=unanswered) or "")
    assert parked_reason(led, state, end_known=True, unanswered=None) is None
