"""A leader that lives and answers late, behind a proxy that delays each of its answers: its partitions are read."""

import time
from collections.abc import Iterator

import pytest

from discovery.core.errors import DiscoveryError
from discovery.core.interest import Interest
from discovery.core.model import Isolation, TopicName, TopicPartition, parse_bootstrap_servers
from discovery.feed.embedded import EmbeddedFeed
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from discovery.spark.source.batch import KafkaDiscoveryReader
from discovery.spark.source.options.parse import parse_options
from tests.chaos.sink.proxy import Api, KafkaProxy, Rule
from tests.support.helpers import eventually, numbered, produce

pytestmark = pytest.mark.kafka
SLOW = 2


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


@pytest.mark.timeout(120)
def test_given_a_leader_that_answers_no_fetch_when_read_at_once_then_the_task_fails_and_names_broker_and_option(
    three_brokers: LocalKafka, topic_name: str
) -> None:
    three_brokers.create_topic(topic_name, assignment=[[SLOW]])
    produce(three_brokers.bootstrap_servers, topic_name, *numbered(5), partition=0)
    with KafkaProxy({number: three_brokers.address(number) for number in three_brokers.broker_ids}) as proxy:
        options = {
            "kafka.bootstrap.servers": proxy.bootstrap_servers,
            "subscribe": topic_name,
            "startingOffsets": "earliest",
            "stallTimeout": "5s",
        }
        reader = KafkaDiscoveryReader(parse_options(options))
        (task,) = reader.partitions()
        rule = proxy.rule(Rule(api=Api.FETCH, count=10**9, delay_reply_seconds=600))
        began = time.monotonic()
        with pytest.raises(DiscoveryError) as error:
            list(reader.read(task))
        assert 5 <= time.monotonic() - began < 30
        assert rule.hits
        leader = task.ranges[0].leader_address  # type: ignore[attr-defined]
        assert str(error.value).startswith("stallTimeout: no record came for 5 s from the leader of ")
        assert f"{topic_name}-0 at offset 0 of 5 (broker {leader})" in str(error.value)


def follow_a_slow_leader(three_brokers: LocalKafka, topic_name: str, delay_seconds: float) -> None:
    """Write behind a proxy that delays each answer of one leader; fail where its ends stay unknown or it is parked."""
    three_brokers.create_topic(topic_name, assignment=[[1], [SLOW], [3]])
    slow, quick = (TopicPartition(TopicName(topic_name), partition) for partition in (1, 2))
    addresses = {number: three_brokers.address(number) for number in three_brokers.broker_ids}
    with KafkaProxy(addresses) as proxy:
        feed = EmbeddedFeed(
            bootstrap=parse_bootstrap_servers(proxy.bootstrap_servers),
            interest=Interest(topics=(TopicName(topic_name),)),
        )

        def end(tp: TopicPartition) -> int | None:
            found = feed.view().partitions.get(tp)
            return found.end_offset(Isolation.READ_UNCOMMITTED) if found and found.parked_reason is None else None

        try:
            feed.start()
            eventually(lambda: end(slow) == 0 and end(quick) == 0, 20, "every end")
            proxy.slow[SLOW] = delay_seconds
            for partition in (1, 2):
                produce(three_brokers.bootstrap_servers, topic_name, *numbered(7), partition=partition)
            eventually(lambda: end(quick) == 7, 5, "the end of a healthy leader")
            # A connection of its own: its first answer, metadata, ends and starts, one after another.
            eventually(lambda: end(slow) == 7, 10 + 6 * delay_seconds, "the end of the slow leader")
            produce(three_brokers.bootstrap_servers, topic_name, *numbered(5), partition=1)
            parked: set[str] = set()

            def grown() -> bool:
                parked.update(filter(None, [feed.view().partitions[slow].parked_reason]))
                return end(slow) == 12

            eventually(grown, 10 + 4 * delay_seconds, "the next end of the slow leader")
            assert not parked, "a leader that is known to be slow is given its time"
            proxy.slow.clear()
            produce(three_brokers.bootstrap_servers, topic_name, "a", partition=1)
            eventually(lambda: end(slow) == 13, 10 + 2 * delay_seconds, "the end, quick again")
        finally:
            feed.stop()
