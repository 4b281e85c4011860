"""A Kafka cluster in memory; `gateway.py` answers from it. Deterministic; time is a `FakeClock`.

Several `FakeCluster`s share one `FakeNetwork`, so that an address can come to belong to another cluster.
Records are counts, not contents.
"""

import base64
import itertools
from dataclasses import dataclass, field
from enum import Enum

from discovery.core.answers import MetadataAnswer
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    ClusterId,
    PartitionMetadata,
    TopicId,
    TopicMetadata,
    TopicName,
    TopicPartition,
    Verdict,
)
from tests.support.fakes.clock import FakeClock

_numbers = itertools.count(1)


class Health(Enum):
    """What a broker's address does."""

    UP = "answers"
    FROZEN = "accepts and never answers"
    DEAD = "refuses"


@dataclass(slots=True)
class FakePartition:
    """One partition; `leader` None while no replica in sync is up."""

    replicas: tuple[int, ...]
    leader: int | None
    epoch: int = 0
    start: int = 0
    end: int = 0
    stable: int | None = None
    """Last stable offset, where a transaction is open."""
    timestamps: list[tuple[int, int]] = field(default_factory=list)
    """(milliseconds, offset of the first record written then)."""


@dataclass(slots=True)
class FakeTopic:
    """A topic and its id."""

    topic_id: TopicId
    partitions: list[FakePartition]


class FakeNetwork:
    """Who answers at which address: the only thing clusters share."""

    def __init__(self) -> None:
        """Begin with no address in use."""
        self.clock = FakeClock()
        self.owners: dict[BrokerAddress, tuple[FakeCluster, int]] = {}
        self.failures: dict[BrokerAddress, Verdict] = {}
        """Addresses that end every probe in this way, whoever owns them (NOT_KAFKA, AUTH_FAILED, …)."""

    def asked(self, address: BrokerAddress) -> tuple["FakeCluster", int] | None:
        """Return who would answer there."""
        return self.owners.get(address)


