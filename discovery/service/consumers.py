"""Who uses the service: what each consumer applied, its offsets, and which brokers it still lists."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from discovery.core.errors import DiscoveryError
from discovery.core.model import BrokerAddress, TopicName, TopicPartition, parse_bootstrap_servers

KINDS = ("spark", "cli", "unknown")
_MOST = 10_000
_LONGEST = 200
_MOST_ENTRIES = 1_000_000
"""Positions, parked partitions and addresses of all consumers together: what bounds the memory of their reports."""
_LEASE_SECONDS = 10.0
"""An id is its holder's for so long after each report, five times as often as a living one reports."""


class ConflictError(DiscoveryError):
    """Another living process uses this consumer id."""


class BadReportError(DiscoveryError):
    """A report that cannot be understood; says which field and what was expected."""


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

    def put(self, consumer: Consumer) -> None:
        """Keep a report.

        Raises:
            ConflictError: another living process uses this id, or there are too many consumers.
        """
        self._forget(consumer.heard_at)
        known = self._consumers.get(consumer.id)
        if known is not None and self._is_taken(known, consumer):
            raise ConflictError(
                f"consumer {consumer.id!r} is in use by {known.instance!r}, heard"
                f" {consumer.heard_at - known.heard_at:.0f} s ago; give this one its own id (sourceId) or stop that one"
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
    def _is_taken(known: Consumer, consumer: Consumer) -> bool:
        if consumer.instance == known.instance or (consumer.replaces and consumer.replaces == known.instance):
            return False
        return consumer.heard_at - known.heard_at <= _LEASE_SECONDS

    def _forget(self, now: float) -> None:
        silent = [i for i, c in self._consumers.items() if now - c.heard_at > self.silence_seconds]
        for one in silent:
            self._remove(one)

    def _remove(self, consumer_id: str) -> None:
        self._entries -= self._consumers.pop(consumer_id).entries


def parse_report(consumer_id: str, raw: object, *, cluster: str, now: float) -> Consumer:
    """Read a report as JSON brought it.

    Raises:
        BadReportError: names the field and what was expected.

    Runs: anywhere (pure).
    """
    if len(consumer_id) > _LONGEST:
        raise BadReportError(f"id: it has {len(consumer_id)} characters; at most {_LONGEST} are kept")
    if not isinstance(raw, dict):
        raise BadReportError('the body must be a JSON object like {"instance": "…", "acked_generation": 3}')
    known = {"instance", "cluster", "kind", "acked_generation", "positions", "parked", "bootstrap_servers"}
    known |= {"isolation_level", "replaces", "fallback"}
    unknown = sorted(set(raw) - known)
    if unknown:
        raise BadReportError(f"{unknown[0]}: unknown field; known are {', '.join(sorted(known))}")
    isolation = _text(raw, "isolation_level", "read_uncommitted")
    if isolation not in {"read_uncommitted", "read_committed"}:
        raise BadReportError(f"isolation_level: {isolation!r} is neither read_uncommitted nor read_committed")
    return Consumer(
        id=consumer_id,
        instance=_text(raw, "instance", ""),
        cluster=cluster,
        kind=_text(raw, "kind", "unknown"),
        acked_generation=_number("acked_generation", raw.get("acked_generation", 0)),
        replaces=_text(raw, "replaces", ""),
        heard_at=now,
        committed_only=isolation == "read_committed",
        positions={tp: _number(f"positions.{tp}", value) for tp, value in _by_partition(raw, "positions").items()},
        parked={tp: str(value)[:_LONGEST] for tp, value in _by_partition(raw, "parked").items()},
        bootstrap_servers=_addresses(raw.get("bootstrap_servers", [])),
        fallback=_text(raw, "fallback", ""),
    )


def _text(raw: Mapping[str, Any], name: str, default: str) -> str:
    value = raw.get(name, default)
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise BadReportError(f"{name}: it must be text of at most {_LONGEST} characters")
    return value


def _number(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise BadReportError(f"{name}: it must be a whole number of 0 or more")
    return value


def _by_partition(raw: Mapping[str, Any], name: str) -> dict[TopicPartition, Any]:
    """Read `{"topic": {"0": value}}`, the shape of Spark's offsets."""
    found: dict[TopicPartition, Any] = {}
    topics = raw.get(name, {})
    for topic, partitions in topics.items() if isinstance(topics, dict) else [("", None)]:
        if not isinstance(partitions, dict) or not all(p.isascii() and p.isdigit() for p in partitions):
            raise BadReportError(f'{name}: it must look like {{"topic": {{"0": …}}}}')
        found |= {TopicPartition(TopicName(topic), int(p)): value for p, value in partitions.items()}
    return found


def _addresses(raw: object) -> tuple[BrokerAddress, ...]:
    if not isinstance(raw, list) or not all(isinstance(one, str) for one in raw):
        raise BadReportError('bootstrap_servers: it must be a list like ["b1:9092"]')
    try:
        return parse_bootstrap_servers(",".join(raw), option="bootstrap_servers") if raw else ()
    except DiscoveryError as error:
        raise BadReportError(str(error)) from error
