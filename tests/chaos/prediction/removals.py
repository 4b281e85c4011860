"""Removals: the gate says what breaks, brokers are killed, and real clients show what broke."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from discovery.core.prediction.removal import GROUPS, TRANSACTIONS, coordinator_partition
from discovery.localkafka.admin import Admin
from discovery.localkafka.cluster import LocalKafka
from tests.chaos.prediction.comparison import Started
from tests.chaos.prediction.play import Order, start_clients

_API_SECONDS = 15
_GATE_SECONDS = 20
_ASKED = 3
"""So often the gate is asked while it does not know: a cluster that was just changed settles."""
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
_COMMON = "rf3-min2"
"""What clients with a list of their own read, and the transactional producer writes."""
_NAME = "foresight"
"""Of the group, and of the transactional producer."""
_PARTITIONS = 6
_COORDINATORS = 4
"""Partitions of the topics of groups and transactions in a local cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One removal to play."""

    leaving: tuple[int, ...]
    emptied: bool
    """As the gate's plan says."""
    temporary: bool
    lists: Mapping[str, tuple[str, ...]]
    """Of each client: `3` a broker's address, `also-3` another name of it, `gone-1` an address that is dead."""

    @property
    def words(self) -> str:
        """The case in a few words."""
        how = [*(["emptied"] if self.emptied else []), *(["for a while"] if self.temporary else [])]
        return ", ".join([str(list(self.leaving)), *how, *(f"{n}={'+'.join(e)}" for n, e in self.lists.items())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """One removal: which uses should have broken, and which broke."""

    leaving: tuple[int, ...]
    words: str
    version: str
    verdict: str
    predicted: tuple[str, ...]
    broken: tuple[str, ...]
    findings: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Tell whether all was foreseen, and nothing else."""
        return self.predicted == self.broken


def make_topics(cluster: LocalKafka, partitions: int = _PARTITIONS) -> None:
    """Make every topic, and those of groups and transactions by using them."""
    for name, (replicas, minimum) in TOPICS.items():
        config = {"min.insync.replicas": str(minimum)}
        cluster.create_topic(name, partitions, replication_factor=replicas, config=config)
    servers = cluster.bootstrap_servers
    orders = [_order(what, what, _COMMON, servers) for what in ("group", "transaction")]
    start_clients("4.1", orders, warm_up=cluster.address(cluster.living_ids()[0]))


def draw_removals(brokers: int, count: int, *, seed: int) -> Iterator[Case]:
    """Draw cases: of every four, one in use, one emptied that a client's list still needs, two emptied and ready.

    Runs: anywhere (pure).
    """
    random, before = Random(seed), frozenset[int]()
    for number in range(count):
        in_use, ready = number % 4 == 0, number % 4 > 1
        ids = [
            one for one in range(1, brokers + 1) if not in_use or one not in before
        ]  # those just emptied hold little
        leaving = tuple(sorted(random.sample(ids, 1 + number % 3)))
        staying = [one for one in range(1, brokers + 1) if one not in leaving]
        kinds = ["good", "good"] if ready else ["good", random.choice(["empty", "thin"])]
        lists = {f"list-{place}": _list(random, kind, leaving, staying) for place, kind in enumerate(kinds)}
        yield Case(leaving=leaving, emptied=not in_use, temporary=in_use and number % 8 > 0, lists=lists)
        before = frozenset(leaving)


def _list(random: Random, kind: str, leaving: Sequence[int], staying: Sequence[int]) -> tuple[str, ...]:
    entries = [random.choice(["", "also-"]) + str(random.choice(leaving)), *random.sample(["gone-0", "gone-1"], 1)]
    if kind == "thin":
        one = random.choice(staying)
        entries += [str(one), f"also-{one}"]  # two entries, one broker
    if kind == "good":
        entries += [random.choice(["", "also-"]) + str(one) for one in random.sample(list(staying), 2)]
    random.shuffle(entries)
    return tuple(entries)


def remove(cluster: LocalKafka, case: Case, version: str, dead: Sequence[str]) -> Removed:
    """Empty, predict, kill, look, and bring the brokers back; where the gate does not know, nobody is killed."""
    if case.emptied:
        cluster.reassign_off(case.leaving)
    lists = {name: [_address(cluster, one, dead) for one in entries] for name, entries in case.lists.items()}
    said = ask_gate(cluster, case, lists)
    happened: dict[str, list[Started]] = {}
    if said["verdict"] != "unknown":
        happened = _killed(cluster, case.leaving, version, lists)
    return Removed(
        leaving=case.leaving,
        words=case.words,
        version=version,
        verdict=said["verdict"],
        predicted=foreseen(said, lists),
        broken=tuple(sorted(name for name, starts in happened.items() if not all(one.ok for one in starts))),
        findings=tuple(f"{one['code']}: {one['sentence']}" for one in said["findings"]),
    )


def _address(cluster: LocalKafka, entry: str, dead: Sequence[str]) -> str:
    kind, _, number = entry.rpartition("-")
    if kind == "gone":
        return dead[int(number)]
    address = cluster.address(int(number))
    return f"localhost:{address.rpartition(':')[2]}" if kind == "also" else address


def ask_gate(cluster: LocalKafka, case: Case, lists: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Ask as an operator does: all brokers, the clients' lists, and what the command says."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lists"
        file.write_text("".join(f"{name} = {','.join(entries)}\n" for name, entries in lists.items()))
        command = [sys.executable, "-m", "discovery.cli.app", "removal", "--json", "--lists", str(file)]
        command += ["--brokers", ",".join(map(str, case.leaving)), "--bootstrap", cluster.bootstrap_servers]
        command += ["--timeout", str(_GATE_SECONDS), *(["--temporary"] if case.temporary else [])]
        for _ in range(_ASKED):
            done = subprocess.run(command, capture_output=True, text=True, timeout=10 * _GATE_SECONDS, check=False)
            if not done.stdout:
                raise RuntimeError(f"the gate said nothing: {done.stderr[-2000:]}")
            said: dict[str, Any] = json.loads(done.stdout)
            if all(one["level"] != "unknown" for one in said["findings"]):
                return said
    return {**said, "verdict": "unknown"}  # one that is "not" for certain may still not know of something that breaks


def foreseen(said: Mapping[str, Any], lists: Mapping[str, object]) -> tuple[str, ...]:
    """Return the uses that the gate says will break.

    Runs: anywhere (pure).
    """
    if said["verdict"] == "unknown":
        return ()
    findings = [(one["code"], one["sentence"], one["subjects"]) for one in said["findings"]]
    lost = {subject for code, _, subjects in findings if code in _UNREADABLE for subject in subjects}
    closed = {subject for code, _, subjects in findings if code in _UNWRITABLE for subject in subjects}
    unreadable, unwritable = ({one.rpartition("-")[0] for one in some} for some in (lost, closed))
    coordinator = coordinator_partition(_NAME, _COORDINATORS)
    named = [f"consumer {topic}" for topic in TOPICS if topic in unreadable]
    named += [f"producer {topic}" for topic in TOPICS if topic in unwritable]
    named += ["group"] if f"{GROUPS}-{coordinator}" in lost else []
    named += ["transaction"] if _COMMON in unwritable or f"{TRANSACTIONS}-{coordinator}" in closed else []
    empty = [
        name for name in lists for code, text, _ in findings if code == "list-empty" and text.startswith(f"{name} ")
    ]
    named += [name for name in lists if name in empty or _COMMON in unreadable]
    return tuple(sorted(named))


def _killed(
    cluster: LocalKafka, leaving: Sequence[int], version: str, lists: Mapping[str, Sequence[str]]
) -> dict[str, list[Started]]:
    cluster.kill(leaving)
    try:
        cluster.wait_registered(leaving, registered=False)
        return _use(cluster, version, lists)
    finally:
        cluster.restart(leaving)
        admin = Admin(cluster.bootstrap_servers, cluster.client_options)
        for topic in TOPICS:
            admin.await_leaders(topic, _PARTITIONS, deadline_seconds=60)
        for topic in (GROUPS, TRANSACTIONS):
            admin.await_leaders(topic, _COORDINATORS, deadline_seconds=60)


def _use(cluster: LocalKafka, version: str, lists: Mapping[str, Sequence[str]]) -> dict[str, list[Started]]:
    servers = ",".join(cluster.address(b) for b in cluster.living_ids())
    orders = [_order(f"{what} {topic}", what, topic, servers) for what in ("consumer", "producer") for topic in TOPICS]
    orders += [_order(what, what, _COMMON, servers) for what in ("group", "transaction")]
    orders += [_order(name, "consumer", _COMMON, ",".join(entries)) for name, entries in lists.items()]
    return start_clients(version, orders, warm_up=servers.partition(",")[0])


def _order(name: str, what: str, topic: str, servers: str) -> Order:
    milliseconds = str(_API_SECONDS * 1000)
    properties = {
        "bootstrap.servers": servers,
        "group.id": _NAME,
        "default.api.timeout.ms": milliseconds,
        "request.timeout.ms": str(_API_SECONDS * 1000 // 2),
        "max.block.ms": milliseconds,
        "delivery.timeout.ms": milliseconds,
        **({"transactional.id": _NAME} if what == "transaction" else {}),
    }
    return Order(name=name, what=what, topic=topic, properties=properties)
