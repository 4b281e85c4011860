"""A leader that lives and answers late, behind a proxy that delays each of its answers: its partitions are read."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from discovery.config.client.options import ClientOptions
from discovery.config.clock import SystemClock
from discovery.core.answers import ProbeOutcome
from discovery.core.errors import DiscoveryError
from discovery.core.interest import Interest
from discovery.core.model import BrokerId, TopicName, TopicPartition, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.core.questions import AskOffsets
from discovery.kafka.confluent import ConfluentGatewayFactory
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from discovery.loop.asking import ask_offsets
from discovery.spark.fetch import FetchRange, fetch
from discovery.spark.source.batch import KafkaDiscoveryReader
from discovery.spark.source.feeds import embedded_feed
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.shared import fetch_settings
from tests.support.helpers import eventually, numbered, produce
from tests.support.proxy import Api, KafkaProxy, Rule
from tests.support.slow_leader import SLOW, follow_a_slow_leader

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


@pytest.mark.timeout(60)
def test_given_a_leader_that_closes_its_connection_when_asked_for_ends_then_no_silence_is_claimed(
    three_brokers: LocalKafka, topic_name: str
) -> None:
    three_brokers.create_topic(topic_name, assignment=[[SLOW]])
    only = Interest(topics=(TopicName(topic_name),))
    ask = AskOffsets(
        leader_id=BrokerId(SLOW), partitions=(TopicPartition(only.topics[0], 0),), isolations=only.isolations
    )
    policy = Policy(offsets_timeout_seconds=2.0)
    with KafkaProxy({number: three_brokers.address(number) for number in three_brokers.broker_ids}) as proxy:
        gateway = ConfluentGatewayFactory(ClientOptions(), policy)(parse_bootstrap_servers(proxy.bootstrap_servers))
        try:
            gateway.fetch_metadata(only.topics, timeout_seconds=10.0)
            assert ask_offsets(gateway, ask, policy, SystemClock()).detail == ""
            proxy.rule(Rule(api=Api.LIST_OFFSETS, lose_reply=True))
            closed = ask_offsets(gateway, ask, policy, SystemClock())
            assert (closed.offsets, closed.detail) == ({}, "its connection ended, or it does not lead it now")
            eventually(lambda: ask_offsets(gateway, ask, policy, SystemClock()).offsets, 10, "ends of a new connection")
            proxy.rule(Rule(api=Api.LIST_OFFSETS, hold_reply=True))
            assert ask_offsets(gateway, ask, policy, SystemClock()).detail == "no answer within 2 s"
        finally:
            gateway.close()


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
            "stallTimeout": "15s",  # a client on a busy machine needs some of it to get to its first fetch
        }
        reader = KafkaDiscoveryReader(parse_options(options))
        (task,) = reader.partitions()
        rule = proxy.rule(Rule(api=Api.FETCH, count=10**9, hold_reply=True))
        began = time.monotonic()
        with pytest.raises(DiscoveryError) as error:
            list(reader.read(task))
        assert time.monotonic() - began >= 15
        assert rule.hits
        leader = task.ranges[0].leader_address  # type: ignore[attr-defined]
        assert str(error.value).startswith("stallTimeout: no record came for ")
        assert f" from the leader of {topic_name}-0 at offset 0 of 5 (broker {leader})" in str(error.value)


@pytest.mark.timeout(120)
def test_given_a_leader_slower_than_the_task_asks_questions_when_read_then_its_answer_is_waited_for(
    three_brokers: LocalKafka, topic_name: str
) -> None:
    three_brokers.create_topic(topic_name, assignment=[[SLOW]])
    produce(three_brokers.bootstrap_servers, topic_name, *numbered(5))
    addresses = {number: three_brokers.address(number) for number in three_brokers.broker_ids}
    with KafkaProxy(addresses) as proxy:
        proxy.slow[SLOW] = 12.0
        options = parse_options({"kafka.bootstrap.servers": proxy.bootstrap_servers, "subscribe": topic_name})
        slow = FetchRange(
            topic_partition=TopicPartition(TopicName(topic_name), 0), start_offset=0, end_offset=5, answer_seconds=12.0
        )
        settings = replace(fetch_settings(options, patient=True), stall_seconds=60.0)
        brokers = parse_bootstrap_servers(proxy.bootstrap_servers)
        batches = list(fetch([slow], brokers, settings, on_waiting=lambda _: None))
        assert sum(batch.num_rows for batch in batches) == 5


def test_given_brokers_that_take_most_of_a_second_for_each_answer_when_vetted_then_they_are_alive(
    three_brokers: LocalKafka,
) -> None:
    addresses = {number: three_brokers.address(number) for number in three_brokers.broker_ids}
    with KafkaProxy(addresses) as proxy:
        proxy.slow = dict.fromkeys(addresses, 0.7)
        listed = parse_bootstrap_servers(proxy.bootstrap_servers)
        outcomes: list[ProbeOutcome] = []
        LibrdkafkaVetter(ClientOptions(), Policy()).vet(
            listed, connect_timeout_seconds=2.0, request_timeout_seconds=5.0, full=listed, on_outcome=outcomes.append
        )
        eventually(lambda: len(outcomes) == len(listed), 15)
        assert {outcome.address: outcome.failure for outcome in outcomes} == dict.fromkeys(listed)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_given_a_cluster_that_is_slow_as_a_whole_when_two_options_say_so_then_a_source_starts(
    three_brokers: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    three_brokers.create_topic(topic_name, assignment=[[1], [SLOW], [3]])
    addresses = {number: three_brokers.address(number) for number in three_brokers.broker_ids}
    with KafkaProxy(addresses) as proxy:
        proxy.slow = dict.fromkeys(addresses, 2.0)  # four of them make up a first answer
        options = {
            "kafka.bootstrap.servers": proxy.bootstrap_servers,
            "kafka.request.timeout.ms": "10000",
            "kafka.socket.connection.setup.timeout.ms": "10000",
            "subscribe": topic_name,
            "stateDir": str(tmp_path),
        }
        feed = embedded_feed(parse_options(options))

        def ends() -> list[int | None]:
            known = feed.view().partitions.values()
            return [p.high_watermark for p in known if p.parked_reason is None]

        try:
            feed.start()
            eventually(lambda: ends() == [0, 0, 0], 90, "every end")
        finally:
            feed.stop()
