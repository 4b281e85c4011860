"""Commit-back: commits the query's offsets to a consumer group, for the tools that watch lag by group.

Spark's checkpoint stays the only truth. What is committed is the `start` of each plan: when Spark asks for the end of
batch n+1 it has recorded that batch n is done, so that offset is never ahead of what the sink has. Spark's own
`commit(end)` comes no earlier and leaves the last batch out; a `start` is asked for again after the last batch, and
first of all after a restart, which mends what a killed driver did not commit.
"""

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from discovery.core.clock import Clock
from discovery.core.errors import KafkaUnreachableError
from discovery.core.model import TopicPartition
from discovery.feed.base import SourceFeed
from discovery.spark.source.planning.offsets import Offsets

_log = logging.getLogger("kafka_discovery.source")
_COMMIT_SECONDS = 10.0
_INTERVAL_SECONDS = 1.0
_SLOWEST_RETRY_SECONDS = 30.0
_ALL_AGAIN_SECONDS = 3_600.0
"""Brokers forget the offset of an idle partition after `offsets.retention.minutes` (7 days) unless it comes again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """How committing goes."""

    succeeded: int = 0
    failed: int = 0
    error: str = ""
    """Why the last try failed; empty after one that did not."""


class Committer:
    """Commits on a thread of its own, the newest offsets only. Thread-safe; nothing here ever fails the query."""

    def __init__(self, feed: SourceFeed, group: str, clock: Clock) -> None:
        """Start nothing yet."""
        self._feed = feed
        self._group = group
        self._clock = clock
        self._changed = threading.Condition()
        self._wanted: Offsets = {}
        self._reported: Offsets = {}
        self._all_sent_at = float("-inf")
        self._busy = self._stopped = False
        self._thread: threading.Thread | None = None
        self.report = CommitReport()

    def stands(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Take in the query's offsets: Spark has recorded everything before it. Returns at once."""
        with self._changed:
            self._wanted = {tp: offset for tp, offset in offsets.items() if offset >= 0}
            self._changed.notify_all()
            self._begin()

    def _begin(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="kafka-discovery commit", daemon=True)
            with suppress(RuntimeError):  # no thread can be started now: the next batch, or the end, tries again
                thread.start()
                self._thread = thread

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything is committed; tell whether it is. For a query that is about to end."""
        with self._changed:
            self._begin()
            return self._changed.wait_for(
                lambda: not self._busy and not (self._wanted.items() - self._reported.items()), timeout_seconds
            )

    def stop(self) -> None:
        """End the thread; what is not committed yet is left to the next start."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or bool(self._due()))
                if self._stopped:
                    return
                due, self._busy = self._due(), True
            failures = 0 if self.commit(due) else failures + 1
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                rest = min(_INTERVAL_SECONDS * 2**failures, _SLOWEST_RETRY_SECONDS) if failures else _INTERVAL_SECONDS
                self._changed.wait_for(lambda: self._stopped, rest)

    def _due(self) -> Offsets:
        again = self._clock.monotonic() - self._all_sent_at >= _ALL_AGAIN_SECONDS
        return dict(self._wanted) if again else dict(self._wanted.items() - self._reported.items())

    def commit(self, offsets: Offsets) -> bool:
        """Commit now, without partitions that are gone. Runs: the committing thread; blocks <= 10 s."""
        known = self._feed.view().partitions
        there = {tp: offset for tp, offset in offsets.items() if (view := known.get(tp)) is not None and not view.gone}
        try:
            if there:
                self._feed.commit_offsets(self._group, there, timeout_seconds=_COMMIT_SECONDS)
        except KafkaUnreachableError as error:
            self._failed(str(error))
            return False
        self._succeeded(offsets)
        return True

    def _succeeded(self, offsets: Offsets) -> None:
        with self._changed:
            if offsets.keys() >= self._wanted.keys():
                self._all_sent_at = self._clock.monotonic()
            self._reported |= offsets
            if self.report.error:
                _log.warning("group %s: offsets are committed again", self._group)
            self.report = replace(self.report, succeeded=self.report.succeeded + 1, error="")

    def _failed(self, error: str) -> None:
        if not self.report.error:  # once per outage, whatever the words
            _log.warning("group %s: offsets are not committed, the query goes on: %s", self._group, error)
        self.report = replace(self.report, failed=self.report.failed + 1, error=error)
