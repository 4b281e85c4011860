"""What the loop knows between two decisions. Frozen: `decide` returns a new one, and nothing else does."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from discovery.core.interest import Interest
from discovery.core.model import (
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    LoopState,
    Snapshot,
    TopicId,
    TopicName,
    Verdict,
)
from discovery.core.offsets import OffsetBook
from discovery.core.pin import PinSource
from discovery.core.questions import Agenda, Division, Leaders, partitions_by_leader
from discovery.core.suspicion import Suspicions

EVERYTHING = Interest(pattern="", both_ends=True)
_NONE_YET = Generation(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressState:
    """One candidate address. Times are monotonic seconds; None: never."""

    verdict: Verdict | None = None
    detail: str = ""
    since: float | None = None
    """When the verdict last changed."""
    failures: int = 0
    """Failed probes in a row."""
    quarantined_until: float | None = None
    asked_at: float | None = None
    """Last probe of any kind."""
    proved_at: float | None = None
    """Last full answer; None also asks for a new proof at once."""
    cluster_id: ClusterId | None = None
    """What its last full answer said."""
    listed: frozenset[BrokerId] = frozenset()
    """Brokers its last full answer named: its voice when somebody is to be removed."""

    @property
    def alive(self) -> bool:
        """Tell whether clients may be sent there."""
        return self.verdict is Verdict.ALIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkClaim:
    """An answer that drops more brokers than one cycle may: believed once others say the same."""

    gone: frozenset[BrokerId]
    since: float
    confirmations: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A followed topic that an answer did not know. A single answer proves nothing."""

    since: float
    answers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All the loop knows. Make the first one with `initial_state`."""

    configured: tuple[BrokerAddress, ...]
    addresses: Mapping[BrokerAddress, AddressState]
    interest: Interest = EVERYTHING
    """What is followed."""
    salt: int = 0
    """Makes the jitter of this process differ from others'."""
    pin: ClusterId | None = None
    pin_source: PinSource | None = None
    list_outvotes: bool = False
    """Nothing was read yet: a list whose addresses are all of one other cluster replaces a saved view of the dead."""
    floor: Generation = _NONE_YET
    """The newest generation of earlier runs, where no view of theirs is left."""
    left: Snapshot | None = None
    """The saved view that the list replaced."""
    first_answer_at: float | None = None
    """When the first cluster id was heard while there was no pin."""
    snapshot: Snapshot | None = None
    confirmed_at: float | None = None
    """When a trusted metadata answer last confirmed the snapshot in this run."""
    confirmed_client: int | None = None
    """Through which client that was."""
    claim: ShrinkClaim | None = None
    dropped: tuple[tuple[float, int], ...] = ()
    """(when, how many) brokers were dropped lately, so that many small steps do not pass the brake."""
    absences: Mapping[TopicName, Absence] = field(default_factory=dict)
    topic_ids: Mapping[TopicName, TopicId] = field(default_factory=dict)
    """The newest ids answered; metadata answers carry none."""
    first_ids: Mapping[TopicName, TopicId] = field(default_factory=dict)
    """The first ids answered through a client that was proved: what was read before had these."""
    without_id: frozenset[TopicName] = frozenset()
    """Topics of the snapshot whose id nobody has answered."""
    suspicions: Suspicions = field(default_factory=dict)
    """Topics that may have been recreated: see `suspicion.py`."""
    offsets: OffsetBook = field(default_factory=OffsetBook)
    leaders: Leaders = field(default_factory=dict)
    """Followed partitions of the snapshot by leader; another object only when it changed."""
    division: Division = field(default_factory=Division)
    """The leaders as they were divided last; kept, for it costs O(partitions)."""
    agenda: Agenda = field(default_factory=Agenda)
    metadata_failures: int = 0
    """In a row."""
    complaint: str = ""
    """Why the last metadata request failed; empty after one that did not."""
    client: int = 0
    """Number of the present client, 0: none yet. An answer obtained through an older one is not trusted."""
    save_again_at: float | None = None
    """When the snapshot is to be written again, after a failure."""
    loop_state: LoopState = LoopState.COLD
    fatal: str | None = None

    @property
    def living(self) -> tuple[BrokerAddress, ...]:
        """Return the addresses that clients may be sent to, brokers of the snapshot first, the rest as configured."""
        alive = [address for address, known in self.addresses.items() if known.alive]
        listed = {b.address for b in self.snapshot.brokers} if self.snapshot else set()
        return tuple(sorted(alive, key=lambda a: (a not in listed, str(a))))

    @property
    def leading(self) -> frozenset[BrokerAddress]:
        """Return where the leaders of followed partitions listen: asked every cycle, for their return is awaited."""
        brokers = self.snapshot.brokers if self.snapshot else ()
        return frozenset(broker.address for broker in brokers if broker.broker_id in self.leaders)

    def with_address(self, address: BrokerAddress, known: AddressState) -> "State":
        """Return this state with one address changed."""
        return replace(self, addresses={**self.addresses, address: known})


def initial_state(
    configured: Iterable[BrokerAddress],
    *,
    interest: Interest = EVERYTHING,
    snapshot: Snapshot | None = None,
    cluster_id: ClusterId | None = None,
    salt: int = 0,
    list_outvotes: bool = False,
    floor: Generation = _NONE_YET,
) -> State:
    """Return the state of a loop that has asked nobody yet.

    Args:
        configured: 1..n addresses from the user.
        interest: What to follow.
        snapshot: The persisted view; its brokers become candidates and its cluster id the pin.
        cluster_id: The pin given by the user; wins over the snapshot's, whose content is dropped if it differs.
        salt: Any number; differs between processes.
        list_outvotes: The configured addresses may replace the persisted view: see `State`.
        floor: What is numbered is numbered above; the persisted view is at or above it.

    Runs: anywhere (pure).
    """
    listed = tuple(dict.fromkeys(configured))
    if snapshot is not None and cluster_id not in (None, snapshot.cluster_id):
        snapshot = None
    learned = tuple(b.address for b in snapshot.brokers) if snapshot else ()
    pin = cluster_id or (snapshot.cluster_id if snapshot else None)
    return State(
        configured=listed,
        addresses={address: AddressState() for address in (*listed, *learned)},
        interest=interest,
        salt=salt,
        pin=pin,
        pin_source=PinSource.OPTION if cluster_id else PinSource.SAVED if snapshot else None,
        list_outvotes=list_outvotes,
        floor=floor,
        snapshot=snapshot,
        without_id=without_id(snapshot, {}),
        leaders=partitions_by_leader(snapshot, interest),
        loop_state=LoopState.FAILSAFE if snapshot else LoopState.COLD,
    )


def without_id(snapshot: Snapshot | None, topic_ids: Mapping[TopicName, TopicId]) -> frozenset[TopicName]:
    """Return the topics of a snapshot whose id nobody has answered.

    Runs: anywhere (pure); O(topics).
    """
    topics = snapshot.topics if snapshot else {}
    return frozenset(name for name, topic in topics.items() if topic.topic_id is None and name not in topic_ids)
