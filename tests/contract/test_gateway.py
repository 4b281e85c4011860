"""What every gateway promises, on the fake, librdkafka's mock cluster and real brokers."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from discovery.config.client.options import map_client_options
from discovery.core.errors import ConfigError, FailureKind, GatewayError
from discovery.core.model import BrokerAddress, TopicId, TopicMetadata, TopicName, TopicPartition
from discovery.core.policy import Policy
from discovery.kafka import confluent
from discovery.kafka.base import EARLIEST, LATEST, NO_RECORD, Gateway, OffsetSpec
from discovery.kafka.confluent import ConfluentGatewayFactory
from tests.contract.subjects import FakeSubject, MockSubject, RealSubject, Subject, only_on, partitions_of
from tests.support.faults import UNRESOLVABLE, accept_and_hang, black_hole, refused_port
from tests.support.helpers import eventually

TIMEOUT = 5.0
LATE = 6.0
"""Seconds, for a call that was given one: what has no bound of its own waits for a minute."""


@contextmanager
def gateway_of(subject: Subject) -> Iterator[Gateway]:
    gateway = subject.factory(subject.addresses)
    yield gateway
    gateway.close()


def topic_in(gateway: Gateway, topic: str) -> TopicMetadata | None:
    """Return a topic whose partitions all have leaders, else None."""
    answer = gateway.fetch_metadata([TopicName(topic)], timeout_seconds=TIMEOUT)
    found = next(iter(answer.topics), None)
    return found if found and found.partitions and all(p.leader_id is not None for p in found.partitions) else None


def led_by(topic: TopicMetadata, leader: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.name, p.partition) for p in topic.partitions if p.leader_id == leader)


def settled(gateway: Gateway, topic: str) -> TopicMetadata:
    eventually(lambda: topic_in(gateway, topic), 20)
    found = topic_in(gateway, topic)
    assert found is not None
    return found


def test_given_a_topic_when_asked_by_name_then_its_partitions_leaders_and_the_brokers_are_reported(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 4)
    with gateway_of(subject) as gateway:
        topic = settled(gateway, topic_name)
        answer = gateway.fetch_metadata([TopicName(topic_name)], timeout_seconds=TIMEOUT)
    assert [p.partition for p in topic.partitions] == [0, 1, 2, 3]
    assert all(len(p.replicas) == 3 and p.leader_id in p.replicas for p in topic.partitions)
    assert {b.address for b in answer.brokers} == set(subject.addresses)
    assert [b.broker_id for b in answer.brokers] == [1, 2, 3]
    assert answer.cluster_id
    assert not answer.complete


def test_given_a_topic_when_all_are_asked_then_it_is_among_them_and_the_answer_is_complete(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 2)
    with gateway_of(subject) as gateway:
        settled(gateway, topic_name)
        answer = gateway.fetch_metadata(None, timeout_seconds=TIMEOUT)
    assert answer.complete
    assert topic_name in [t.name for t in answer.topics]


def test_given_no_such_topic_when_asked_then_it_is_unknown_and_stays_uncreated(
    subject: Subject, topic_name: str
) -> None:
    with gateway_of(subject) as gateway:
        for _ in range(3):
            answer = gateway.fetch_metadata([TopicName(topic_name)], timeout_seconds=TIMEOUT)
            assert answer.unknown_topics == (topic_name,)
            assert answer.topics == ()
        everything = gateway.fetch_metadata(None, timeout_seconds=TIMEOUT)
    assert topic_name not in [t.name for t in everything.topics]


def test_given_a_cluster_when_only_brokers_are_asked_then_no_topic_is_reported(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 1)
    with gateway_of(subject) as gateway:
        answer = gateway.fetch_metadata([], timeout_seconds=TIMEOUT)
    assert len(answer.brokers) == 3
    assert answer.topics == ()
    assert answer.unknown_topics == ()


def test_given_more_names_than_are_asked_one_by_one_then_the_answer_is_the_same(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 1)
    absent = [TopicName(f"{topic_name}-absent-{n}") for n in range(20)]
    with gateway_of(subject) as gateway:
        settled(gateway, topic_name)
        answer = gateway.fetch_metadata([TopicName(topic_name), *absent], timeout_seconds=TIMEOUT)
    assert [t.name for t in answer.topics] == [topic_name]
    assert answer.unknown_topics == tuple(sorted(absent))


def test_given_two_clients_when_both_ask_then_they_hear_one_cluster_id(subject: Subject) -> None:
    with gateway_of(subject) as one, gateway_of(subject) as other:
        ids = {g.fetch_metadata([], timeout_seconds=TIMEOUT).cluster_id for g in (one, other)}
    assert len(ids) == 1


@pytest.fixture(params=["one future a request", "another release's C layer"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is below `AdminClient.list_offsets` is not promised: without it that method itself is asked."""
    if request.param == "another release's C layer":

        def refuse(*_: object) -> None:
            raise TypeError("function takes other arguments")

        monkeypatch.setattr(confluent, "_call_below", refuse)


