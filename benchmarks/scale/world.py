"""Clusters that exist as numbers: who answers, how long an answer takes, and how often anybody was asked.

Gateway and vetter answer as those of `discovery.kafka` do, in simulated time: `spent` says how long the call took.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from discovery.core.answers import MetadataAnswer, ProbeOutcome
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    ClusterId,
    Isolation,
    PartitionMetadata,
    TopicId,
    TopicMetadata,
    TopicName,
    TopicPartition,
    Verdict,
)
from discovery.kafka.base import OffsetAndEpoch, OffsetSpec

ROUND_TRIP_SECONDS = 0.002
OFFSETS_IN_A_REQUEST = 500
"""docs/decisions/0014-offsets-in-parts.md"""
_RECORDS_PER_SECOND = 100


@dataclass(slots=True)
class Asked:
    """Requests by second and kind: `connect`, `metadata`, `offsets`, `topic ids`."""

    now: Callable[[], float]
    by_second: dict[int, Counter[str]] = field(default_factory=dict)
    work: Counter[str] = field(default_factory=Counter)
    """What the client library would have done in all, as `client.measured_costs` names it."""

    def note(self, kind: str, number: int = 1) -> None:
        """Count requests of this moment."""
        self.by_second.setdefault(int(self.now()), Counter())[kind] += number


class SimCluster:
    """Brokers 1..n, topics with partitions led in turn, all with three replicas; `up` is false while all are silent."""

    def __init__(self, name: str, *, brokers: int, topics: int, partitions: int, asked: Asked) -> None:
        """Make the one answer that every broker gives."""
        self.asked = asked
        self.up = True
        self.brokers = tuple(
            Broker(broker_id=BrokerId(number), address=BrokerAddress(f"{name}-b{number}", 9092))
            for number in range(1, brokers + 1)
        )
        self.answer = MetadataAnswer(
            cluster_id=ClusterId(name),
            brokers=self.brokers,
            topics=tuple(_topic(f"{name}-t{number}", partitions, brokers) for number in range(topics)),
            complete=True,
            controller_id=BrokerId(1),
        )
        self._narrowed: dict[tuple[TopicName, ...], MetadataAnswer] = {}

    @property
    def addresses(self) -> tuple[BrokerAddress, ...]:
        """Where its brokers listen."""
        return tuple(broker.address for broker in self.brokers)

    def narrowed(self, topics: Collection[TopicName] | None) -> MetadataAnswer:
        """Return the answer to a question about some topics, or all."""
        if topics is None:
            return self.answer
        key = tuple(topics)
        if key not in self._narrowed:
            kept = tuple(topic for topic in self.answer.topics if topic.name in set(key))
            self._narrowed[key] = MetadataAnswer(
                cluster_id=self.answer.cluster_id, brokers=self.brokers, topics=kept, controller_id=BrokerId(1)
            )
        return self._narrowed[key]


def _topic(name: str, partitions: int, brokers: int) -> TopicMetadata:
    def one(index: int) -> PartitionMetadata:
        replicas = tuple(BrokerId((index + shift) % brokers + 1) for shift in range(min(3, brokers)))
        return PartitionMetadata(partition=index, leader_id=replicas[0], replicas=replicas, in_sync=replicas)

    return TopicMetadata(name=TopicName(name), partitions=tuple(map(one, range(partitions))))


class SimGateway:
    """See `Gateway`: what the loop asks; nothing else is."""

    def __init__(self, cluster: SimCluster) -> None:
        """Ask nobody yet."""
        self._cluster = cluster
        self.spent = 0.0
        """Simulated seconds that calls took since this was set to 0."""

    def _reach(self, kind: str, timeout_seconds: float, requests: int = 1) -> None:
        self._cluster.asked.note(kind, requests)
        if not self._cluster.up:
            self.spent += timeout_seconds
            raise GatewayError(FailureKind.TRANSIENT, f"no answer within {timeout_seconds:g} s")
        self.spent += ROUND_TRIP_SECONDS

    def fetch_metadata(self, topics: Collection[TopicName] | None, *, timeout_seconds: float) -> MetadataAnswer:
        """See `Gateway.fetch_metadata`."""
        self._reach("metadata", timeout_seconds)
        answer = self._cluster.narrowed(topics)
        self._cluster.asked.work["partition described"] += sum(len(topic.partitions) for topic in answer.topics)
        return answer

    def describe_topic_ids(
        self, topics: Collection[TopicName], *, timeout_seconds: float
    ) -> Mapping[TopicName, TopicId]:
        """See `Gateway.describe_topic_ids`."""
        self._reach("topic ids", timeout_seconds)
        return {name: TopicId(name) for name in topics}

    def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,  # noqa: ARG002 - both ends are the same here
        timeout_seconds: float,
    ) -> Mapping[TopicPartition, OffsetAndEpoch]:
        """See `Gateway.list_offsets`: every partition grows all the time."""
        requests = -(-len(partitions) // OFFSETS_IN_A_REQUEST)
        self._reach("offsets", timeout_seconds, requests)
        self._cluster.asked.work.update({"end": len(partitions), "offsets request": requests})
        end = OffsetAndEpoch(int(self._cluster.asked.now() * _RECORDS_PER_SECOND) if spec.latest else 0, 0)
        return dict.fromkeys(partitions, end)

    def close(self) -> None:
        """See `Gateway.close`."""

    def _never(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("a loop does not ask for this")

    committed_offsets = commit_offsets = min_in_sync = roles = groups = _never


@dataclass(frozen=True, slots=True)
class SimVetter:
    """See `Vetter`."""

    cluster: SimCluster
    spend: Callable[[float], None]
    """Told before each outcome how long it took."""

    def vet(
        self,
        addresses: Collection[BrokerAddress],
        *,
        connect_timeout_seconds: float,
        request_timeout_seconds: float,  # noqa: ARG002 - a silent one does not even accept
        full: Collection[BrokerAddress] = (),
        on_outcome: Callable[[ProbeOutcome], None],
    ) -> None:
        """See `Vetter.vet`."""
        self.cluster.asked.note("connect", len(addresses))
        if self.cluster.up:
            self.cluster.asked.note("metadata", len(full))
        self.cluster.asked.work.update({"knock": len(addresses), "proof": len(full)})
        self.spend(ROUND_TRIP_SECONDS if self.cluster.up else connect_timeout_seconds)
        for address in addresses:
            on_outcome(self._outcome(address, proved=address in full))

    def _outcome(self, address: BrokerAddress, *, proved: bool) -> ProbeOutcome:
        if not self.cluster.up:
            return ProbeOutcome(address=address, failure=Verdict.SILENT, detail="no answer to a connection")
        if not proved:
            return ProbeOutcome(address=address, tcp_only=True)
        return ProbeOutcome(address=address, cluster_id=self.cluster.answer.cluster_id, brokers=self.cluster.brokers)


def bootstrap_list(cluster: SimCluster, length: int) -> Sequence[BrokerAddress]:
    """Return the list a user would write: some of the brokers."""
    return cluster.addresses[:length]
