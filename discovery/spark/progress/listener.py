"""`SourceProgress`: how the sources of this driver's queries are doing, for logs, metrics and code.

progress = SourceProgress(spark).start()
...
progress.reports()          # lag, parked partitions, discovery's state, by query
progress.stop()
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from discovery.spark.progress.metrics import SourceCollector
from discovery.spark.progress.reports import SourceReport, line, read_reports
from discovery.spark.source.status import plan_digest
from discovery.store.locations import default_state_dir

_log = logging.getLogger("kafka_discovery.progress")
_INTERVAL_SECONDS = 1.0
_REMEMBERED_ENDS = 64


@dataclass(slots=True)
class Batches:
    """Where the last batches of one query ended."""

    name: str = ""
    """The query's name, or its id."""
    ends: deque[int] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_ENDS))
    """Digests of offsets, of all its sources."""


class SourceProgress(StreamingQueryListener):
    """Follows all `kafka-discovery` sources of one Spark driver. Thread-safe.

    The sources tell by files in the state folder; Spark's progress events only say which query each belongs to, so
    this goes on telling while a query stands still and Spark sends no event.
    """

    def __init__(
        self, spark: SparkSession, *, state_dir: Path | None = None, registry: CollectorRegistry | None = None
    ) -> None:
        """Prepare; starts nothing.

        Args:
            spark: The session whose queries are followed; Spark Connect has no driver here and is not supported.
            state_dir: The `stateDir` of the sources; the user's state folder if None.
            registry: Where metrics are registered (`prometheus_client.REGISTRY` for a process of one job); None: none.
        """
        self._spark = spark
        self._state_dir = state_dir or default_state_dir()
        self._registry = registry
        self._collector = SourceCollector(self._named, self._late)
        self._lock = threading.Lock()
        self._reports: tuple[SourceReport, ...] = ()
        self._queries: dict[str, Batches] = {}
        """By Spark's id of the query."""
        self._late_rows: dict[str, int] = {}
        """By the query's name, over all its runs."""
        self._said: dict[str, str] = {}
        self._jvm_pid: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "SourceProgress":
        """Begin to listen, to look once a second, and to log one line per change."""
        jvm = self._spark.sparkContext._jvm  # noqa: SLF001 - pyspark's only way to its JVM
        assert jvm is not None  # noqa: S101 - a session has one
        self._jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
        self._spark.streams.addListener(self)
        if self._registry is not None:
            self._registry.register(self._collector)
        self._thread = threading.Thread(target=self._run, name="kafka-discovery progress", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop listening and looking; blocks <= 2 s."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)
            self._spark.streams.removeListener(self)
            if self._registry is not None:
                self._registry.unregister(self._collector)

    def reports(self) -> Mapping[str, SourceReport]:
        """Return the newest report of every source, by `query/source`; by `/source` while its query is not certain."""
        return {f"{query}/{report.source}": report for query, report in self._named()}

    def look(self) -> None:
        """Read the reports now. Runs: the progress thread, once a second; a few small files."""
        found = read_reports(self._state_dir, jvm_pid=self._jvm_pid)
        with self._lock:
            self._reports = found
        for report in found:
            said = line(report)
            if self._said.get(report.key) != said:
                self._said[report.key] = said
                _log.info("%s (lag %d records)", said, report.lag_records)
        self._said = {report.key: self._said[report.key] for report in found}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Count its late rows from 0: an alert sees no increase in a counter that begins with its first number.

        Runs: while the query starts, which waits; from memory.
        """
        with self._lock:
            self._late_rows.setdefault(event.name or str(event.id), 0)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Remember where this query's batches ended. Runs: Spark's listener thread; from memory."""
        progress = event.progress
        ends = [offsets for source in progress.sources if (offsets := _offsets(source.endOffset)) is not None]
        with self._lock:
            query = self._queries.setdefault(str(progress.id), Batches())
            query.name = progress.name or str(progress.id)
            query.ends.extend(map(plan_digest, ends))
            late = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
            self._late_rows[query.name] = self._late_rows.get(query.name, 0) + late

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the query; the report goes with its source."""
        with self._lock:
            self._queries.pop(str(event.id), None)

    def _named(self) -> Iterable[tuple[str, SourceReport]]:
        with self._lock:
            return [(query_of(report, self._queries.values()), report) for report in self._reports]

    def _late(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._late_rows)

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            try:
                self.look()
            except OSError as error:
                _log.warning("the reports of the sources cannot be read: %s", error)


def query_of(report: SourceReport, queries: Iterable[Batches]) -> str:
    """Return the query whose batches ended where this source planned them to; empty while that fits none or several.

    Spark tells a source nothing about its query, and its listeners nothing about a source but offsets. Two queries
    that read the same are distinguished by their first batch that ends elsewhere.

    Runs: anywhere (pure).
    """
    matches = sorted(((len(report.plans.intersection(q.ends)), q.name) for q in queries), reverse=True)
    best = [name for count, name in matches if count and count == matches[0][0]]
    return best[0] if len(best) == 1 else ""


def _offsets(text: str | None) -> dict[str, Any] | None:
    try:
        offsets = json.loads(text) if text else None
    except ValueError:
        return None
    return offsets if isinstance(offsets, dict) else None
