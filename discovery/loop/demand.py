"""Whose end offsets must be fresh. The others are asked for seldom: a loop may know far more than anybody reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from discovery.core.interest import Interest
from discovery.core.model import BrokerId, Isolation, TopicName, TopicPartition

Leaders = Mapping[BrokerId, tuple[TopicPartition, ...]]
Wanted = tuple[Interest, ...]
Demand = Callable[[], Wanted | None]
"""What readers want at this moment; nothing: nobody reads; None: all that the loop follows. Quick, any thread."""


def everything() -> Wanted | None:
    """Say that all offsets must be fresh: what a loop without readers of its own assumes."""
    return None


def nothing() -> Wanted:
    """Say that nobody reads: brokers alone are wanted."""
    return ()


def isolations(wanted: Wanted | None, interest: Interest) -> tuple[Isolation, ...]:
    """Return which ends readers need, of those that the loop keeps.

    Runs: anywhere (pure).
    """
    if wanted is None:
        return interest.isolations
    needed = {isolation for one in wanted for isolation in one.isolations}
    return tuple(one for one in interest.isolations if one in needed)


@dataclass(slots=True)
class Division:
    """Partitions by leader, those that somebody wants apart from the rest; rebuilt only when either changed.

    Owned by the loop's thread.
    """

    _leaders: Leaders | None = None
    _wanted: Wanted | None = None
    _parts: tuple[Leaders, Leaders] = ({}, {})

    def of(self, leaders: Leaders, wanted: Wanted | None) -> tuple[Leaders, Leaders]:
        """Return who is wanted and who is not; `leaders` must be another object when its content changed."""
        if leaders is not self._leaders or wanted != self._wanted:
            self._leaders, self._wanted = leaders, wanted
            self._parts = (leaders, {}) if wanted is None else _divided(leaders, wanted)
        return self._parts


def _divided(leaders: Leaders, wanted: Wanted) -> tuple[Leaders, Leaders]:
    known: dict[TopicName, bool] = {}

    def is_wanted(tp: TopicPartition) -> bool:
        if tp.topic not in known:
            known[tp.topic] = any(interest.wants_topic(tp.topic) for interest in wanted)
        return known[tp.topic]

    chosen = {leader: tuple(tp for tp in parts if is_wanted(tp)) for leader, parts in leaders.items()}
    rest = {leader: tuple(tp for tp in parts if not is_wanted(tp)) for leader, parts in leaders.items()}
    return _not_empty(chosen), _not_empty(rest)


def _not_empty(leaders: Leaders) -> Leaders:
    return {leader: partitions for leader, partitions in leaders.items() if partitions}
