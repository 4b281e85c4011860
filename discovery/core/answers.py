"""What the loop hears: untrusted facts, each stamped by the caller of `decide` only through `now`."""

from collections.abc import Mapping
from dataclasses import dataclass

from discovery.core.errors import FailureKind
from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    ClusterId,
    PartitionOffsets,
    TopicId,
    TopicMetadata,
    TopicName,
    TopicPartition,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """What happened when one address was asked on its own.

    `failure` is None after an answer; else one of REFUSED, SILENT, UNRESOLVABLE, NOT_KAFKA,
    AUTH_FAILED, TLS_FAILED. FOREIGN_CLUSTER and STALE are conclusions, drawn in `verdict.py`.
    """

    address: BrokerAddress
    failure: Verdict | None = None
    tcp_only: bool = False
    """True: a connection was accepted and nothing more was asked; proves no Kafka and no cluster."""
    cluster_id: ClusterId | None = None
    brokers: tuple[Broker, ...] = ()
    endpoint: tuple[str, int] | None = None
    """IP address and port that accepted the connection; None: nobody did."""
    elapsed_seconds: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAnswer:
    """A cluster's reply to the pooled client."""

    cluster_id: ClusterId | None
    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...] = ()
    """Topics that exist; asked ones that do not are in `unknown_topics`."""
    unknown_topics: tuple[TopicName, ...] = ()
    """Topics we asked for by name which this broker says do not exist."""
    complete: bool = False
    """True when all topics were asked for, so that absence means "does not exist"."""
    controller_id: BrokerId | None = None
    answered_by: BrokerId | None = None
    """None: the address that the client began with, whichever broker that is."""
    elapsed_seconds: float = 0.0
    """How long the request took; for metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFailure:
    """The pooled client got no usable reply."""

    kind: FailureKind
    detail: str
    elapsed_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdsAnswer:
    """Topic ids by name; a topic that is missing is unknown, not gone."""

    topic_ids: Mapping[TopicName, TopicId]
    asked_at: float = float("-inf")
    """Monotonic; an id asked for before a suspicion arose does not settle it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsAnswer:
    """Offsets one leader reported. Partitions we asked for and that are absent here are unknown."""

    leader_id: BrokerId
    asked: tuple[TopicPartition, ...]
    offsets: Mapping[TopicPartition, PartitionOffsets]
    detail: str = ""
    """Why nothing, or not all, was answered."""
    elapsed_seconds: float = 0.0
    """How long the slowest request took, answered or not."""
    asked_at: float | None = None
    """Monotonic: before the first request; None: as it comes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckCall:
    """A call did not come back within its deadline and a grace; its thread was abandoned."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBootstrap:
    """The user listed other addresses while the loop runs."""

    addresses: tuple[BrokerAddress, ...]
    """1..n"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSaved:
    """The snapshot was not written."""

    wait_seconds: float = 10.0
    """Until it is tried again."""


ClientAnswer = MetadataAnswer | MetadataFailure | TopicIdsAnswer | OffsetsAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """A call came to its end, and what it brought."""

    name: str = ""
    """The call's; empty where a reader asked beside the loop."""
    client: int = 0
    """Number of the client that was asked: an answer of a discarded one may be another cluster's."""
    answer: ClientAnswer | None = None
    """None: nothing (vetting reports each address by itself), or it failed in a way that nobody expected."""


Answer = ProbeOutcome | ClientAnswer | CallEnded | StuckCall | NewBootstrap | NotSaved
