"""Spark's side of the source: a stream reader over a feed that runs in the background of the driver."""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from discovery.core.errors import BUG_PHRASE, ConfigError, DiscoveryError
from discovery.core.model import BrokerAddress
from discovery.feed.base import PartitionFeed
from discovery.spark.fetch import FetchRange, FetchSettings, fetch
from discovery.spark.source.border import HIDE_TRACEBACK, one_line
from discovery.spark.source.cuts.arbiter import TcpArbiter, Ticket, for_ranges, refuse_left_behind
from discovery.spark.source.cuts.left_behind import LeftBehind, RefuseStart
from discovery.spark.source.feeds import FeedFactory, chosen_feed, kept_ids, no_cut_left_behind, opened_cuts
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.planner import Planner
from discovery.spark.source.shared import fetch_settings, say_notes, started_feed, with_open_stores
from discovery.spark.source.status import StatusFile, status_file_of

_log = logging.getLogger("kafka_discovery.source")
_NO_LIMIT_ROWS = 2**63 - 1
_Method = TypeVar("_Method", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class RangesPartition(InputPartition):
    """One Spark task: its ranges, and the brokers that were alive when it was planned."""

    ranges: tuple[FetchRange, ...]
    brokers: tuple[BrokerAddress, ...]
    settings: FetchSettings
    ticket: Ticket | None = None
    """How to ask where ranges end; None: as planned."""
    left_behind: LeftBehind = field(default_factory=dict)
    """What the worker must refuse, by the id of its query."""


def _border(method: _Method) -> _Method:
    """Deliberate errors cross as one line; any other keeps its traceback under the phrase that tests look for."""

    @wraps(method)
    def guarded(self: Any, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except DiscoveryError as error:
            raise one_line(error) from None
        except Exception:
            _log.exception("%s: %s failed", BUG_PHRASE, method.__name__)
            raise

    return cast("_Method", guarded)


class KafkaDiscoveryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads partitions that a feed knows. Pickled in its constructor state; the feed lives on the driver alone.

    Spark makes two of them: one in the source runner, whose planning methods are called one after the other for
    the life of the query, and one that travels to the workers, of which only `read` is called.
    """

    def __init__(
        self,
        options: SourceOptions,
        feed_factory: FeedFactory = chosen_feed,
        *,
        refusal: str | None = None,
        tell: Callable[[Planner], StatusFile | None] = status_file_of,
        refusing: Callable[[SourceOptions, PartitionFeed], RefuseStart] = no_cut_left_behind,
    ) -> None:
        """Keep the options; no I/O, no thread.

        Args:
            options: Checked.
            feed_factory: Makes the feed when the driver asks for something.
            refusal: Why there is nothing to read. Raised by the first call, as Spark hides what constructors raise.
            tell: Begins to tell how the source is doing.
            refusing: Makes what looks for cuts in other ledgers.
        """
        self._tell = tell
        self._refusing = refusing
        self._options = options
        self._refusal = refusal
        self._feed_factory = feed_factory
        self._planner: Planner | None = None
        self._status: StatusFile | None = None
        self._bounded = False
        """The query ends at fixed offsets."""
        self._ran: dict[str, Any] | None = None
        """Where the newest batch of this run ends."""
        self._logged: dict[str, Any] | None = None
        """The newest end of a batch of which Spark said that its log holds it."""

    # -- driver -------------------------------------------------------------------------------------------------

    def _plan(self, *, begins: bool = False) -> Planner:
        self._refuse()
        if self._planner is None:
            self._options = replace(with_open_stores(self._options), begins=begins)
            feed = started_feed(self._feed_factory, self._options)
            say_notes(self._options)
            self._planner = Planner(
                feed,
                self._options,
                cuts=opened_cuts(self._options, feed),
                ids=kept_ids(self._options),
                refuse_start=self._refusing(self._options, feed),
            )
            self._status = self._tell(self._planner)
        if self._bounded and self._planner.state.target is None:
            self._planner.fix_target()
        return self._planner

    def _refuse(self) -> None:
        if self._refusal is not None:
            raise ConfigError(self._refusal)

    @_border
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Say where a new query begins; Spark asks twice and gets one answer.

        Runs: driver, at the start of a new query; blocks up to `startupTimeout` for a living broker.
        """
        return cast("dict[str, Any]", self._plan(begins=True).initial_offsets())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return `maxOffsetsPerTrigger` in Spark's words.

        Never "all available", although there may be no limit: then that can only come from Trigger.Once.

        Runs: driver, once per trigger; from memory.
        """
        limit = self._options.max_offsets_per_trigger
        return ReadMaxRows(_NO_LIMIT_ROWS if limit is None else limit)

    # No signature-hiding decorator here: Spark counts the parameters.
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Say how far the next batch reads.

        Runs: driver, up to 100 times a second; from memory on a normal trigger, but for the first call after a
        restart, which may look for a ledger in Kafka for up to 10 s. With Trigger.AvailableNow it waits
        for partitions that cannot be read, and fails when they stay so; with Trigger.Once it asks for fresh answers.
        """
        once = isinstance(limit, ReadAllAvailable)
        try:
            if once:
                self._plan().fix_target(one_batch=True)
            return cast("dict[str, Any]", self._plan().latest_offsets(start, _rows(limit)))
        except DiscoveryError as error:
            raise one_line(error) from None
        except Exception:
            _log.exception("%s: latestOffset failed; the query goes on from its last offsets", BUG_PHRASE)
            if once or self._bounded:
                # Here "nothing new" would end the query as a success.
                raise
            return start

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Show the end of all partitions in the query's progress.

        Runs: driver, once per trigger; from memory.
        """
        try:
            return cast("dict[str, Any] | None", self._plan().report())
        except Exception:  # noqa: BLE001 - the border to Spark: a progress line must not end a query
            _log.exception("%s: reportLatestOffset failed", BUG_PHRASE)
            return None

    @_border
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Have the next call fix the offsets at which the query ends: that one shows whether the query is new.

        Runs: driver, once, before anything else; no I/O. The next call blocks up to its budget for fresh answers.
        """
        self._refuse()
        self._bounded = True

    @_border
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Turn one planned batch into tasks, each with the brokers that are alive now.

        Runs: driver, once per batch; from memory, except at the replay of a batch after a restart, where it waits
        up to `startupTimeout` for a living broker, and may look for a ledger in Kafka for 10 s.
        """
        if start == end:
            return []
        self._refuse_batches_without_log(start)
        tasks, brokers, ticket = self._plan().tasks(start, end)
        self._ran = end
        quick, patient = fetch_settings(self._options), fetch_settings(self._options, patient=True)
        return [
            RangesPartition(
                ranges=ranges,
                brokers=brokers,
                settings=patient if any(r.is_slow for r in ranges) else quick,
                ticket=for_ranges(ticket, ranges),
                left_behind=self._plan().left_behind,
            )
            for ranges in tasks
        ]

    def _refuse_batches_without_log(self, start: dict[str, Any]) -> None:
        """Refuse asynchronous progress tracking, an option of the writer that no source is shown.

        With it alone Spark plans on before it has said that the last batch is in its log, where a rewind must stand.
        """
        if self._options.cuts is not None and start == self._ran != self._logged:
            raise ConfigError(
                "asyncProgressTrackingEnabled: true leaves batches out of Spark's log, and a source with sourceId "
                "needs each of them there; remove it, or sourceId"
            )

    def commit(self, end: dict[str, Any]) -> None:
        """Note that Spark's log holds a batch; its checkpoint is the only truth about what was read.

        Runs: driver, once per batch but the first, before its tasks are asked for; from memory.
        """
        self._logged = end

    def stop(self) -> None:
        """Stop the feed. Spark calls this only when a method failed; else the process is killed.

        Runs: driver; blocks <= 5 s.
        """
        if self._status is not None:
            self._status.stop()
        if self._planner is not None:
            if self._planner.committer is not None:
                self._planner.committer.stop()
            self._planner.feed.stop()
            if self._planner.cuts is not None:
                self._planner.cuts.close()

    # -- executor -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task.

        Runs: Spark's Python worker, once per task; blocks as long as a range cannot be read.
        """
        task = cast("RangesPartition", partition)
        os.environ.pop(HIDE_TRACEBACK, None)
        try:
            refuse_left_behind(task.left_behind)
            arbiter = None if task.ticket is None else TcpArbiter(task.ticket)
            yield from fetch(task.ranges, task.brokers, task.settings, on_waiting=_say_waiting, arbiter=arbiter)
        except DiscoveryError as error:
            raise one_line(error) from None


def _rows(limit: ReadLimit) -> int | None:
    return limit.max_rows if isinstance(limit, ReadMaxRows) and limit.max_rows < _NO_LIMIT_ROWS else None


def _say_waiting(sentence: str) -> None:
    _log.warning("%s", sentence)
