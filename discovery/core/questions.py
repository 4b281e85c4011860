"""What the loop asks. A question under way says which parts of its answer still count, however late it comes."""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, BrokerId, Isolation, Snapshot, TopicName, TopicPartition

Leaders = Mapping[BrokerId, tuple[TopicPartition, ...]]
Wanted = tuple[Interest, ...]
"""Whose end offsets must be fresh; nothing: nobody reads. The others are asked for seldom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vet:
    """Have addresses judged: all must accept a connection, those in `full` answer a metadata request."""

    addresses: frozenset[BrokerAddress]
    """Those without an outcome yet."""
    full: frozenset[BrokerAddress]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskMetadata:
    """Ask for brokers and followed topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTopicIds:
    """Ask for the ids of topics, 1..n."""

    topics: tuple[TopicName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOffsets:
    """Ask one leader for the ends of its partitions."""

    leader_id: BrokerId
    partitions: tuple[TopicPartition, ...]
    isolations: tuple[Isolation, ...]
    with_start: bool = False
    """Also ask for the earliest offsets."""
    seldom: bool = False
    """Nobody needs them fresh."""
    patient: bool = False
    """The leader is slow: ask it through a client of its own, which waits longer and holds up nobody else."""


Question = Vet | AskMetadata | AskTopicIds | AskOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One question under way."""

    name: str
    """Unique in a run."""
    question: Question


SLOW_SECONDS = 2.0


class LeaderKey(NamedTuple):
    """A leader has two rhythms: one for what somebody reads, one for the rest."""

    leader_id: BrokerId
    seldom: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """When and for what a leader was asked last. Times are monotonic seconds."""

    asked_at: float
    start_asked_at: float
    partitions: tuple[TopicPartition, ...]
    failures: int = 0
    """Questions in a row without any offset in the answer."""
    overdue: bool = False
    """The question under way has been unanswered for longer than the leader is given."""


@dataclass(slots=True, kw_only=True)
class Agenda:
    """When what was asked last, and what is under way. Times are monotonic seconds; None: not yet.

    `decide` changes a copy of its own: it notes more here in every turn than in all the rest of the state.
    """

    calls: dict[str, Question] = field(default_factory=dict)
    """Under way, by the name of the call."""
    calls_made: int = 0
    metadata_at: float | None = None
    """The next instant of the grid."""
    metadata_asked_at: float = float("-inf")
    ids_at: float | None = None
    """When all topic ids are due."""
    ids_asked_at: float = float("-inf")
    ids_pressed_until: dict[TopicName, float] = field(default_factory=dict)
    """Until when an id that an answer left out is asked for again soon."""
    leaders: dict[LeaderKey, Asked] = field(default_factory=dict)
    took_seconds: dict[BrokerId, float] = field(default_factory=dict)
    """The slowest request of the last question to this leader that ended."""
    newest: dict[BrokerId, tuple[float, Container[TopicPartition]]] = field(default_factory=dict)
    """When the newest question was asked that this leader has answered, and about which partitions it did."""

    def is_slow(self, leader: BrokerId) -> bool:
        """Tell whether a leader needed, or used up, more time than a healthy one needs."""
        return self.took_seconds.get(leader, 0.0) >= SLOW_SECONDS

    def answers_slowly(self, leader: BrokerId) -> bool:
        """Tell whether a leader answers, though later than a healthy one: alive, whatever its address is judged."""
        both = (self.leaders.get(LeaderKey(leader, seldom)) for seldom in (False, True))
        return self.is_slow(leader) and any(a is not None and not a.overdue and not a.failures for a in both)

    @property
    def asked_patiently(self) -> frozenset[BrokerId]:
        """Return the leaders that are slow, or were when they were asked."""
        patient = {q.leader_id for q in self.calls.values() if isinstance(q, AskOffsets) and q.patient}
        return frozenset(patient.union(filter(self.is_slow, self.took_seconds)))

    def copy(self) -> "Agenda":
        """Return another one of equal content."""
        return replace(
            self,
            calls=dict(self.calls),
            ids_pressed_until=dict(self.ids_pressed_until),
            leaders=dict(self.leaders),
            took_seconds=dict(self.took_seconds),
            newest=dict(self.newest),
        )

    def forget_leaders(self, leading: Iterable[BrokerId]) -> None:
        """Forget those that lead nothing any more and owe no answer."""
        kept = {q.leader_id for q in self.calls.values() if isinstance(q, AskOffsets)}.union(leading)
        self.leaders = {key: asked for key, asked in self.leaders.items() if key.leader_id in kept}
        self.took_seconds = {leader: took for leader, took in self.took_seconds.items() if leader in kept}
        self.newest = {leader: asked for leader, asked in self.newest.items() if leader in kept}


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Partitions by leader, those that somebody wants apart from the rest."""

    leaders: Leaders = field(default_factory=dict)
    wanted: Wanted | None = None
    """None: all."""
    chosen: Leaders = field(default_factory=dict)
    rest: Leaders = field(default_factory=dict)


def partitions_by_leader(snapshot: Snapshot | None, interest: Interest) -> Leaders:
    """Group the followed partitions that have a leader by that leader.

    Runs: anywhere (pure); O(partitions).
    """
    groups: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for topic in snapshot.topics.values() if snapshot else ():
        if not interest.wants_topic(topic.name):
            continue
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition)
            if p.leader_id is not None and (not interest.assigned or partition in interest.assigned):
                groups[p.leader_id].append(partition)
    return {leader: tuple(partitions) for leader, partitions in groups.items()}
