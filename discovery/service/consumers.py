"""Who uses the service: what each consumer applied, its offsets, and which brokers it still lists."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from discovery.core.errors import DiscoveryError
from discovery.core.model import BrokerAddress, Isolation, TopicPartition
from discovery.feed.wire import flat
from discovery.service.api.models import Report

_MOST = 10_000
_MOST_ENTRIES = 1_000_000
"""Positions, parked partitions and addresses of all consumers together: what bounds the memory of their reports."""
_LEASE_SECONDS = 10.0
"""An id is its holder's for so long after each report, five times as often as a living one reports."""


class ConflictError(DiscoveryError):
    """Another living process uses this consumer id, or there are too many."""

    def __init__(self, text: str, *, holder: str = "") -> None:
        """Keep which process has the id; empty where it is not about that."""
        super().__init__(text)
        self.holder = holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """The last report of one consumer."""

    id: str
    instance: str
    """Names its process: two living ones with one id are a mistake."""
    cluster: str
    kind: str
    acked_generation: int
    replaces: str = ""
    """Whose id it takes over: an instance of which it knows that it has ended."""
    heard_at: float
    """Monotonic seconds."""
    committed_only: bool = False
    """It reads committed records only: its lag counts to the last stable offset."""
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    parked: Mapping[TopicPartition, str] = field(default_factory=dict)
    bootstrap_servers: tuple[BrokerAddress, ...] = ()
    fallback: str = ""
    """Why its embedded loop leads in this service's place; empty while it follows."""

    @property
    def entries(self) -> int:
        """How much of it must be kept."""
        return len(self.positions) + len(self.parked) + len(self.bootstrap_servers)

    def is_behind(self, generation: int) -> bool:
        """Tell whether something was discovered that it has not applied."""
        return self.acked_generation < generation


class Registry:
    """Consumers by id; the silent are forgotten. One thread."""

    def __init__(self, silence_seconds: float) -> None:
        """Forget whoever says nothing for so long."""
        self.silence_seconds = silence_seconds
        self._consumers: dict[str, Consumer] = {}
        self._entries = 0

    def put(self, consumer: Consumer, *, before: tuple[str, float] | None = None) -> None:
        """Keep a report.

        Args:
            consumer: What it says.
            before: Which instance had the id before this service began, and when that was (monotonic seconds): it may
                live and not have reported again yet.

        Raises:
            ConflictError: another living process uses this id, or there are too many consumers.
        """
        self._forget(consumer.heard_at)
        known = self._consumers.get(consumer.id)
        last = before if known is None else (known.instance, known.heard_at)
        if last is not None and self._is_taken(*last, consumer):
            when = "heard" if known is not None else "heard before this service began"
            raise ConflictError(
                f"consumer {consumer.id!r} is in use by {last[0]!r}, {when}"
                f" {consumer.heard_at - last[1]:.0f} s ago; give this one its own id (sourceId) or stop that one",
                holder=last[0],
            )
        if known is None and len(self._consumers) >= _MOST:
            raise ConflictError(f"{_MOST} consumers are known already; that is the limit")
        more = consumer.entries - (known.entries if known else 0)
        if more > 0 and self._entries + more > _MOST_ENTRIES:
            raise ConflictError(f"all reports together may name {_MOST_ENTRIES} partitions and addresses; report fewer")
        self._entries += more
        self._consumers[consumer.id] = consumer

    def drop(self, consumer_id: str, instance: str | None = None) -> None:
        """Forget one; where an instance is named, only if it still has this id."""
        known = self._consumers.get(consumer_id)
        if known is not None and instance in {None, known.instance}:
            self._remove(consumer_id)

    def all(self, now: float, cluster: str | None = None) -> list[Consumer]:
        """Return the living, by id."""
        self._forget(now)
        return [c for _, c in sorted(self._consumers.items()) if cluster in (None, c.cluster)]

    def get(self, consumer_id: str, now: float) -> Consumer | None:
        """Return one of the living."""
        self._forget(now)
        return self._consumers.get(consumer_id)

    @staticmethod
    def _is_taken(holder: str, heard_at: float, consumer: Consumer) -> bool:
        if consumer.instance == holder or (consumer.replaces and consumer.replaces == holder):
            return False
        return consumer.heard_at - heard_at <= _LEASE_SECONDS

    def _forget(self, now: float) -> None:
        silent = [i for i, c in self._consumers.items() if now - c.heard_at > self.silence_seconds]
        for one in silent:
            self._remove(one)

    def _remove(self, consumer_id: str) -> None:
        self._entries -= self._consumers.pop(consumer_id).entries


def consumer_of(consumer_id: str, report: Report, *, cluster: str, now: float) -> Consumer:
    """Return who reported what at monotonic second `now`.

    Runs: anywhere (pure).
    """
    return Consumer(
        id=consumer_id,
        instance=report.instance,
        cluster=cluster,
        kind=report.kind,
        acked_generation=report.acked_generation,
        replaces=report.replaces,
        heard_at=now,
        committed_only=report.isolation_level == Isolation.READ_COMMITTED.value,
        positions=flat(report.positions),
        parked=flat(report.parked),
        bootstrap_servers=report.addresses,
        fallback=report.fallback,
    )
