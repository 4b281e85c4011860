"""What a loop did, counted as it happens. Written by the loop's thread alone, read by scrapes."""

from collections import Counter
from dataclasses import dataclass, field

from discovery.core.answers import Answer, MetadataAnswer, MetadataFailure, ProbeOutcome
from discovery.core.decide import Decision
from discovery.core.diff import EventKind
from discovery.core.errors import FailureKind
from discovery.core.model import TopicName, Verdict

BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OUTCOMES = ("success", *(kind.value for kind in FailureKind))
DISAGREEMENTS = ("cluster_id", "broker_set")


@dataclass(slots=True)
class Counts:
    """Counters of one cluster's loop; they live as long as the process, whatever happens to the loop."""

    cycles: Counter[str] = field(default_factory=Counter)
    """Metadata rounds by outcome."""
    duration_buckets: Counter[float] = field(default_factory=Counter)
    duration_seconds_sum: float = 0.0
    deadline_exceeded: int = 0
    attempts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(address, result) -> probes."""
    partitions_added: Counter[str] = field(default_factory=Counter)
    shrink_blocked: Counter[str] = field(default_factory=Counter)
    disagreements: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    """Partitions by topic, as of the last event."""
    last_success_wall: float | None = None

    def take(self, decision: Decision, *, wall: float, deadline_seconds: float) -> None:
        """Count what a decision brought.

        Runs: the loop's thread; O(answers).
        """
        for answer in decision.taken:
            self._answer(answer, wall, deadline_seconds)
        for event in decision.events:
            self.events[event.kind.value] += 1
            if event.kind is EventKind.SHRINK_BLOCKED:
                self.shrink_blocked["brokers" if event.subject == "brokers" else "partitions"] += 1
                self.disagreements["broker_set"] += event.subject == "brokers"
            elif event.kind is EventKind.CLUSTER_MISMATCH:
                self.disagreements["cluster_id"] += 1
            elif event.kind is EventKind.PARTITIONS_ADDED:
                self.partitions_added[event.subject] += _size(decision, event.subject) - self.sizes[event.subject]
        if decision.events and decision.state.snapshot is not None:
            self.sizes = Counter({name: len(t.partitions) for name, t in decision.state.snapshot.topics.items()})

    def forget(self, addresses: frozenset[str], topics: frozenset[str]) -> None:
        """Drop the series of addresses and topics that are no more; `addresses` and `topics` are those that are."""
        for key in [key for key in self.attempts if key[0] not in addresses]:
            del self.attempts[key]
        for topic in [topic for topic in self.partitions_added if topic not in topics]:
            del self.partitions_added[topic]

    def _answer(self, answer: Answer, wall: float, deadline_seconds: float) -> None:
        if isinstance(answer, ProbeOutcome):
            result = answer.failure.value if answer.failure else "connected" if answer.tcp_only else Verdict.ALIVE.value
            self.attempts[str(answer.address), result] += 1
        elif isinstance(answer, (MetadataAnswer, MetadataFailure)):
            outcome = "success" if isinstance(answer, MetadataAnswer) else answer.kind.value
            self.cycles[outcome] += 1
            self.last_success_wall = wall if outcome == "success" else self.last_success_wall
            self.deadline_exceeded += answer.elapsed_seconds > deadline_seconds
            self.duration_seconds_sum += answer.elapsed_seconds
            bucket = next((b for b in BUCKETS_SECONDS if answer.elapsed_seconds <= b), float("inf"))
            self.duration_buckets[bucket] += 1


def _size(decision: Decision, topic: str) -> int:
    known = decision.state.snapshot.topics.get(TopicName(topic)) if decision.state.snapshot else None
    return len(known.partitions) if known else 0
