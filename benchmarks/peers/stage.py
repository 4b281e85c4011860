"""What a case acts on, and what it says it did."""

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.load import Load
from benchmarks.peers.program import System, now, wait_level, wait_rows
from discovery.localkafka.cluster import LocalKafka

PARTITIONS = 6
ALL = tuple(range(PARTITIONS))
_FIRST_ROWS_SECONDS = 120.0
_LEVEL_SECONDS = 40.0
_WARM_SECONDS = 5.0
_AFTER_SECONDS = 20.0
_AFTER_START_SECONDS = 3.0
_AROUND_SECONDS = 55.0
"""Of a cell, beside its watching: topic, start, first rows, catching up, bringing brokers back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a case may act on."""

    cluster: LocalKafka
    topic: str
    system: System
    load: Load
    listed: str
    """The list the system is started with, every time."""
    placement: Sequence[Sequence[int]]
    """The replicas of each partition of the topic, the leader first."""
    folder: Path
    stack: contextlib.ExitStack
    """Ends what the case started, at the end of the cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What a fault did."""

    since: float
    """When it began."""
    healed_at: float
    """When as much as will be was well again; recovery counts from here."""
    living: tuple[int, ...] = ALL
    """Partitions that can be read all the time, or again."""


def plain_hosts() -> str:
    """Return the file of names that every process needs; Spark asks for the machine's own."""
    return f"127.0.0.1 localhost {socket.gethostname()}\n"


def all_brokers(cluster: LocalKafka, _: contextlib.ExitStack) -> str:
    """List every broker."""
    return cluster.bootstrap_servers


def running(stage: Stage) -> None:
    """Start the system and let it read until it keeps up, and a while more: how most cases begin."""
    stage.system.start(stage.listed)
    wait_rows(stage.system, PARTITIONS, _FIRST_ROWS_SECONDS)
    wait_level(stage.system, stage.load, _LEVEL_SECONDS)
    time.sleep(_WARM_SECONDS)


def revived(stage: Stage) -> None:
    """Bring every broker back: how most cases end, so that all records can be counted."""
    stage.cluster.heal()


def at_once(*, living: Sequence[int] = ALL) -> Struck:
    """Say that it happened now and nothing heals it."""
    at = now()
    return Struck(since=at, healed_at=at, living=tuple(living))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of trouble."""

    name: str
    title: str
    strike: Callable[[Stage], Struck]
    brokers: int = 6
    copies: int = 3
    watch_seconds: float = 30.0
    """From the fault, or from the end of one that takes longer."""
    is_start: bool = False
    """A start is what is measured, not what happens to a system that reads already."""
    listed: Callable[[LocalKafka, contextlib.ExitStack], str] = all_brokers
    begin: Callable[[Stage], None] = running
    heal: Callable[[Stage], None] = field(default=revived)
    own_names: bool = False
    """The system sees names of its own, in the file `hosts` of the cell's folder."""
    listener: str | None = None
    """The brokers' listener for the system alone; such a case has a network of its own."""

    takes_seconds: float = 0.0
    """The fault itself, where that is not done in a moment."""

    @property
    def after_seconds(self) -> float:
        """How much longer a system is watched that reads all living partitions again."""
        return _AFTER_START_SECONDS if self.is_start else _AFTER_SECONDS

    @property
    def most_seconds(self) -> float:
        """About how long a cell takes at most."""
        return self.takes_seconds + self.watch_seconds + _AROUND_SECONDS

    def placement(self) -> list[list[int]]:
        """Return the replicas of each partition; leaders are spread over all brokers."""
        step = self.brokers // PARTITIONS
        return [self._ring(1 + place * step) for place in range(PARTITIONS)]

    def _ring(self, leader: int) -> list[int]:
        return [(leader - 1 + step) % self.brokers + 1 for step in range(self.copies)]
