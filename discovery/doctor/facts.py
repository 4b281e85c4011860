"""What the doctor saw, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from discovery.core.model import Broker, BrokerAddress, ClusterId, TopicName, TopicPartition, Verdict
from discovery.core.prediction.forecast import FailureMode, Listed
from discovery.core.verdict import AUTH_REJECTED
from discovery.doctor.processor import Processor

USABLE = frozenset({Verdict.ALIVE, Verdict.STALE})
"""Answers for which a JVM client takes an address for good; it does not check who answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """How long each stage took, seconds; None: not reached, or not needed."""

    lookup: float | None = None
    connect: float | None = None
    tls: float | None = None
    kafka: float | None = None
    """Login and metadata, through librdkafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What became of one address."""

    address: BrokerAddress
    verdict: Verdict
    detail: str = ""
    failure_mode: FailureMode | None = None
    """How a JVM client would see it die; None: it takes it for a broker."""
    stage: str = ""
    """Where it ended: name, connection, TLS, login or Kafka; empty: it answered."""
    stages: Stages = Stages()
    cluster_id: ClusterId | None = None
    brokers: tuple[Broker, ...] = ()

    @property
    def answered(self) -> bool:
        """Tell whether it reported a cluster."""
        return bool(self.brokers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that was seen in one examination."""

    listed: tuple[Seen, ...]
    """One per entry of the list, in its order."""
    advertised: tuple[Seen, ...] = ()
    """Brokers that the cluster names and the list does not."""
    leaderless: tuple[TopicPartition, ...] | None = None
    """None: nobody could be asked."""
    partitions: int = 0
    unknown: str = ""
    """Why partitions could not be looked at."""
    ledger_deaths: Mapping[TopicName, int] = field(default_factory=dict)
    """By topic that each cut is written to, where sources keep cuts in Kafka: how many dead brokers stop that."""
    ledgers_unknown: str = ""
    """Why that could not be looked at."""
    processor: Processor | None = None
    """Of this host; None: nobody looked."""

    @property
    def cluster_ids(self) -> tuple[ClusterId, ...]:
        """The clusters that answered, that of most entries first."""
        ids = [seen.cluster_id for seen in self.listed if seen.cluster_id is not None]
        return tuple(sorted(set(ids), key=lambda one: (-ids.count(one), one)))

    @property
    def counts(self) -> Listed:
        """The list as a client will find it."""
        dead: dict[FailureMode, int] = {}
        for seen in self.listed:
            if seen.failure_mode is not None:
                dead[seen.failure_mode] = dead.get(seen.failure_mode, 0) + 1
        return Listed(living=sum(seen.failure_mode is None for seen in self.listed), dead=dead)


def failure_mode_of(verdict: Verdict, *, connected: bool, no_route: bool) -> FailureMode | None:
    """Say how a JVM client sees an address with this verdict; None: as a broker.

    Runs: anywhere (pure).
    """
    if verdict in AUTH_REJECTED:
        return FailureMode.AUTH_REJECTED
    match verdict:
        case Verdict.UNRESOLVABLE:
            return FailureMode.UNRESOLVABLE
        case Verdict.REFUSED | Verdict.NOT_KAFKA:
            return FailureMode.REFUSED
        case Verdict.SILENT if connected:
            return FailureMode.SILENT
        case Verdict.SILENT:
            return FailureMode.UNREACHABLE if no_route else FailureMode.BLACK_HOLE
        case _:
            return None
