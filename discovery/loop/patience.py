"""Clients for slow leaders, one each: what takes long there holds up nobody else.

The pooled client drops a connection whose answer takes longer than a metadata request may, so that a frozen broker is
left soon. A leader that lives and is slower than that would never be heard through it.
"""

import threading
from collections.abc import Collection, Mapping

from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, BrokerId, ClusterId, Isolation, TopicName, TopicPartition
from discovery.kafka.base import Gateway, GatewayFactory, OffsetAndEpoch, OffsetSpec


class LeaderClient:
    """Asks one broker alone for offsets; the limits of its connection are those of the factory."""

    def __init__(self, gateway: Gateway, cluster_id: ClusterId | None) -> None:
        """Wrap a client that knows this broker's address alone."""
        self._gateway = gateway
        self._cluster_id = cluster_id
        self._topics: frozenset[TopicName] = frozenset()
        self._lock = threading.Lock()

    def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_seconds: float,
    ) -> Mapping[TopicPartition, OffsetAndEpoch]:
        """See `Gateway.list_offsets`; a new topic, or one of which nothing was answered, costs a metadata request."""
        topics = frozenset(tp.topic for tp in partitions)
        with self._lock:
            known = topics <= self._topics
        if not known:
            answer = self._gateway.fetch_metadata(topics, timeout_seconds=timeout_seconds)
            if answer.cluster_id != self._cluster_id:
                text = f"answered for cluster {answer.cluster_id} instead of {self._cluster_id}"
                raise GatewayError(FailureKind.TRANSIENT, text)
        offsets = self._gateway.list_offsets(partitions, spec, isolation=isolation, timeout_seconds=timeout_seconds)
        with self._lock:
            self._topics = self._topics | topics if offsets else self._topics - topics
        return offsets


class PatientClients:
    """The clients of those leaders that are slow now. Changed by the loop's thread alone; any thread may read."""

    def __init__(self, factory: GatewayFactory) -> None:
        """Make none yet."""
        self._factory = factory
        self._clients: dict[BrokerId, tuple[BrokerAddress, LeaderClient, Gateway]] = {}

    def get(self, leader: BrokerId) -> LeaderClient | None:
        """Return the client of a leader that is asked patiently at this moment."""
        held = self._clients.get(leader)
        return held[1] if held else None

    def take(self, leader: BrokerId, address: BrokerAddress, cluster_id: ClusterId | None) -> LeaderClient:
        """Return the leader's client, and make it where there is none."""
        held = self._clients.get(leader)
        if held is not None and held[0] == address:
            return held[1]
        self.keep(self._clients.keys() - {leader})
        gateway = self._factory((address,))
        client = LeaderClient(gateway, cluster_id)
        self._clients[leader] = (address, client, gateway)
        return client

    def keep(self, leaders: Collection[BrokerId]) -> None:
        """Let all others go."""
        for leader in self._clients.keys() - set(leaders):
            close_soon(self._clients.pop(leader)[2])


def close_soon(gateway: Gateway) -> None:
    """Close on a thread of its own: closing may wait for a slow resolver."""
    threading.Thread(target=gateway.close, name="kafka-discovery close", daemon=True).start()
