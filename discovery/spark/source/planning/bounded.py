"""Trigger.AvailableNow: where the query ends, and what it still owes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from discovery.core.model import Isolation, TopicPartition
from discovery.feed.base import FeedView
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.plan import describe

_LEAST_WAIT_SECONDS = 60.0
"""How long a bounded run waits for a partition that cannot be read, unless the options name a slower leader."""


def longest_wait_seconds(options: SourceOptions) -> float:
    """Return how long a bounded read waits for a partition that cannot be read; a shorter `startupTimeout` wins.

    A leader that may take as long for one answer as `kafka.default.api.timeout.ms` says is given two.

    Runs: anywhere (pure).
    """
    patient_seconds = 2 * (options.client.api_timeout_seconds or 0.0)
    return min(max(_LEAST_WAIT_SECONDS, patient_seconds), options.startup_timeout_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The end of a bounded run. Pure.

    Partitions that cannot be read when it is fixed are owed: the query reads the others first, then waits for them.
    """

    isolation: Isolation
    ends: Mapping[TopicPartition, int]
    owed: frozenset[TopicPartition]

    @classmethod
    def of(cls, view: FeedView, isolation: Isolation) -> "Target":
        """Fix where every partition ends, by a fresh answer."""
        owed = frozenset(tp for tp, known in view.partitions.items() if not known.gone)
        return cls(isolation=isolation, ends={}, owed=owed).settled(view)

    def moved(self, ends: Mapping[TopicPartition, int]) -> "Target":
        """Set other ends for partitions that were recreated or truncated."""
        return replace(self, ends={**self.ends, **ends}) if ends else self

    def settled(self, view: FeedView) -> "Target":
        """Fix the ends of owed partitions that can be read by now."""
        there = {tp: known for tp in self.owed if (known := view.partitions.get(tp)) and known.parked_reason is None}
        found = {tp: end for tp, known in there.items() if (end := known.end_offset(self.isolation)) is not None}
        return replace(self.moved(found), owed=self.owed - found.keys()) if found else self

    def missing(
        self, start: Mapping[TopicPartition, int], view: FeedView, *, gone: Collection[TopicPartition]
    ) -> tuple[TopicPartition, ...]:
        """Return the partitions that are not at their end; those in `gone` never will be."""
        begins = {tp: known.start_offset for tp in self.ends if (known := view.partitions.get(tp)) is not None}
        # What is not in `start` is at its end where it is empty; its earliest offset unknown, it is not.
        at = {**{tp: -1 if (begin := begins.get(tp)) is None else begin for tp in self.ends}, **start}
        behind = (tp for tp, end in self.ends.items() if at[tp] < end)
        return tuple(tp for tp in (*behind, *sorted(self.owed)) if tp not in gone)


def why_unread(
    partitions: Iterable[TopicPartition],
    view: FeedView,
    parked: Mapping[TopicPartition, str] = MappingProxyType({}),
) -> str:
    """Name partitions with the reasons of the last plan first.

    Runs: anywhere (pure).
    """
    known = view.partitions
    return describe(
        (
            tp,
            parked.get(tp)
            or (known[tp].parked_reason or "it stands before its end" if tp in known else "it is not there"),
        )
        for tp in partitions
    )