@pytest.mark.usefixtures("either_way")
def test_given_records_when_offsets_are_asked_then_start_and_end_are_reported(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 2)
    with gateway_of(subject) as gateway:
        settled(gateway, topic_name)
        subject.append(topic_name, 1, 7)
        tps = partitions_of(topic_name, 2)
        starts = gateway.list_offsets(tps, EARLIEST, timeout_seconds=TIMEOUT)
        ends = gateway.list_offsets(tps, LATEST, timeout_seconds=TIMEOUT)
    assert [starts[tp].offset for tp in tps] == [0, 0]
    assert [ends[tp].offset for tp in tps] == [0, 7]


def test_given_new_partitions_when_metadata_has_them_then_their_offsets_are_reported(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 3)
    with gateway_of(subject) as gateway:
        settled(gateway, topic_name)
        gateway.list_offsets(partitions_of(topic_name, 3), LATEST, timeout_seconds=TIMEOUT)
        subject.add_partitions(topic_name, 6)
        eventually(lambda: (t := topic_in(gateway, topic_name)) and len(t.partitions) == 6, 10)
        new = partitions_of(topic_name, 6)[3:]

        # A broker may tell of partitions whose leaders still create them, so the first question may come too early.
        # What must not happen is that the client answers from the leaders of before, which it keeps for 15 minutes.
        def seen() -> dict[TopicPartition, int]:
            assert topic_in(gateway, topic_name)
            offsets = gateway.list_offsets(new, LATEST, timeout_seconds=TIMEOUT)
            return {tp: o.offset for tp, o in offsets.items()}

        eventually(lambda: seen() == dict.fromkeys(new, 0), 10)


@pytest.mark.usefixtures("either_way")
def test_given_records_when_asked_by_time_then_the_first_at_or_after_it_is_reported_or_that_there_is_none(
    subject: Subject, topic_name: str
) -> None:
    only_on(subject, FakeSubject, RealSubject)
    subject.create_topic(topic_name, 1)
    tps = partitions_of(topic_name, 1)
    with gateway_of(subject) as gateway:
        settled(gateway, topic_name)
        subject.append(topic_name, 0, 3)
        first = gateway.list_offsets(tps, OffsetSpec(timestamp_milliseconds=1), timeout_seconds=TIMEOUT)
        later = gateway.list_offsets(tps, OffsetSpec(timestamp_milliseconds=2**42), timeout_seconds=TIMEOUT)
    assert first[tps[0]].offset == 0
    assert later[tps[0]].offset == NO_RECORD


@pytest.mark.usefixtures("either_way")
def test_given_a_leader_that_does_not_answer_when_asked_by_time_then_its_partitions_are_absent(
    subject: Subject, topic_name: str
) -> None:
    only_on(subject, FakeSubject, RealSubject)
    subject.create_topic(topic_name, 3, replication=1)  # a second replica may lead as soon as it is silent
    with gateway_of(subject) as gateway:
        topic = settled(gateway, topic_name)
        gateway.list_offsets(partitions_of(topic_name, 3), LATEST, timeout_seconds=TIMEOUT)
        with subject.silent(2):
            spec = OffsetSpec(timestamp_milliseconds=1)
            assert gateway.list_offsets(led_by(topic, 2), spec, timeout_seconds=1) == {}


def test_given_a_leader_that_does_not_answer_when_asked_then_its_partitions_are_absent_and_time_is_bounded(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 3, replication=1)  # a second replica may lead as soon as it is silent
    with gateway_of(subject) as gateway:
        topic = settled(gateway, topic_name)
        gateway.list_offsets(partitions_of(topic_name, 3), LATEST, timeout_seconds=TIMEOUT)
        with subject.silent(2):
            started = time.monotonic()
            dead = gateway.list_offsets(led_by(topic, 2), LATEST, timeout_seconds=1)
            took = time.monotonic() - started
            living = gateway.list_offsets(led_by(topic, 1), LATEST, timeout_seconds=TIMEOUT)
    assert dead == {}
    assert took < LATE
    assert set(living) == set(led_by(topic, 1)) != set()
    assert all(seen.offset >= 0 for seen in living.values())


