"""When to ask which leader for which offsets: each leader by itself, so that a dead one delays nobody."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from discovery.core.interest import Interest
from discovery.core.model import BrokerId, TopicPartition, Verdict
from discovery.core.offsets import OffsetBook
from discovery.core.policy import Policy
from discovery.core.state import State
from discovery.core.verdict import WRONG

_NOT_WORTH_ASKING = WRONG | {Verdict.REFUSED, Verdict.UNRESOLVABLE}
_SLOWEST_RETRY_SECONDS = 1.0
_IDLE_SECONDS = 10.0
"""How often ends are asked for where nobody needs them fresh: for lag on a page."""
_START_OFFSETS_INTERVAL_SECONDS = 10.0
"""Retention moves the earliest offset slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAsk:
    """One question to one leader."""

    leader_id: BrokerId
    partitions: tuple[TopicPartition, ...]
    with_start: bool
    """Also ask for the earliest offsets."""


@dataclass(slots=True)
class OffsetsSchedule:
    """Remembers when each leader was asked last. Owned by the loop's thread."""

    policy: Policy
    _asked_at: dict[BrokerId, float] = field(default_factory=dict)
    _start_asked_at: dict[BrokerId, float] = field(default_factory=dict)
    _failures: dict[BrokerId, int] = field(default_factory=dict)
    _asked_partitions: dict[BrokerId, tuple[TopicPartition, ...]] = field(default_factory=dict)

    def due(
        self,
        leaders: Mapping[BrokerId, tuple[TopicPartition, ...]],
        book: OffsetBook,
        state: State,
        now: float,
        *,
        idle: bool = False,
    ) -> list[LeaderAsk]:
        """Return whom to ask now. A leader with a partition it was not asked about before is due at once.

        `idle`: nobody needs fresh offsets, so all are asked seldom.
        """
        asks = []
        for leader, partitions in leaders.items():
            if not self._is_due(leader, partitions, now, idle=idle) or not worth_asking(leader, state):
                continue
            known = book.offsets
            fresh = any((o := known.get(tp)) is None or o.start_offset is None for tp in partitions)
            old = now - self._start_asked_at.get(leader, float("-inf")) >= _START_OFFSETS_INTERVAL_SECONDS
            asks.append(LeaderAsk(leader_id=leader, partitions=partitions, with_start=fresh or old))
        return asks

    def asked(self, ask: LeaderAsk, now: float) -> None:
        """Note that the question is on its way."""
        self._asked_at[ask.leader_id] = now
        self._asked_partitions[ask.leader_id] = ask.partitions
        if ask.with_start:
            self._start_asked_at[ask.leader_id] = now

    def answered(self, leader: BrokerId, *, ok: bool) -> None:
        """Note how it went: a silent leader is asked less often, up to once a second."""
        self._failures[leader] = 0 if ok else self._failures.get(leader, 0) + 1

    def _is_due(self, leader: BrokerId, partitions: tuple[TopicPartition, ...], now: float, *, idle: bool) -> bool:
        asked_at = self._asked_at.get(leader)
        if asked_at is None:
            return True
        asked = self._asked_partitions[leader]
        if asked is not partitions:
            if not set(asked).issuperset(partitions):
                return True
            self._asked_partitions[leader] = partitions  # fewer than before: compared once, not at every turn
        if idle and now - asked_at < _IDLE_SECONDS:
            return False
        slowed = self.policy.offsets_interval_seconds * 2 ** min(self._failures.get(leader, 0), 8)
        return bool(now - asked_at >= min(slowed, max(_SLOWEST_RETRY_SECONDS, self.policy.offsets_interval_seconds)))


def worth_asking(leader: BrokerId, state: State) -> bool:
    """Tell whether a request could reach this leader, and nobody else at its address.

    librdkafka turns in a tight loop, a third of a core, while a request waits for a broker that refuses connections;
    vetting asks such an address once a cycle and sees it return.
    """
    broker = state.snapshot.broker(leader) if state.snapshot else None
    known = state.addresses.get(broker.address) if broker else None
    return known is not None and known.verdict not in _NOT_WORTH_ASKING


def partitions_by_leader(state: State, interest: Interest) -> dict[BrokerId, tuple[TopicPartition, ...]]:
    """Group the followed partitions that have a leader by that leader.

    Runs: anywhere (pure); O(partitions).
    """
    groups: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for partition, leader in _led(state, interest):
        groups[leader].append(partition)
    return {leader: tuple(partitions) for leader, partitions in groups.items()}


def _led(state: State, interest: Interest) -> Iterable[tuple[TopicPartition, BrokerId]]:
    if state.snapshot is None:
        return
    for topic in state.snapshot.topics.values():
        if not interest.wants_topic(topic.name):
            continue
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition)
            if p.leader_id is not None and (not interest.assigned or partition in interest.assigned):
                yield partition, p.leader_id
