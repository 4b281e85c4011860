"""A leader that lives and answers late, behind a proxy that delays each of its answers: its partitions are read."""

from collections.abc import Iterator

import pytest

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.slow_leader import follow_a_slow_leader

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[LocalKafka]:
    with LocalKafka(ClusterSettings(brokers=3)) as cluster:
        yield cluster


@pytest.mark.timeout(300)
@pytest.mark.parametrize("delay_seconds", [1.3, pytest.param(5.0, marks=pytest.mark.long)])
def test_given_a_leader_that_answers_late_when_records_come_then_its_new_ends_are_shown_and_it_is_not_parked(
    three_brokers: LocalKafka, topic_name: str, delay_seconds: float
) -> None:
    follow_a_slow_leader(three_brokers, topic_name, delay_seconds)