def test_given_a_partition_without_leader_when_asked_then_it_is_listed_without_one_and_has_no_offset(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 3, replication=1)
    with gateway_of(subject) as gateway:
        topic = settled(gateway, topic_name)
        (dead, *_), (alive, *_) = led_by(topic, 3), led_by(topic, 1)
        with subject.leaderless(topic_name, dead.partition, 3):
            answer = gateway.fetch_metadata([topic.name], timeout_seconds=TIMEOUT)
            leaders = {p.partition: p.leader_id for p in answer.topics[0].partitions}
            seen = gateway.list_offsets([dead], LATEST, timeout_seconds=1)
            others = gateway.list_offsets([alive], LATEST, timeout_seconds=TIMEOUT)
            mixed = gateway.list_offsets([dead, alive], LATEST, timeout_seconds=1)
    assert set(mixed) <= {alive}
    assert len(leaders) == 3
    assert leaders[dead.partition] is None
    assert leaders[alive.partition] == 1
    assert seen == {}
    assert set(others) == {alive}


def test_given_a_recreated_topic_when_ids_are_asked_then_it_has_another_id(subject: Subject, topic_name: str) -> None:
    only_on(subject, FakeSubject, RealSubject)
    name = TopicName(topic_name)
    subject.create_topic(topic_name, 1)
    with gateway_of(subject) as gateway:
        settled(gateway, topic_name)
        before = gateway.describe_topic_ids([name], timeout_seconds=TIMEOUT)
        subject.delete_topic(topic_name)
        subject.create_topic(topic_name, 1)
        settled(gateway, topic_name)
        after: dict[TopicName, TopicId] = {}

        def is_answer() -> bool:  # a broker that lags behind tells the former id, or none
            after.clear()
            after.update(gateway.describe_topic_ids([name, TopicName("no-such-topic")], timeout_seconds=TIMEOUT))
            return after.get(name, before[name]) != before[name]

        eventually(is_answer, 10)
    assert set(before) == set(after) == {topic_name}
    assert not set(after[name]) & set("+/="), "Kafka writes ids in base64 for URLs"


def test_given_only_unknown_topics_when_ids_are_asked_then_the_answer_is_empty(subject: Subject) -> None:
    with gateway_of(subject) as gateway:
        assert gateway.describe_topic_ids([TopicName("no-such-topic")], timeout_seconds=TIMEOUT) == {}


def test_given_a_committed_offset_when_asked_then_it_is_reported_and_partitions_without_one_are_absent(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 2)
    tps = partitions_of(topic_name, 2)
    with gateway_of(subject) as gateway:
        settled(gateway, topic_name)
        # A group nobody knows, on a coordinator that may still be loading, is where the admin call would crash.
        assert gateway.committed_offsets(f"{topic_name}-new", tps, timeout_seconds=20) == {}
        subject.append(topic_name, 1, 5)
        subject.commit_offset(topic_name, tps[1], 5)
        assert gateway.committed_offsets(topic_name, tps, timeout_seconds=20) == {tps[1]: 5}


def test_given_offsets_committed_when_asked_then_they_are_reported_whichever_way_they_moved(
    subject: Subject, topic_name: str
) -> None:
    subject.create_topic(topic_name, 2)
    tps = partitions_of(topic_name, 2)
    with gateway_of(subject) as gateway:
        settled(gateway, topic_name)
        gateway.commit_offsets(topic_name, {tps[0]: 3, tps[1]: 4}, timeout_seconds=20)
        assert gateway.committed_offsets(topic_name, tps, timeout_seconds=20) == {tps[0]: 3, tps[1]: 4}
        gateway.commit_offsets(topic_name, {tps[0]: 1}, timeout_seconds=20)
        assert gateway.committed_offsets(topic_name, tps, timeout_seconds=20) == {tps[0]: 1, tps[1]: 4}


def test_given_a_partition_that_does_not_exist_when_committed_then_it_is_an_error_and_the_others_are_taken(
    subject: Subject, topic_name: str
) -> None:
    only_on(subject, FakeSubject, RealSubject)
    subject.create_topic(topic_name, 1)
    tps = partitions_of(topic_name, 2)
    with gateway_of(subject) as gateway:
        settled(gateway, topic_name)
        with pytest.raises(GatewayError) as caught:
            gateway.commit_offsets(topic_name, {tps[0]: 3, tps[1]: 4}, timeout_seconds=20)
        assert caught.value.kind is FailureKind.TOPIC_UNKNOWN
        assert gateway.committed_offsets(topic_name, tps[:1], timeout_seconds=20) == {tps[0]: 3}


