"""The slowest leader that is still read: 20 s for each answer, two and a half minutes."""

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.support.slow_leader import follow_a_slow_leader

pytestmark = pytest.mark.kafka


def test_given_a_leader_that_takes_20_s_for_each_answer_when_records_come_then_it_is_read(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    follow_a_slow_leader(kafka_cluster, topic_name, 20.0)
