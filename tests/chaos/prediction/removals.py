"""Removals: the gate says what breaks, brokers are killed, and real clients show what broke."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from discovery.config.client.options import ClientOptions
from discovery.core.model import BrokerId, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.core.prediction.removal import Removal, Safety, judge, verify
from discovery.kafka.confluent import ConfluentGatewayFactory
from discovery.kafka.survey import survey
from discovery.localkafka.admin import Admin
from discovery.localkafka.cluster import LocalKafka
from tests.chaos.prediction.comparison import Started
from tests.chaos.prediction.play import Order, start_clients

_API_SECONDS = 8
_UNREADABLE = frozenset({"last-replica", "last-in-sync"})
_UNWRITABLE = _UNREADABLE | {"below-min"}
TOPICS: Mapping[str, tuple[int, int]] = {
    "rf1": (1, 1),
    "rf2": (2, 1),
    "rf2-min2": (2, 2),
    "rf3-min2": (3, 2),
    "rf3-min3": (3, 3),
}
"""Topic -> (replication factor, min.insync.replicas)."""
_OFFSETS = "__consumer_offsets"
_PARTITIONS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One thing that clients do with the cluster."""

    what: str
    topic: str

    def __str__(self) -> str:
        """Name it."""
        return f"{self.what} {self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """One removal: which uses should have broken, and which broke."""

    leaving: tuple[int, ...]
    version: str
    verdict: str
    predicted: tuple[str, ...]
    broken: tuple[str, ...]

    @property
    def right(self) -> bool:
        """Tell whether all was foreseen, and nothing else."""
        return self.predicted == self.broken


def make_topics(cluster: LocalKafka, partitions: int = _PARTITIONS) -> None:
    """Make every topic, and the groups' own by asking for a group."""
    for name, (replicas, minimum) in TOPICS.items():
        config = {"min.insync.replicas": str(minimum)}
        cluster.create_topic(name, partitions, replication_factor=replicas, config=config)
    order = Order(name="x", what="group", topic="rf3-min2", properties=_properties(cluster.bootstrap_servers))
    start_clients("4.1", [order], warm_up=cluster.address(cluster.living_ids()[0]))


def draw_removals(brokers: int, count: int, *, seed: int) -> Iterator[tuple[int, ...]]:
    """Draw which brokers go: one, two or three at a time."""
    random = Random(seed)
    for number in range(count):
        yield tuple(sorted(random.sample(range(1, brokers + 1), 1 + number % 3)))


def ask_gate(cluster: LocalKafka, leaving: Sequence[int], *, verifies: bool = False) -> Removal:
    """Let the gate look at the cluster; the clients are those that are played."""
    addresses = parse_bootstrap_servers(",".join(cluster.address(b) for b in cluster.living_ids()))
    ids = [BrokerId(broker) for broker in leaving]
    facts = survey(ConfluentGatewayFactory(ClientOptions(), Policy()), addresses, ids, timeout_seconds=20)
    facts = replace(facts, clients_known=True)
    return verify(facts, ids) if verifies else judge(facts, ids, temporary=True)


def foreseen(found: Removal) -> tuple[str, ...]:
    """Return the uses that the gate says will break."""
    if found.safety is Safety.UNKNOWN:
        raise RuntimeError(f"the gate does not know: {found.findings}")
    unreadable = {s.rpartition("-")[0] for f in found.findings if f.code in _UNREADABLE for s in f.subjects}
    unwritable = {s.rpartition("-")[0] for f in found.findings if f.code in _UNWRITABLE for s in f.subjects}
    named = [Use(what="consumer", topic=topic) for topic in TOPICS if topic in unreadable]
    named += [Use(what="producer", topic=topic) for topic in TOPICS if topic in unwritable]
    named += [Use(what="group", topic="rf3-min2")] if _OFFSETS in unreadable else []
    return tuple(sorted(map(str, named)))


def remove(cluster: LocalKafka, leaving: Sequence[int], version: str, *, emptied: bool = False) -> Removed:
    """Predict, kill, look, and bring the brokers back; emptied ones hold no replica any more."""
    if emptied:
        cluster.reassign_off(leaving)
    found = ask_gate(cluster, leaving)
    cluster.kill(leaving)
    try:
        cluster.wait_registered(leaving, registered=False)
        happened = _use(cluster, version)
    finally:
        cluster.restart(leaving)
        admin = Admin(cluster.bootstrap_servers, cluster.client_options)
        for topic in TOPICS:
            admin.await_leaders(topic, _PARTITIONS, deadline_seconds=60)
        admin.await_leaders(_OFFSETS, 1, deadline_seconds=60)
    return Removed(
        leaving=tuple(leaving),
        version=version,
        verdict=found.safety.value,
        predicted=foreseen(found),
        broken=tuple(sorted(name for name, starts in happened.items() if not all(one.ok for one in starts))),
    )


def _use(cluster: LocalKafka, version: str) -> dict[str, list[Started]]:
    servers = ",".join(cluster.address(b) for b in cluster.living_ids())
    uses = [Use(what=what, topic=topic) for what in ("consumer", "producer") for topic in TOPICS]
    uses.append(Use(what="group", topic="rf3-min2"))
    orders = [Order(name=str(u), what=u.what, topic=u.topic, properties=_properties(servers)) for u in uses]
    return start_clients(version, orders, warm_up=servers.partition(",")[0])


def _properties(servers: str) -> dict[str, str]:
    milliseconds = str(_API_SECONDS * 1000)
    return {
        "bootstrap.servers": servers,
        "group.id": "foresight",
        "default.api.timeout.ms": milliseconds,
        "request.timeout.ms": str(_API_SECONDS * 1000 // 2),
        "max.block.ms": milliseconds,
        "delivery.timeout.ms": milliseconds,
    }