def test_given_a_group_with_members_when_offsets_are_committed_from_outside_then_it_refuses(
    subject: Subject, topic_name: str
) -> None:
    only_on(subject, RealSubject)
    assert isinstance(subject, RealSubject)
    subject.create_topic(topic_name, 1)
    member = Consumer({"bootstrap.servers": subject.kafka.bootstrap_servers, "group.id": topic_name, "log_level": 0})
    try:
        member.subscribe([topic_name])
        eventually(lambda: member.poll(0.1) or member.assignment(), 30, "the member's assignment")
        with gateway_of(subject) as gateway:
            settled(gateway, topic_name)
            with pytest.raises(GatewayError, match="has members of its own"):
                gateway.commit_offsets(topic_name, {partitions_of(topic_name, 1)[0]: 1}, timeout_seconds=20)
    finally:
        member.close()


def test_given_nothing_to_ask_then_nothing_is_asked(subject: Subject) -> None:
    with gateway_of(subject) as gateway:
        pass
    assert gateway.list_offsets([], LATEST, timeout_seconds=TIMEOUT) == {}
    assert gateway.describe_topic_ids([], timeout_seconds=TIMEOUT) == {}
    assert gateway.committed_offsets("g", [], timeout_seconds=TIMEOUT) == {}
    gateway.commit_offsets("g", {}, timeout_seconds=TIMEOUT)


def test_given_a_closed_client_when_asked_then_it_fails_in_one_way(subject: Subject) -> None:
    with gateway_of(subject) as gateway:
        gateway.fetch_metadata([], timeout_seconds=TIMEOUT)
    gateway.close()
    with pytest.raises(GatewayError) as caught:
        gateway.fetch_metadata([], timeout_seconds=TIMEOUT)
    assert caught.value.kind is FailureKind.TRANSIENT


def test_given_an_answer_without_brokers_then_it_is_a_failure_of_its_own_kind(subject: Subject) -> None:
    only_on(subject, FakeSubject, MockSubject)
    with gateway_of(subject) as gateway:
        gateway.fetch_metadata([], timeout_seconds=TIMEOUT)
        for broker_id in (1, 2, 3):
            if isinstance(subject, MockSubject):
                subject.mock.call("broker_remove_from_metadata", broker_id)
            elif isinstance(subject, FakeSubject):
                subject.cluster.answer_empty(broker_id)
        with pytest.raises(GatewayError) as caught:
            gateway.fetch_metadata([], timeout_seconds=TIMEOUT)
    assert caught.value.kind is FailureKind.EMPTY


@pytest.mark.parametrize("fault", [refused_port, black_hole, accept_and_hang])
def test_given_nobody_who_answers_then_every_call_ends_in_time(fault: object) -> None:
    factory = ConfluentGatewayFactory(map_client_options({}), Policy())
    with fault() as address:  # type: ignore[operator]
        gateway = factory([BrokerAddress.parse(address), BrokerAddress.parse(UNRESOLVABLE)])
        tps = partitions_of("t", 1)
        assert _failed_after(lambda: gateway.fetch_metadata([], timeout_seconds=1)) < LATE
        assert _failed_after(lambda: gateway.fetch_metadata(None, timeout_seconds=1)) < LATE
        assert _failed_after(lambda: gateway.describe_topic_ids([tps[0].topic], timeout_seconds=1)) < LATE
        assert _failed_after(lambda: gateway.committed_offsets("g", tps, timeout_seconds=1)) < LATE
        assert _failed_after(lambda: gateway.commit_offsets("g", dict.fromkeys(tps, 1), timeout_seconds=1)) < LATE
        assert _failed_after(lambda: gateway.list_offsets(tps, LATEST, timeout_seconds=1)) < LATE
        gateway.close()


def _failed_after(ask: object) -> float:
    started = time.monotonic()
    with pytest.raises(GatewayError) as caught:
        ask()  # type: ignore[operator]
    assert caught.value.kind is FailureKind.TRANSIENT
    return time.monotonic() - started


def test_given_an_option_that_librdkafka_refuses_then_the_message_names_it() -> None:
    options = map_client_options({"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "/no"})
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location"):
        ConfluentGatewayFactory(options, Policy())([BrokerAddress("localhost", 9)])


def test_given_thousands_of_partitions_and_no_time_when_the_client_is_let_go_then_the_process_lives() -> None:
    seen = subprocess.run(
        [sys.executable, "-m", "tests.support.fakes.many_partitions"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (seen.returncode, seen.stdout) == (0, "lived\n"), seen.stderr[-2000:]
