"""What happened and when: the raw material of the report."""

import threading
from dataclasses import dataclass, field
from enum import Enum


class BrokerState(Enum):
    """What a broker's process does."""

    ALIVE = "alive"
    FROZEN = "frozen"
    DEAD = "dead"


class Moment(Enum):
    """The kinds of things worth a mark on the timeline."""

    STARTED = "started"
    PARTITIONS = "partitions"
    KILLED = "killed"
    FROZEN = "frozen"
    THAWED = "thawed"
    STOPPED = "stopped"
    RESTARTED = "restarted"
    SINGLE = "single"
    RETURNED = "returned"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One thing that happened."""

    wall: float
    moment: Moment
    text: str
    """A sentence, for the terminal and the report."""
    label: str = ""
    """Two or three words for the picture; empty: not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What could be seen at one moment."""

    wall: float
    produced: int = 0
    """Acknowledged records of the main topic."""
    counted: int = 0
    """Records in finished batches."""
    rows_per_second: float = 0.0
    lag: int = 0
    """Acknowledged records that no finished batch holds yet."""
    partitions: int = 0
    """Partitions of which a finished batch held a row."""
    brokers: dict[int, BrokerState] = field(default_factory=dict)

    def count(self, state: BrokerState) -> int:
        """Return how many brokers are in this state."""
        return sum(1 for found in self.brokers.values() if found is state)


class Recording:
    """Collects marks and samples. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._marks: list[Mark] = []
        self._samples: list[Sample] = []

    def mark(self, mark: Mark) -> None:
        """Keep a mark."""
        with self._lock:
            self._marks.append(mark)

    def sample(self, sample: Sample) -> None:
        """Keep a sample."""
        with self._lock:
            self._samples.append(sample)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """All marks so far, in order."""
        with self._lock:
            return tuple(self._marks)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples so far, in order."""
        with self._lock:
            return tuple(self._samples)

    def wall_of(self, moment: Moment) -> float | None:
        """Return when this first happened; None: it has not."""
        return next((mark.wall for mark in self.marks if mark.moment is moment), None)
