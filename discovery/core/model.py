"""Kafka's vocabulary as values: frozen, hashable where they serve as keys, without behaviour that does I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType, Self

from discovery.core.errors import ConfigError

ClusterId = NewType("ClusterId", str)
BrokerId = NewType("BrokerId", int)
TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", str)
"""Kafka's UUID of a topic in its base64 text form; new whenever a topic is recreated."""
Generation = NewType("Generation", int)

_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True, order=True)
class BrokerAddress:
    """Where a broker listens. `str()` gives `host:port`, an IPv6 host in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        """Write the address as a client option would."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, option: str = "bootstrap.servers") -> Self:
        """Read `host:port`, `[v6]:port` or `PROTOCOL://host:port`.

        Raises:
            ConfigError: no host, no port, or a port outside 1..65535; names `option`.

        Runs: anywhere (pure).
        """
        rest = text.strip().rpartition("://")[2]
        host, colon, port = rest.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= _MAX_PORT:
            raise ConfigError(
                f"{option}: {text.strip()!r} is not an address; write host:port with a port of 1..{_MAX_PORT}"
            )
        return cls(host, int(port))


def parse_bootstrap_servers(text: str, *, option: str = "bootstrap.servers") -> tuple[BrokerAddress, ...]:
    """Read a comma-separated list: 1..n addresses in the given order, without repeats.

    Raises:
        ConfigError: an address is malformed or the list is empty; names `option`.

    Runs: anywhere (pure).
    """
    addresses = tuple(
        dict.fromkeys(BrokerAddress.parse(part, option=option) for part in text.split(",") if part.strip())
    )
    if not addresses:
        raise ConfigError(f"{option}: the list is empty; write at least one host:port")
    return addresses


class TopicPartition(NamedTuple):
    """One partition of a topic. `str()` gives `topic-partition`.

    A named tuple, for it is hashed and compared in C: plans over thousands of partitions do little else.
    """

    topic: TopicName
    partition: int

    def __str__(self) -> str:
        """Write it as Kafka's own tools do."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker as metadata names it."""

    broker_id: BrokerId
    address: BrokerAddress
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """What metadata says of one partition. A field that is None is unknown."""

    partition: int
    leader_id: BrokerId | None
    """None: the partition has no leader."""
    replicas: tuple[BrokerId, ...] = ()
    in_sync: tuple[BrokerId, ...] = ()
    leader_epoch: int | None = None
    is_listed: bool = True
    """False: the newest answer left it out, and no other topic id explains that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic with partitions ordered by index, without gaps when Kafka is well."""

    name: TopicName
    topic_id: TopicId | None = None
    partitions: tuple[PartitionMetadata, ...] = ()


class Verdict(Enum):
    """What we conclude about one address."""

    ALIVE = "alive"
    REFUSED = "refused"
    SILENT = "silent"
    UNRESOLVABLE = "unresolvable"
    NOT_KAFKA = "not_kafka"
    FOREIGN_CLUSTER = "foreign_cluster"
    STALE = "stale"
    AUTH_FAILED = "auth_failed"
    TLS_FAILED = "tls_failed"


class LoopState(Enum):
    """How much the served view can be trusted.

    COLD has no view; FRESH was confirmed within `staleness`; STALE was not; FAILSAFE means that
    nothing answers and the last view is kept; REJECTING means that answers come, from the wrong cluster only.
    """

    COLD = "cold"
    FRESH = "fresh"
    STALE = "stale"
    FAILSAFE = "failsafe"
    REJECTING = "rejecting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """A topic that vanished, remembered to distinguish its return from a recreation."""

    topic: TopicMetadata
    since_wall: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The agreed view of one cluster. Never empty: a snapshot has a cluster id and at least one broker."""

    generation: Generation
    cluster_id: ClusterId
    brokers: tuple[Broker, ...]
    """Learned brokers by id."""
    topics: Mapping[TopicName, TopicMetadata] = field(default_factory=dict)
    tombstones: Mapping[TopicName, Tombstone] = field(default_factory=dict)
    confirmed_wall: float = 0.0
    """When a trusted answer last confirmed it, seconds since the epoch (for display and age over restarts)."""

    def broker(self, broker_id: BrokerId | None) -> Broker | None:
        """Return the broker with this id, or None where it is not listed."""
        for broker in self.brokers:  # a plain loop: it is asked for every partition
            if broker.broker_id == broker_id:
                return broker
        return None


class Isolation(Enum):
    """Which end of a partition a reader sees: high watermark or last stable offset."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """Known offsets of one partition; None is unknown. Never negative."""

    start_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    leader_epoch: int | None = None
