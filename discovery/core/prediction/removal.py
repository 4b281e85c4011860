"""May these brokers be removed? From what a cluster says of itself to findings and a verdict. Pure.

A wrong "safe" is worse than none: SAFE needs every fact, what is missing makes it UNKNOWN, and a replica that is left
behind makes it NOT, even where everything would go on for now, for that replica is gone for good.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from discovery.core.errors import ConfigError
from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    PartitionMetadata,
    TopicMetadata,
    TopicName,
    TopicPartition,
    parse_bootstrap_servers,
)
from discovery.core.plural import counted
from discovery.core.prediction.reassignment import plan_reassignment

GROUPS = TopicName("__consumer_offsets")
TRANSACTIONS = TopicName("__transaction_state")
_THIN = 2
"""A list needs so many living entries, or one more dead broker ends every start."""
_SHOWN = 8
_MOST_ID = 2**31 - 1


class Safety(Enum):
    """The verdict."""

    SAFE = "safe"
    NOT = "not"
    UNKNOWN = "unknown"


class Level(Enum):
    """What a finding means for the verdict."""

    BREAKS = "breaks"
    """Something stops working or is lost: not safe."""
    WEAKENS = "weakens"
    """Everything goes on with less to spare, for good: not safe, unless the brokers come back."""
    UNKNOWN = "unknown"
    """Could not be found out."""
    MOVES = "moves"
    """Moves by itself; a pause of seconds."""
    TIDY = "tidy"
    """Worth doing afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalFacts:
    """What is known of the cluster at one moment."""

    brokers: tuple[Broker, ...]
    """Those that metadata lists."""
    topics: tuple[TopicMetadata, ...]
    """All of them, internal ones included."""
    min_in_sync: Mapping[TopicName, int] = field(default_factory=dict)
    """`min.insync.replicas`; a topic that is absent is unknown."""
    voters: frozenset[BrokerId] = frozenset()
    """Voters of the metadata quorum, as far as brokers tell: those that are brokers too, and all of a static quorum."""
    groups: tuple[str, ...] = ()
    lists: Mapping[str, tuple[BrokerAddress, ...]] = field(default_factory=dict)
    """Bootstrap lists by who uses them."""
    clients_known: bool = False
    """Whether clients' lists are among `lists`, or somebody confirms that there are no other clients."""
    alive: Mapping[BrokerAddress, BrokerId | None] = field(default_factory=dict)
    """Addresses that answer for this cluster, and which broker does; None: not known, as behind a load balancer."""
    dead: frozenset[BrokerAddress] = frozenset()
    """Addresses known to be no use. One that is neither alive nor dead could not be judged."""
    doubts: tuple[str, ...] = ()
    """What could not be found out, a sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalFinding:
    """One thing that the removal does."""

    code: str
    level: Level
    sentence: str
    subjects: tuple[str, ...] = ()
    """All of them, where the sentence names a few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The verdict with its reasons, the gravest first."""

    safety: Safety
    leaving: tuple[BrokerId, ...]
    findings: tuple[RemovalFinding, ...]
    plan: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """Where the replicas should go first; empty where none needs to, or none can."""

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        ids = ", ".join(map(str, self.leaving))
        who = f"broker{'s' if len(self.leaving) > 1 else ''} {ids}"
        reasons = [finding.code for finding in self.findings if finding.level in _AGAINST]
        match self.safety:
            case Safety.SAFE:
                return f"safe: {who} can be removed"
            case Safety.NOT:
                return f"not safe: do not remove {who} yet ({', '.join(reasons)})"
            case _:
                return f"unknown: not everything could be found out about {who}; do not remove yet"


_AGAINST = (Level.BREAKS, Level.WEAKENS)
_ORDER = tuple(Level)


def parse_broker_ids(text: str, *, option: str = "brokers") -> frozenset[BrokerId]:
    """Read `9,10,11,12`: 1..n ids.

    Raises:
        ConfigError: it names none, or something that is no id; names `option`.

    Runs: anywhere (pure).
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not (part.isascii() and part.isdigit() and int(part) <= _MOST_ID):
            raise ConfigError(f"{option}: {part[:50]!r} is no broker id; write numbers like 9,10,11,12")
    if not parts:
        raise ConfigError(f"{option}: name at least one broker id, like 9,10,11,12")
    return frozenset(BrokerId(int(part)) for part in parts)


