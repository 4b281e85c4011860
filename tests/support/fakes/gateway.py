"""Gateway, factory and vetter over a `FakeCluster`. Nothing sleeps: waiting for a silent broker advances the clock."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from discovery.core.answers import MetadataAnswer, ProbeOutcome
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, BrokerId, Isolation, TopicId, TopicName, TopicPartition, Verdict
from discovery.kafka.base import NO_RECORD, OffsetAndEpoch, OffsetSpec
from tests.support.fakes.cluster import FakeCluster, FakeNetwork, FakePartition, Health


class FakeGateway:
    """See `Gateway`: asks the first bootstrap address that answers, then learned ones, as librdkafka would."""

    def __init__(self, network: FakeNetwork, bootstrap: Sequence[BrokerAddress]) -> None:
        """Remember the list; ask nobody yet."""
        self.network = network
        self.bootstrap = tuple(bootstrap)
        self.closed = False
        self._known = list(self.bootstrap)

    def fetch_metadata(self, topics: Collection[TopicName] | None, *, timeout_seconds: float) -> MetadataAnswer:
        """See `Gateway.fetch_metadata`."""
        cluster, broker_id = self._reach(timeout_seconds)
        answer = replace(cluster.reported_by(broker_id), answered_by=BrokerId(broker_id))
        self._known = [*dict.fromkeys((*self._known, *(b.address for b in answer.brokers)))]
        if topics is None:
            return answer
        wanted = frozenset(topics)
        kept = tuple(t for t in answer.topics if t.name in wanted)
        return MetadataAnswer(
            cluster_id=answer.cluster_id,
            brokers=answer.brokers,
            topics=kept,
            unknown_topics=tuple(sorted(wanted - {t.name for t in kept})),
            controller_id=answer.controller_id,
            answered_by=answer.answered_by,
        )

    def describe_topic_ids(
        self, topics: Collection[TopicName], *, timeout_seconds: float
    ) -> Mapping[TopicName, TopicId]:
        """See `Gateway.describe_topic_ids`."""
        if not topics:
            return {}
        cluster, _ = self._reach(timeout_seconds)
        return {name: cluster.topics[name].topic_id for name in topics if name in cluster.topics}

    def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_seconds: float,
    ) -> Mapping[TopicPartition, OffsetAndEpoch]:
        """See `Gateway.list_offsets`: one leader that does not answer costs the whole timeout."""
        if not partitions:
            return {}
        cluster, _ = self._reach(timeout_seconds)
        found: dict[TopicPartition, OffsetAndEpoch] = {}
        waited = False
        for tp in partitions:
            topic = cluster.topics.get(tp.topic)
            if topic is None or tp.partition >= len(topic.partitions):
                continue
            partition = topic.partitions[tp.partition]
            if partition.leader is None or cluster.health[partition.leader] is not Health.UP:
                waited = True
                continue
            found[tp] = OffsetAndEpoch(_offset(partition, spec, isolation), partition.epoch)
        if waited:
            self.network.clock.advance(timeout_seconds)
        return found

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], *, timeout_seconds: float
    ) -> Mapping[TopicPartition, int]:
        """See `Gateway.committed_offsets`."""
        if not partitions:
            return {}
        cluster, _ = self._reach(timeout_seconds)
        return {tp: cluster.committed[group, tp] for tp in partitions if (group, tp) in cluster.committed}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_seconds: float) -> None:
        """See `Gateway.commit_offsets`."""
        if not offsets:
            return
        cluster, _ = self._reach(timeout_seconds)
        there = {tp for tp in offsets if (t := cluster.topics.get(tp.topic)) and tp.partition < len(t.partitions)}
        cluster.committed |= {(group, tp): offsets[tp] for tp in there}
        if there != offsets.keys():
            raise GatewayError(FailureKind.TOPIC_UNKNOWN, "unknown topic or partition")

    def min_in_sync(self, topics: Collection[TopicName], *, timeout_seconds: float) -> Mapping[TopicName, int]:
        """See `Gateway.min_in_sync`: one, as brokers have it by default."""
        cluster, _ = self._reach(timeout_seconds)
        return {name: 1 for name in topics if name in cluster.topics}

    def voters(
        self, brokers: Collection[BrokerId], *, timeout_seconds: float
    ) -> Mapping[BrokerId, frozenset[BrokerId]]:
        """See `Gateway.voters`: none of them is a controller too."""
        cluster, _ = self._reach(timeout_seconds)
        return {one: frozenset() for one in brokers if cluster.health.get(one) is Health.UP}

    def groups(self, *, timeout_seconds: float) -> tuple[str, ...]:
        """See `Gateway.groups`."""
        cluster, _ = self._reach(timeout_seconds)
        return tuple(sorted({group for group, _ in cluster.committed}))

    def close(self) -> None:
        """See `Gateway.close`."""
        self.closed = True

    def _reach(self, timeout_seconds: float) -> tuple[FakeCluster, int]:
        """Return the first that answers; connecting is parallel, so dead ones cost nothing while one lives."""
        if self.closed:
            raise GatewayError(FailureKind.TRANSIENT, "the client is closed")
        for address in self._known:
            owner = self.network.asked(address)
            if owner and address not in self.network.failures and owner[0].health[owner[1]] is Health.UP:
                return owner
        self.network.clock.advance(timeout_seconds)
        kinds = {Verdict.AUTH_FAILED: FailureKind.AUTH, Verdict.TLS_FAILED: FailureKind.TLS}
        seen = [kinds[v] for a in self._known if (v := self.network.failures.get(a)) in kinds]
        raise GatewayError(seen[0] if seen else FailureKind.TRANSIENT, f"no answer within {timeout_seconds:g} s")


def _offset(partition: FakePartition, spec: OffsetSpec, isolation: Isolation) -> int:
    if spec.latest:
        open_transaction = isolation is Isolation.READ_COMMITTED and partition.stable is not None
        return (partition.stable or 0) if open_transaction else partition.end
    if spec.timestamp_milliseconds is None:
        return partition.start
    wanted = spec.timestamp_milliseconds
    found = (offset for at, offset in partition.timestamps if at >= wanted and offset >= partition.start)
    return next(found, NO_RECORD)


@dataclass(frozen=True, slots=True)
class FakeGatewayFactory:
    """See `GatewayFactory`; keeps what it made."""

    network: FakeNetwork
    made: list[FakeGateway] = field(default_factory=list)

    def __call__(self, bootstrap: Sequence[BrokerAddress]) -> FakeGateway:
        """See `GatewayFactory.__call__`."""
        self.made.append(FakeGateway(self.network, bootstrap))
        return self.made[-1]


@dataclass(frozen=True, slots=True)
class FakeVetter:
    """See `Vetter`: outcomes in the given order; the clock moves once, by what the slowest would cost."""

    network: FakeNetwork

    def vet(
        self,
        addresses: Collection[BrokerAddress],
        *,
        connect_timeout_seconds: float,
        request_timeout_seconds: float,
        full: Collection[BrokerAddress] = (),
        on_outcome: Callable[[ProbeOutcome], None],
    ) -> None:
        """See `Vetter.vet`."""
        outcomes = [self._probe(address, full=address in full) for address in dict.fromkeys(addresses)]
        for outcome in outcomes:
            on_outcome(outcome)
        if any(outcome.failure is Verdict.SILENT for outcome in outcomes):
            self.network.clock.advance(connect_timeout_seconds)

    def _probe(self, address: BrokerAddress, *, full: bool) -> ProbeOutcome:
        failure = self.network.failures.get(address)
        owner = self.network.asked(address)
        if failure in (Verdict.REFUSED, Verdict.SILENT, Verdict.UNRESOLVABLE) or (failure and full):
            return ProbeOutcome(address=address, failure=failure, detail="by order of the test")
        if owner is None:
            return ProbeOutcome(address=address, failure=Verdict.UNRESOLVABLE, detail="no such name")
        if owner[0].health[owner[1]] is Health.DEAD:
            return ProbeOutcome(address=address, failure=Verdict.REFUSED, detail="connection refused")
        reached = owner[0].addresses[owner[1]]
        outcome = _asked(address, *owner) if full else ProbeOutcome(address=address, tcp_only=True)
        return replace(outcome, endpoint=(f"ip of {reached.host}", reached.port))


def _asked(address: BrokerAddress, cluster: FakeCluster, broker_id: int) -> ProbeOutcome:
    if cluster.health[broker_id] is Health.FROZEN:
        return ProbeOutcome(address=address, failure=Verdict.SILENT, detail="accepts and does not answer")
    try:
        answer = cluster.reported_by(broker_id)
    except GatewayError as error:
        return ProbeOutcome(address=address, failure=Verdict.SILENT, detail=error.detail)
    return ProbeOutcome(address=address, cluster_id=answer.cluster_id, brokers=answer.brokers)
