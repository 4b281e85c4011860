"""Trigger.AvailableNow: where the query ends, and what it still owes."""

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from discovery.core.clock import Clock
from discovery.core.errors import KafkaUnreachableError
from discovery.core.model import TopicPartition
from discovery.feed.base import FeedView, PartitionFeed
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.offsets import Offsets
from discovery.spark.source.planning.plan import OnParked, describe, unfinished
from discovery.spark.source.waiting import Patience

_log = logging.getLogger("kafka_discovery.source")
_LONGEST_WAIT_SECONDS = 60.0
"""How long a bounded run waits for a partition that cannot be read; a shorter `startupTimeout` wins."""
_REFRESH_SECONDS = 10.0


def longest_wait_seconds(options: SourceOptions) -> float:
    """Return how long a bounded read waits for a partition that cannot be read.

    Runs: anywhere (pure).
    """
    return min(_LONGEST_WAIT_SECONDS, options.startup_timeout_seconds)


def fresh_view(feed: PartitionFeed, clock: Clock, patience: Patience, *, wait_seconds: float) -> FeedView:
    """Ask Kafka for everything, again and again until it answers.

    Raises:
        KafkaUnreachableError: nobody answered within `wait_seconds`; carries a verdict per address.

    Runs: driver; blocks <= wait_seconds.
    """
    deadline = clock.monotonic() + wait_seconds
    while True:
        remaining = deadline - clock.monotonic()
        try:
            return feed.refresh(max(min(_REFRESH_SECONDS, remaining), 0.1))
        except KafkaUnreachableError:
            if clock.monotonic() >= deadline:
                raise
            patience.wait(lambda _: False, min(1.0, max(deadline - clock.monotonic(), 0.0)))


class Target:
    """The end of a bounded run, fixed by a fresh answer. One thread.

    Partitions that cannot be read then are owed: the query reads the others first, then waits for them.
    """

    def __init__(self, feed: PartitionFeed, options: SourceOptions, clock: Clock, patience: Patience) -> None:
        """Ask Kafka where every partition ends.

        Raises:
            KafkaUnreachableError: nobody answered within the budget; carries a verdict per address.

        Runs: driver, once; blocks <= `wait_seconds`.
        """
        self.wait_seconds = longest_wait_seconds(options)
        self._feed = feed
        self._isolation = options.interest.isolation
        view = fresh_view(feed, clock, patience, wait_seconds=self.wait_seconds)
        ends = {tp: self._readable_end(view, tp) for tp, known in view.partitions.items() if not known.gone}
        self.ends: Offsets = {tp: end for tp, end in ends.items() if end is not None}
        self.owed = frozenset(tp for tp, end in ends.items() if end is None)
        """Partitions that could not be read then."""
        self._holds = options.on_parked is OnParked.HOLD

    def move(self, tp: TopicPartition, end: int) -> None:
        """Set another end for a partition that was recreated or truncated."""
        self.ends[tp] = end

    def settle_debts(self) -> bool:
        """Fix the ends of owed partitions that can be read by now; tell whether there were any."""
        if not self.owed:
            return False
        view = self._feed.view()
        found = {tp: end for tp in self.owed if (end := self._readable_end(view, tp)) is not None}
        self.ends |= found
        self.owed -= found.keys()
        return bool(found)

    def wait_for_debts(self, patience: Patience) -> None:
        """Give partitions that cannot be read their time; a run of one batch goes on without those that stay so."""

        def paid(_: FeedView) -> bool:
            self.settle_debts()
            return not self.owed

        patience.wait(paid, self.wait_seconds)
        if self.owed:
            _log.warning("Trigger.Once reads without %s; the next run reads them", self._reasons(sorted(self.owed)))

    def missing(self, start: Offsets, *, gone: set[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Return the partitions that are not at their end; those in `gone` never will be."""
        behind = unfinished(start, self.ends, self._feed.view().partitions)
        return tuple(tp for tp in (*behind, *sorted(self.owed)) if tp not in gone)

    def why_unfinished(
        self, missing: tuple[TopicPartition, ...], parked: Mapping[TopicPartition, str] = MappingProxyType({})
    ) -> str:
        """Say what could not be read, with the reasons of the last plan first, and what to do."""
        others = "nothing else is read meanwhile (onParked=hold)" if self._holds else "everything else is read"
        return (
            f"Trigger.AvailableNow cannot reach its end: waited {self.wait_seconds:g} s for "
            f"{self._reasons(missing, parked)}; {others}; run it again when they can be read"
        )

    def _reasons(
        self, partitions: Iterable[TopicPartition], parked: Mapping[TopicPartition, str] = MappingProxyType({})
    ) -> str:
        known = self._feed.view().partitions
        return describe(
            (
                tp,
                parked.get(tp)
                or (known[tp].parked_reason or "it stands before its end" if tp in known else "it is not there"),
            )
            for tp in partitions
        )

    def _readable_end(self, view: FeedView, tp: TopicPartition) -> int | None:
        partition = view.partitions.get(tp)
        if partition is None or partition.parked_reason is not None:
            return None
        return partition.end_offset(self._isolation)
