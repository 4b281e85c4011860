"""The three kinds of Kafka the contract is checked on, behind one interface for tests."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RawTopicPartition

from discovery.config.client.options import map_client_options
from discovery.core.model import BrokerAddress, TopicName, TopicPartition, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.kafka.base import GatewayFactory, Vetter
from discovery.kafka.confluent import ConfluentGatewayFactory
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from discovery.localkafka.cluster import LocalKafka
from tests.support.fakes.cluster import FakeCluster, FakeNetwork, Health
from tests.support.fakes.gateway import FakeGatewayFactory, FakeVetter
from tests.support.fakes.mock_cluster import MockCluster
from tests.support.helpers import commit, produce


class Subject(Protocol):
    """A cluster of three brokers with ids 1..3, what asks it, and what can happen to it."""

    factory: GatewayFactory
    vetter: Vetter
    addresses: tuple[BrokerAddress, ...]

    def create_topic(self, topic: str, partitions: int, replication: int = 3) -> None: ...

    def add_partitions(self, topic: str, to: int) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def append(self, topic: str, partition: int, records: int) -> None: ...

    def commit_offset(self, group: str, tp: TopicPartition, offset: int) -> None: ...

    def silent(self, broker_id: int) -> AbstractContextManager[None]:
        """Within it, the broker does not answer while the cluster still names it as leader."""
        ...

    def leaderless(self, topic: str, partition: int, leader: int) -> AbstractContextManager[None]:
        """Within it, the partition of a topic without other replicas has no leader."""
        ...


def _real_parts() -> tuple[GatewayFactory, Vetter]:
    options, policy = map_client_options({}), Policy()
    return ConfluentGatewayFactory(options, policy), LibrdkafkaVetter(options, policy)


class FakeSubject:
    """The cluster in memory."""

    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.cluster = FakeCluster(self.network)
        self.factory: GatewayFactory = FakeGatewayFactory(self.network)
        self.vetter: Vetter = FakeVetter(self.network)
        self.addresses = tuple(self.cluster.addresses.values())

    def create_topic(self, topic: str, partitions: int, replication: int = 3) -> None:
        self.cluster.create_topic(topic, partitions, replication=replication)

    def add_partitions(self, topic: str, to: int) -> None:
        self.cluster.add_partitions(topic, to)

    def delete_topic(self, topic: str) -> None:
        self.cluster.delete_topic(topic)

    def append(self, topic: str, partition: int, records: int) -> None:
        self.cluster.append(topic, partition, records)

    def commit_offset(self, group: str, tp: TopicPartition, offset: int) -> None:
        self.cluster.committed[group, tp] = offset

    @contextmanager
    def silent(self, broker_id: int) -> Iterator[None]:
        self.cluster.silence(broker_id)
        yield
        self.cluster.silence(broker_id, Health.UP)

    @contextmanager
    def leaderless(self, topic: str, partition: int, leader: int) -> Iterator[None]:
        self.cluster.kill(leader)
        yield
        self.cluster.revive(leader)


class MockSubject:
    """librdkafka's mock cluster."""

    def __init__(self, mock: MockCluster) -> None:
        self.mock = mock
        self.factory, self.vetter = _real_parts()
        self.addresses = parse_bootstrap_servers(mock.bootstrap_servers)
        mock.call("set_controller_id", 1)

    def create_topic(self, topic: str, partitions: int, replication: int = 3) -> None:
        self.mock.call("topic_create", topic, partitions, replication)
        for partition in range(partitions if replication == len(self.addresses) else 0):
            # Else it draws lots, and some broker may lead nothing.
            self.mock.call("partition_set_leader", topic, partition, partition % replication + 1)

    def add_partitions(self, topic: str, to: int) -> None:
        self.delete_topic(topic)
        self.create_topic(topic, to)

    def delete_topic(self, topic: str) -> None:
        self.mock.call("topic_delete", topic)

    def append(self, topic: str, partition: int, records: int) -> None:
        produce(self.mock.bootstrap_servers, topic, *["x"] * records, partition=partition)

    def commit_offset(self, group: str, tp: TopicPartition, offset: int) -> None:
        _commit(self.mock.bootstrap_servers, group, tp, offset)

    @contextmanager
    def silent(self, broker_id: int) -> Iterator[None]:
        self.mock.call("broker_set_down", broker_id)
        yield
        self.mock.call("broker_set_up", broker_id)

    @contextmanager
    def leaderless(self, topic: str, partition: int, leader: int) -> Iterator[None]:
        self.mock.call("partition_set_leader", topic, partition, -1)
        yield
        self.mock.call("partition_set_leader", topic, partition, leader)


class RealSubject:
    """Three real brokers."""

    def __init__(self, kafka: LocalKafka) -> None:
        self.kafka = kafka
        self.factory, self.vetter = _real_parts()
        self.addresses = parse_bootstrap_servers(kafka.bootstrap_servers)

    def create_topic(self, topic: str, partitions: int, replication: int = 3) -> None:
        self.kafka.create_topic(topic, partitions, replication)

    def add_partitions(self, topic: str, to: int) -> None:
        self.kafka.add_partitions(topic, to)

    def delete_topic(self, topic: str) -> None:
        self.kafka.delete_topic(topic)

    def append(self, topic: str, partition: int, records: int) -> None:
        produce(self.kafka.bootstrap_servers, topic, *["x"] * records, partition=partition)

    def commit_offset(self, group: str, tp: TopicPartition, offset: int) -> None:
        _commit(self.kafka.bootstrap_servers, group, tp, offset)

    @contextmanager
    def silent(self, broker_id: int) -> Iterator[None]:
        self.kafka.pause([broker_id])
        try:
            yield
        finally:
            self.kafka.resume([broker_id])
            self.kafka.wait_registered([broker_id])

    @contextmanager
    def leaderless(self, topic: str, partition: int, leader: int) -> Iterator[None]:
        self.kafka.kill([leader])
        try:
            self.kafka.wait_registered([leader], registered=False)
            yield
        finally:
            self.kafka.restart([leader])


def _commit(bootstrap_servers: str, group: str, tp: TopicPartition, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        commit(consumer, RawTopicPartition(tp.topic, tp.partition, offset))
    finally:
        consumer.close()


def partitions_of(topic: str, count: int) -> tuple[TopicPartition, ...]:
    """Return the first `count` partitions of a topic."""
    return tuple(TopicPartition(TopicName(topic), index) for index in range(count))


def only_on(subject: Subject, *kinds: type) -> None:
    """Skip where this kind of Kafka cannot show the case."""
    if not isinstance(subject, kinds):
        pytest.skip(f"{type(subject).__name__} cannot show this")