def parse_lists(text: str, *, option: str = "lists") -> dict[str, tuple[BrokerAddress, ...]]:
    """Read who uses which bootstrap list: lines of `name = host:port,host:port`; 1..n, # begins a remark.

    Raises:
        ConfigError: a line is none of this, or there is none; names `option` and the line.

    Runs: anywhere (pure).
    """
    found: dict[str, tuple[BrokerAddress, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, servers = (part.strip() for part in line.partition("#")[0].partition("="))
        if name and equals:
            found[name] = parse_bootstrap_servers(servers, option=f"{option}: line {number}")
        elif name:
            raise ConfigError(f"{option}: line {number} ({name[:50]!r}) is not like: name = host:port,host:port")
    if not found:
        raise ConfigError(f"{option}: there is no list; write lines like: name = host:port,host:port")
    return found


def judge(facts: RemovalFacts, leaving: Collection[BrokerId], *, temporary: bool = False) -> Removal:
    """Say what a removal would do.

    Args:
        facts: Of this moment.
        leaving: Ids, 1..n.
        temporary: They come back: fewer replicas and thinner lists meanwhile are accepted.

    Raises:
        ValueError: nobody is to be removed.

    Runs: anywhere (pure).
    """
    if not leaving:
        raise ValueError("a removal needs at least one broker")
    gone = frozenset(leaving)
    found = [*_cluster(facts, gone), *_partitions(facts, gone), *_moves(facts, gone), *_lists(facts, gone)]
    found += [RemovalFinding(code="unknown", level=Level.UNKNOWN, sentence=doubt) for doubt in facts.doubts]
    return _concluded(facts, gone, found, temporary=temporary)


def verify(facts: RemovalFacts, leaving: Collection[BrokerId]) -> Removal:
    """Say whether a removal is complete and has left everything well.

    Raises:
        ValueError: nobody was to be removed.

    Runs: anywhere (pure).
    """
    if not leaving:
        raise ValueError("a removal needs at least one broker")
    gone = frozenset(leaving)
    found = [*_remains(facts, gone), *_health(facts, gone)]
    found += [RemovalFinding(code="unknown", level=Level.UNKNOWN, sentence=doubt) for doubt in facts.doubts]
    return _concluded(facts, gone, found, temporary=False)


def coordinator_partition(group: str, partitions: int) -> int:
    """Return which partition of `__consumer_offsets` keeps a group: its leader is the coordinator.

    Source: `GroupMetadataManager.partitionFor`: Java's hash of the name.

    Runs: anywhere (pure).
    """
    value = 0
    data = group.encode("utf-16-be", "surrogatepass")
    for place in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[place : place + 2], "big")) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return (0 if signed == -(2**31) else abs(signed)) % partitions


def _concluded(
    facts: RemovalFacts, gone: frozenset[BrokerId], found: Sequence[RemovalFinding], *, temporary: bool
) -> Removal:
    ordered = tuple(sorted(found, key=lambda finding: _ORDER.index(finding.level)))
    levels = {finding.level for finding in found}
    against = Level.BREAKS in levels or (Level.WEAKENS in levels and not temporary)
    unknown = Level.UNKNOWN in levels
    safety = Safety.NOT if against else Safety.UNKNOWN if unknown else Safety.SAFE
    return Removal(safety=safety, leaving=tuple(sorted(gone)), findings=ordered, plan=_plan(facts, gone))


def _all(facts: RemovalFacts) -> Iterator[tuple[TopicMetadata, PartitionMetadata, TopicPartition]]:
    for topic in facts.topics:
        for partition in topic.partitions:
            yield topic, partition, TopicPartition(topic.name, partition.partition)


def _cluster(facts: RemovalFacts, gone: frozenset[BrokerId]) -> Iterator[RemovalFinding]:
    listed = {broker.broker_id for broker in facts.brokers}
    if listed and listed <= gone:
        text = "No broker would remain."
        yield RemovalFinding(code="nobody-left", level=Level.BREAKS, sentence=text)
    both = sorted(gone & facts.voters)
    if both:
        left = facts.voters - gone
        rest = f"only {', '.join(_texts(sorted(left)))} would still vote" if left else "nobody would vote any more"
        text = (
            f"{_ids(both)} {'controllers' if len(both) > 1 else 'a controller'}: of the quorum's "
            f"{counted(len(facts.voters), 'known voter')} {rest}. Take it out of the quorum first "
            "(kafka-metadata-quorum … remove-controller)."
        )
        yield RemovalFinding(code="controller", level=Level.BREAKS, sentence=text, subjects=_texts(both))
    absent = sorted(gone - listed - facts.voters) if listed else []
    if absent:
        text = (
            f"{_ids(absent)} not among the brokers that the cluster lists now: a wrong id, or dead, stopped, or "
            "removed already (then --verify says whether that is complete)."
        )
        yield RemovalFinding(code="not-listed", level=Level.UNKNOWN, sentence=text, subjects=_texts(absent))


