"""What is simulated: many clusters followed by services or by each query for itself, at rest and after an outage.

Loops do not know of each other, so a few clusters are played and the result is multiplied.
"""

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from benchmarks.scale.engine import Engine, Loop
from benchmarks.scale.world import Asked, SimCluster
from discovery.core.interest import Interest
from discovery.core.policy import Policy
from discovery.loop.demand import Demand, everything

_RECOVERY_LIMIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A fleet; every topic has one query."""

    clusters: int = 200
    brokers: int = 50
    """Of one cluster, as the next ones."""
    topics: int = 25
    partitions: int = 200
    """Of one topic."""

    @property
    def all_partitions(self) -> int:
        """Of one cluster."""
        return self.topics * self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Who runs the loops."""

    name: str
    by_query: bool = False
    """Each query its own; else one for each cluster."""
    followed: float = 1.0
    """Share of the topics whose ends somebody reads."""
    all_ends: bool = False
    """There are readers of both isolations for every topic."""
    policy: Policy = field(default_factory=Policy)


WAYS = (
    Way(name="service, nobody follows", followed=0.0),
    Way(name="service, one topic of five followed", followed=0.2),
    Way(name="service, all topics followed"),
    Way(
        name="the same, offsets once a second", policy=Policy(offsets_interval_seconds=1.0, topics_interval_seconds=1.0)
    ),
    Way(name="every query its own loop", by_query=True),
)


class Fleet:
    """Some clusters of a fleet with the loops that follow them."""

    def __init__(self, size: Size, way: Way, *, played: int) -> None:
        """Make `played` clusters and start their loops."""
        self.size, self.way = size, way
        self.engine = Engine()
        self.asked = Asked(self.engine.monotonic)
        self._salts = itertools.count()
        self.clusters = [self._cluster(number) for number in range(played)]
        self.loops = [loop for cluster in self.clusters for loop in self._loops(cluster)]

    def _cluster(self, number: int) -> SimCluster:
        size = self.size
        return SimCluster(
            f"c{number}", brokers=size.brokers, topics=size.topics, partitions=size.partitions, asked=self.asked
        )

    def _loops(self, cluster: SimCluster) -> list[Loop]:
        names = [topic.name for topic in cluster.answer.topics]
        if not self.way.by_query:
            if self.way.all_ends:
                return [self._loop(cluster, Interest(pattern=".*", both_ends=True), everything)]
            read = names[: round(len(names) * self.way.followed)]
            wanted = tuple(Interest(topics=(name,)) for name in read)
            return [self._loop(cluster, Interest(pattern=".*", both_ends=True), lambda: wanted)]
        return [self._loop(cluster, Interest(topics=(name,)), everything) for name in names]

    def _loop(self, cluster: SimCluster, interest: Interest, demand: Demand) -> Loop:
        salt = 1 + next(self._salts)
        return Loop(self.engine, cluster, interest, salt=salt, demand=demand, policy=self.way.policy)

    @property
    def partitions_of_a_loop(self) -> int:
        """How many partitions each loop follows."""
        return self.size.partitions if self.way.by_query else self.size.all_partitions

    def settled(self) -> bool:
        """Tell whether every loop knows all it follows."""
        return all(loop.knows_all(self.partitions_of_a_loop) for loop in self.loops)

    def settle(self, limit_seconds: float = _RECOVERY_LIMIT_SECONDS) -> float | None:
        """Let time pass until all is known; return the simulated seconds, None at the limit."""
        began = self.engine.seconds
        while not self.settled():
            if self.engine.seconds - began >= limit_seconds:
                return None
            self.engine.run(self.engine.seconds + 0.1)
        return round(self.engine.seconds - began, 1)

    def requests(self, since: float, until: float) -> list[Counter[str]]:
        """Return what was asked in each whole second."""
        return [self.asked.by_second.get(second, Counter()) for second in range(int(since), int(until))]


def at_rest(size: Size, way: Way, *, played: int, seconds: float) -> dict[str, Any]:
    """Return requests a second to one broker, and processor time of all loops of the fleet."""
    fleet = Fleet(size, way, played=played)
    settled = fleet.settle()
    fleet.engine.run(int(fleet.engine.seconds) + 3.0)
    since, before, done = fleet.engine.seconds, sum(loop.cpu_seconds for loop in fleet.loops), fleet.asked.work.copy()
    fleet.engine.run(since + seconds)
    spent = sum(loop.cpu_seconds for loop in fleet.loops) - before
    total = sum(fleet.requests(since, since + seconds), Counter())
    a_broker = {kind: round(number / seconds / played / size.brokers, 2) for kind, number in sorted(total.items())}
    return {
        "way": way.name,
        "loops": len(fleet.loops) * size.clusters // played,
        "settled_after_seconds": settled,
        "requests_a_second_to_one_broker": a_broker,
        "requests_a_second": round(sum(total.values()) / seconds * size.clusters / played),
        "work_a_second": {
            name: round((number - done[name]) / seconds * size.clusters / played, 1)
            for name, number in fleet.asked.work.items()
        },
        "cores_of_our_code": round(spent / seconds * size.clusters / played, 2),
        "milliseconds_of_a_second_for_one_loop": round(spent / seconds / len(fleet.loops) * 1000, 2),
    }


def outage(size: Size, way: Way, *, played: int, outage_seconds: float, after_seconds: float) -> dict[str, Any]:
    """Return what brokers are asked while none of them answers, and once all return at the same instant."""
    fleet = Fleet(size, way, played=played)
    fleet.settle()
    down = int(fleet.engine.seconds) + 5.0
    fleet.engine.run(down)
    _set(fleet, up=False)
    fleet.engine.run(down + outage_seconds)
    _set(fleet, up=True)
    fresh = known = None
    until = down + outage_seconds + after_seconds
    while fleet.engine.seconds < until:
        fleet.engine.run(fleet.engine.seconds + 0.1)
        passed = round(fleet.engine.seconds - down - outage_seconds, 1)
        fresh = passed if fresh is None and all(loop.fresh for loop in fleet.loops) else fresh
        known = passed if known is None and fleet.settled() else known
    by_second = [round(sum(counted.values()) / played / size.brokers, 2) for counted in fleet.requests(down - 5, until)]
    back = 5 + int(outage_seconds)
    return {
        "way": way.name,
        "outage_seconds": outage_seconds,
        "requests_to_one_broker_by_second": by_second,
        "before": round(sum(by_second[:5]) / 5, 2),
        "during": round(sum(by_second[15:back]) / max(1, back - 15), 2),
        "peak_after_the_return": max(by_second[back:]),
        "all_fresh_after_seconds": fresh,
        "all_offsets_known_after_seconds": known,
    }


def _set(fleet: Fleet, *, up: bool) -> None:
    for cluster in fleet.clusters:
        cluster.up = up