class FakeCluster:
    """Brokers, topics, and what can happen to them."""

    def __init__(
        self, network: FakeNetwork, *, brokers: int = 3, cluster_id: str = "cluster-a", first_port: int = 9092
    ) -> None:
        """Start `brokers` brokers with ids 1..n, none of them in trouble."""
        self.network = network
        self.cluster_id = ClusterId(cluster_id)
        self.health: dict[int, Health] = {}
        self.addresses: dict[int, BrokerAddress] = {}
        self.listed: set[int] = set()
        self.topics: dict[TopicName, FakeTopic] = {}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self._first_port = first_port
        self._stale: dict[int, MetadataAnswer] = {}
        self._empty: set[int] = set()
        for broker_id in range(1, brokers + 1):
            self.add_broker(broker_id)

    # -- what happens to brokers --------------------------------------------------------------------------------

    def add_broker(self, broker_id: int) -> BrokerAddress:
        """Start a new broker under an address of its own."""
        address = BrokerAddress(f"{self.cluster_id}-b{broker_id}", self._first_port)
        self.health[broker_id], self.addresses[broker_id] = Health.UP, address
        self.listed.add(broker_id)
        self.network.owners[address] = (self, broker_id)
        return address

    def kill(self, broker_id: int) -> None:
        """End a broker: connections are refused, it leaves the metadata, its leaders move."""
        self._fail(broker_id, Health.DEAD)

    def freeze(self, broker_id: int) -> None:
        """Stop a broker's process: connections are accepted, nothing is answered; its leaders move."""
        self._fail(broker_id, Health.FROZEN)

    def silence(self, broker_id: int, health: Health = Health.FROZEN) -> None:
        """Make a broker fail without the cluster noticing yet: it stays listed and keeps its leaders."""
        self.health[broker_id] = health

    def revive(self, broker_id: int) -> None:
        """Bring a broker back under its address; leaderless partitions it holds get it as leader."""
        self.health[broker_id] = Health.UP
        self.listed.add(broker_id)
        self.network.owners[self.addresses[broker_id]] = (self, broker_id)
        self._stale.pop(broker_id, None)
        self._elect()

    def remove(self, broker_id: int) -> None:
        """Take a broker out of the metadata while it keeps answering: drained, or cut off from the controller."""
        self.listed.discard(broker_id)
        self._elect()

    def make_foreign(self, broker_id: int, other: "FakeCluster", other_broker: int = 1) -> None:
        """Give the broker's address to another cluster's broker."""
        self.kill(broker_id)
        self.network.owners[self.addresses[broker_id]] = (other, other_broker)

    def answer_stale(self, broker_id: int) -> None:
        """Let one broker repeat from now on what the metadata is at this moment."""
        self._stale[broker_id] = self.image()

    def answer_empty(self, broker_id: int, *, empty: bool = True) -> None:
        """Let one broker answer without any broker in it."""
        (self._empty.add if empty else self._empty.discard)(broker_id)

    def _fail(self, broker_id: int, health: Health) -> None:
        self.health[broker_id] = health
        self.listed.discard(broker_id)
        self._elect()

    def _elect(self) -> None:
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader is None or not self._may_lead(partition.leader):
                    leader = next((r for r in partition.replicas if self._may_lead(r)), None)
                    partition.epoch += leader is not None
                    partition.leader = leader

    def _may_lead(self, broker_id: int) -> bool:
        return broker_id in self.listed and self.health[broker_id] is Health.UP

    # -- what happens to topics ---------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int = 3, *, replication: int = 3) -> None:
        """Create a topic with a new id."""
        identity = base64.urlsafe_b64encode(next(_numbers).to_bytes(16, "big")).decode().rstrip("=")
        self.topics[TopicName(topic)] = FakeTopic(TopicId(identity), [])
        self.add_partitions(topic, partitions, replication=replication)

    def add_partitions(self, topic: str, to: int, *, replication: int = 3) -> None:
        """Grow a topic to `to` partitions."""
        ids = sorted(self.listed) or sorted(self.health)
        existing = self.topics[TopicName(topic)].partitions
        for index in range(len(existing), to):
            replicas = tuple(ids[(index + shift) % len(ids)] for shift in range(min(replication, len(ids))))
            existing.append(FakePartition(replicas, next((r for r in replicas if self._may_lead(r)), None)))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        del self.topics[TopicName(topic)]

    def recreate_topic(self, topic: str, partitions: int = 3, *, replication: int = 3) -> None:
        """Delete a topic and create it again: same name, new id, no records."""
        self.delete_topic(topic)
        self.create_topic(topic, partitions, replication=replication)

    def append(self, topic: str, partition: int, records: int = 1) -> None:
        """Write records, stamped with the clock of this moment."""
        found = self.partition(TopicPartition(TopicName(topic), partition))
        found.timestamps.append((round(self.network.clock.wall() * 1_000), found.end))
        found.end += records

    def partition(self, tp: TopicPartition) -> FakePartition:
        """Return a partition that exists."""
        return self.topics[tp.topic].partitions[tp.partition]

    # -- what it says -------------------------------------------------------------------------------------------

    def image(self) -> MetadataAnswer:
        """Return the whole truth as metadata."""
        return MetadataAnswer(
            cluster_id=self.cluster_id,
            brokers=tuple(Broker(broker_id=BrokerId(i), address=self.addresses[i]) for i in sorted(self.listed)),
            topics=tuple(self._described(name) for name in sorted(self.topics)),
            complete=True,
            controller_id=BrokerId(min(self.listed)) if self.listed else None,
        )

    def reported_by(self, broker_id: int) -> MetadataAnswer:
        """Return what this broker says, true or not.

        Raises:
            GatewayError: it answers without brokers (EMPTY).
        """
        answer = self._stale.get(broker_id) or self.image()
        if broker_id in self._empty or not answer.brokers:
            raise GatewayError(FailureKind.EMPTY, "the metadata answer holds no broker")
        return answer

    def _described(self, name: TopicName) -> TopicMetadata:
        return TopicMetadata(
            name=name,
            partitions=tuple(
                PartitionMetadata(
                    partition=index,
                    leader_id=None if p.leader is None else BrokerId(p.leader),
                    replicas=tuple(BrokerId(r) for r in p.replicas),
                    in_sync=tuple(BrokerId(r) for r in p.replicas if self._may_lead(r)),
                )
                for index, p in enumerate(self.topics[name].partitions)
            ),
        )