def _partitions(facts: RemovalFacts, gone: frozenset[BrokerId]) -> Iterator[RemovalFinding]:
    held = [(t, p, tp) for t, p, tp in _all(facts) if gone & {*p.replicas, p.leader_id}]
    last = [tp for _, p, tp in held if not set(p.replicas) - gone]
    behind = [tp for _, p, tp in held if set(p.replicas) - gone and not set(p.in_sync) - gone]
    kept = [(t, p, tp) for t, p, tp in held if set(p.in_sync) - gone]
    below = [tp for t, p, tp in kept if len(set(p.in_sync) - gone) < facts.min_in_sync.get(t.name, 0)]
    unsure = sorted({t.name for t, p, _ in kept if t.name not in facts.min_in_sync})
    yield from _found("last-replica", Level.BREAKS, last, "The last replica goes, and the records with it")
    text = "The last replica in sync goes: no leader, or an unclean one and lost records"
    yield from _found("last-in-sync", Level.BREAKS, behind, text)
    text = "min.insync.replicas is met no longer, and writers with acks=all are refused"
    yield from _found("below-min", Level.BREAKS, below, text)
    fewer = [tp for _, _, tp in held if tp not in {*last, *behind, *below}]
    yield from _found("replicas", Level.WEAKENS, fewer, "A replica is there, and fewer remain for good")
    led = [tp for _, p, tp in held if p.leader_id in gone and tp not in {*last, *behind}]
    yield from _found("leaders", Level.MOVES, led, "Led from there: the lead moves, clients pause for a moment")
    if unsure:
        text = f"min.insync.replicas of {_shown(unsure)} is not known: writers may be refused afterwards."
        yield RemovalFinding(code="min-unknown", level=Level.UNKNOWN, sentence=text, subjects=tuple(unsure))


def _moves(facts: RemovalFacts, gone: frozenset[BrokerId]) -> Iterator[RemovalFinding]:
    by_name = {topic.name: topic for topic in facts.topics}
    offsets, transactions = by_name.get(GROUPS), by_name.get(TRANSACTIONS)
    if offsets is not None and offsets.partitions:
        led = {p.partition for p in offsets.partitions if p.leader_id in gone}
        groups = [group for group in facts.groups if coordinator_partition(group, len(offsets.partitions)) in led]
        if groups:
            text = f"Consumer groups coordinated there rebalance once: {len(groups)} ({_shown(groups)})."
            yield RemovalFinding(code="groups", level=Level.MOVES, sentence=text, subjects=tuple(groups))
    if transactions is not None:
        moving = [p for p in transactions.partitions if p.leader_id in gone]
        names = tuple(str(TopicPartition(TRANSACTIONS, p.partition)) for p in moving)
        if moving:
            coordinators = sorted({p.leader_id for p in moving if p.leader_id is not None})
            text = (
                f"{_ids(coordinators)} {'' if len(coordinators) > 1 else 'a '}transaction "
                f"coordinator{'s' if len(coordinators) > 1 else ''}: "
                f"{len(moving)} of {len(transactions.partitions)} partitions move ({_shown(names)}), and their "
                "transactions pause for a moment."
            )
            yield RemovalFinding(code="transactions", level=Level.MOVES, sentence=text, subjects=names)


def _lists(facts: RemovalFacts, gone: frozenset[BrokerId]) -> Iterator[RemovalFinding]:
    if not facts.clients_known:
        text = (
            "No client's list is known, and one that lists only these brokers would fail its next start: let queries "
            "report to a service, name lists by --lists FILE, or confirm it by --assume-no-other-clients."
        )
        yield RemovalFinding(code="clients-unknown", level=Level.UNKNOWN, sentence=text)
    for name, addresses in sorted(facts.lists.items()):
        yield from _list(facts, gone, name, addresses)


