"""What Spark sees of the loop: a view from memory, and a few questions that do ask Kafka.

The Spark source depends on these two protocols alone. `embedded.py` runs a loop in this process.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from discovery.core.interest import Interest
from discovery.core.model import (
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    Isolation,
    LoopState,
    TopicId,
    TopicName,
    TopicPartition,
    Verdict,
)

__all__ = [
    "ID_ASKED",
    "AddressReport",
    "FeedView",
    "Interest",
    "OffsetService",
    "PartitionFeed",
    "PartitionView",
    "SourceFeed",
    "verdicts",
]

ID_ASKED = "its topic's id is being asked"
"""Parked for this is every partition of a new topic, for 0.8 s at most, and of a saved view at a restart, for 10 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition as a planner needs it. None is unknown."""

    topic_id: TopicId | None
    leader_id: BrokerId | None
    leader: BrokerAddress | None
    leader_epoch: int | None = None
    start_offset: int | None = None
    """Earliest readable offset."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    parked_reason: str | None = None
    """Not None: do not plan it now; the sentence says why (no leader, silent leader, unknown end, topic gone)."""
    parked_since_wall: float | None = None
    answer_seconds: float = 0.0
    """How long its leader takes for an answer, in whole seconds; 0: it is quick, or not known."""
    gone: bool = False
    """Its topic does not exist any more, confirmed; kept so that it resumes if the topic returns."""

    def end_offset(self, isolation: Isolation) -> int | None:
        """Return the end a reader of this isolation may read up to, or None while it is unknown."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressReport:
    """What we think of one address, for tables and messages."""

    verdict: Verdict | None
    """None: not asked yet."""
    detail: str = ""
    since_wall: float | None = None
    configured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedView:
    """An immutable picture. `version` grows with every change of anything in it, `generation` with the snapshot."""

    version: int
    generation: Generation
    state: LoopState
    cluster_id: ClusterId | None
    age_seconds: float
    """Since a trusted answer last confirmed it."""
    bootstrap: tuple[BrokerAddress, ...]
    """Vetted living brokers, best first; never empty once one was alive (then the last known ones)."""
    partitions: Mapping[TopicPartition, PartitionView] = field(default_factory=lambda: MappingProxyType({}))
    """Followed partitions, parked ones included, ordered by topic and partition."""
    missing_topics: tuple[TopicName, ...] = ()
    """Subscribed by name and not there, confirmed."""
    addresses: Mapping[BrokerAddress, AddressReport] = field(default_factory=lambda: MappingProxyType({}))
    answered: Mapping[BrokerId, tuple[float, Container[TopicPartition]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """When (monotonic) each leader was asked what it answered last, and about what; empty: a service asks, not we."""
    last_run_topic_ids: Mapping[TopicName, TopicId] = field(default_factory=lambda: MappingProxyType({}))
    """Under which ids the last run of this very source read its topics; empty where that is not known for certain."""
    first_topic_ids: Mapping[TopicName, TopicId] = field(default_factory=lambda: MappingProxyType({}))
    """The first id that this run's loop learned of each topic: one recreated since has another one by now."""
    left_cluster: ClusterId | None = None
    """Whose saved view the list replaced at this start: see `core.state.State`."""
    fallback: str = ""
    """Why an embedded loop stands in for the service that is to be followed; empty: it does not."""
    sentence: str = ""
    """What the last cycle concluded."""
    fatal: str | None = None
    """Not None: waiting will not help (every listed address belongs to another cluster); names the remedy."""


def cold_view(bootstrap: Iterable[BrokerAddress], cluster_id: ClusterId | None, sentence: str) -> FeedView:
    """Return the picture before anything is known.

    Runs: anywhere (pure).
    """
    return FeedView(
        version=0,
        generation=Generation(0),
        state=LoopState.COLD,
        cluster_id=cluster_id,
        age_seconds=float("inf"),
        bootstrap=(),
        addresses=MappingProxyType({a: AddressReport(verdict=None, configured=True) for a in bootstrap}),
        sentence=sentence,
    )


def verdicts(view: FeedView) -> str:
    """List each address with its verdict and the reason, on one line.

    Runs: anywhere (pure).
    """
    lines = [
        f"{address}: {report.verdict.value if report.verdict else 'not asked yet'}"
        + (f" ({report.detail})" if report.detail else "")
        for address, report in view.addresses.items()
    ]
    return "; ".join(lines) or "no address was asked yet"


class PartitionFeed(Protocol):
    """Follows partitions for one reader. Thread-safe. The constructor does no I/O; `start` begins the work."""

    def start(self) -> None:
        """Begin following; returns at once; a second call does nothing.

        Raises:
            StateError: the state is held by another process.
        """
        ...

    def view(self) -> FeedView:
        """Return the picture of this moment; from memory, in microseconds."""
        ...

    def wait(self, version: int, timeout_seconds: float) -> FeedView:
        """Return as soon as the picture is newer than `version`, else the current one after the timeout."""
        ...

    def refresh(self, timeout_seconds: float) -> FeedView:
        """Ask Kafka now for metadata and end offsets of all followed partitions; return a picture with the answers.

        Partitions whose leader did not answer in time are parked in it; those of a leader that is known to be slow, in
        it alone.

        Raises:
            KafkaUnreachableError: no living broker answered in time; carries a verdict per address.
        """
        ...

    def ack(self, generation: Generation) -> None:
        """Say that this generation is in use."""
        ...

    def note_plan(self) -> None:
        """Hear that the reader plans now: where it does so in a rhythm, little is asked in between. From memory."""
        ...

    def report(self, positions: Mapping[TopicPartition, int]) -> None:
        """Say where the reader stands, for whoever looks after its lag; from memory."""
        ...

    def stop(self) -> None:
        """Stop the work and release files and sockets; blocks <= 5 s; a second call does nothing."""
        ...


class OffsetService(Protocol):
    """Questions that cost I/O, each with a timeout. Asked at starts, never on a normal trigger."""

    def resolve(
        self, wanted: Mapping[TopicPartition, int], *, timeout_seconds: float, by_timestamp: bool = False
    ) -> Mapping[TopicPartition, int]:
        """Turn -2 (earliest), -1 (latest) or, with `by_timestamp`, epoch milliseconds into offsets.

        Returns:
            Offsets >= 0; a partition whose leader did not answer is absent. With `by_timestamp`, -1 (latest) for a
            partition that has no record at or after the timestamp.

        Raises:
            KafkaUnreachableError: nothing was answered at all.
        """
        ...

    def committed(
        self, group: str, partitions: Collection[TopicPartition], *, timeout_seconds: float
    ) -> Mapping[TopicPartition, int]:
        """Return a group's committed offsets; partitions without one are absent.

        Raises:
            KafkaUnreachableError: the group's coordinator did not answer, or refused.
        """
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_seconds: float) -> None:
        """Set a group's committed offsets (>= 0), back as well as forward; refused while the group has members.

        Raises:
            KafkaUnreachableError: not everything was taken; says why.
        """
        ...


class SourceFeed(PartitionFeed, OffsetService, Protocol):
    """What a Spark source needs of one object: the picture, and the questions."""