def _list(
    facts: RemovalFacts, gone: frozenset[BrokerId], name: str, addresses: Sequence[BrokerAddress]
) -> Iterator[RemovalFinding]:
    ids = {**facts.alive, **{broker.address: broker.broker_id for broker in facts.brokers}}
    entries = tuple(str(one) for one in addresses if ids.get(one) in gone)
    living = [one for one in addresses if one in facts.alive and ids[one] not in gone]
    known = {ids[one] for one in living} - {None}  # two names may lead to one broker
    behind = tuple(str(one) for one in living if ids[one] is None)
    left = len(known) + len(behind)
    unjudged = tuple(str(a) for a in addresses if not (a in facts.alive or a in facts.dead or ids.get(a) in gone))
    if left < _THIN and unjudged:
        text = f"{name} lists {_shown(unjudged)}, and nobody could judge whether a broker that stays answers there."
        yield RemovalFinding(code="list-unknown", level=Level.UNKNOWN, sentence=text, subjects=unjudged)
    elif entries and not left:
        text = f"{name} lists nobody else who lives: its next start fails."
        yield RemovalFinding(code="list-empty", level=Level.BREAKS, sentence=text, subjects=entries)
    elif entries and left < _THIN:
        text = f"{name} keeps one living broker ({living[0]}): when it goes, the next start fails."
        yield RemovalFinding(code="list-thin", level=Level.WEAKENS, sentence=text, subjects=entries)
    if behind and len(known) < _THIN:
        text = (
            f"{name}: {_shown(behind)} answers for the cluster; see that it leads to others too, as no broker has it."
        )
        yield RemovalFinding(code="list-balanced", level=Level.TIDY, sentence=text, subjects=behind)
    if entries:
        text = f"{name}: take {_shown(entries)} out of its list."
        yield RemovalFinding(code="list-entries", level=Level.TIDY, sentence=text, subjects=entries)


def _remains(facts: RemovalFacts, gone: frozenset[BrokerId]) -> Iterator[RemovalFinding]:
    listed = sorted(gone & {broker.broker_id for broker in facts.brokers})
    if listed:
        text = f"{_ids(listed)} still listed by the cluster: still running, or not noticed yet."
        yield RemovalFinding(code="still-listed", level=Level.BREAKS, sentence=text, subjects=_texts(listed))
    held = [tp for _, p, tp in _all(facts) if gone & set(p.replicas)]
    yield from _found("still-replicas", Level.BREAKS, held, "A replica is still assigned to a removed broker")


def _health(facts: RemovalFacts, gone: frozenset[BrokerId]) -> Iterator[RemovalFinding]:
    leaderless = [tp for _, p, tp in _all(facts) if p.leader_id is None or p.leader_id in gone]
    yield from _found("leaderless", Level.BREAKS, leaderless, "No leader: nobody can read or write")
    below = [tp for t, p, tp in _all(facts) if len(set(p.in_sync) - gone) < facts.min_in_sync.get(t.name, 0)]
    text = "min.insync.replicas is not met, and writers with acks=all are refused"
    yield from _found("below-min", Level.BREAKS, [tp for tp in below if tp not in leaderless], text)
    unsure = sorted({t.name for t, _, _ in _all(facts) if t.name not in facts.min_in_sync})
    if unsure:
        text = f"min.insync.replicas of {_shown(unsure)} is not known: writers may be refused."
        yield RemovalFinding(code="min-unknown", level=Level.UNKNOWN, sentence=text, subjects=tuple(unsure))


def _plan(facts: RemovalFacts, gone: frozenset[BrokerId]) -> dict[TopicPartition, tuple[int, ...]]:
    placement = {(str(tp.topic), tp.partition): p.replicas for _, p, tp in _all(facts)}
    racks: dict[int, str] = {broker.broker_id: broker.rack for broker in facts.brokers if broker.rack is not None}
    living = [broker.broker_id for broker in facts.brokers]
    try:
        planned = plan_reassignment(placement, leaving=gone, living=living, racks=racks)
    except ConfigError:  # fewer brokers would remain than a partition has replicas; the findings say the rest
        return {}
    return {TopicPartition(TopicName(topic), partition): tuple(to) for (topic, partition), to in planned.items()}


def _found(code: str, level: Level, partitions: Sequence[TopicPartition], what: str) -> Iterator[RemovalFinding]:
    if partitions:
        names = [str(tp) for tp in partitions]
        text = f"{what}: {counted(len(names), 'partition')} ({_shown(names)})."
        yield RemovalFinding(code=code, level=level, sentence=text, subjects=tuple(names))


def _ids(ids: Sequence[BrokerId]) -> str:
    return f"Broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))} {'are' if len(ids) > 1 else 'is'}"


def _texts(ids: Sequence[BrokerId]) -> tuple[str, ...]:
    return tuple(map(str, ids))


def _shown(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
