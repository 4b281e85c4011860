"""`spark.read.format("kafka-discovery")`: one bounded read, complete or an error that says what is missing."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from discovery.config.clock import SystemClock
from discovery.core.clock import Clock
from discovery.core.errors import ConfigError, KafkaUnreachableError
from discovery.core.model import BrokerAddress, Isolation, TopicPartition
from discovery.feed.base import FeedView, PartitionView, SourceFeed
from discovery.spark.fetch import FetchRange, FetchSettings, fetch
from discovery.spark.source.border import crossing
from discovery.spark.source.feeds import FeedFactory, chosen_feed
from discovery.spark.source.options.parse import SourceOptions, batch_notes
from discovery.spark.source.planning.bounded import longest_wait_seconds
from discovery.spark.source.planning.bounds import ENDING, STARTING, Bound, BoundNames, ByTimestamp, option_of
from discovery.spark.source.planning.offsets import EARLIEST, LATEST, Offsets
from discovery.spark.source.planning.plan import describe
from discovery.spark.source.planning.start import existing, is_settled, refuse_mismatch, refuse_out_of_range
from discovery.spark.source.planning.tasks import Task, pack, ranges_between
from discovery.spark.source.planning.timestamps import offsets_by_time
from discovery.spark.source.shared import fetch_settings, say_notes, started_feed, with_open_stores
from discovery.spark.source.waiting import Patience

_log = logging.getLogger("kafka_discovery.source")


@dataclass(frozen=True, kw_only=True)
class BatchPartition(InputPartition):
    """One Spark task: its ranges, and the brokers that were alive when it was planned."""

    ranges: tuple[FetchRange, ...]
    brokers: tuple[BrokerAddress, ...]
    settings: FetchSettings


class KafkaDiscoveryReader(DataSourceReader):
    """Plans one batch read over a feed that lives no longer than the planning. Pickled in its constructor state."""

    def __init__(self, options: SourceOptions, feed_factory: FeedFactory = chosen_feed) -> None:
        """Keep the options; no I/O, no thread."""
        # A stream of the same name may run and hold its state: a batch read leaves nothing behind that needs a name.
        notes = (*options.notes, *batch_notes(options))
        self._options = replace(options, source_id=None, cuts=None, begins=True, notes=notes)
        self._feed_factory = feed_factory

    def partitions(self) -> list[InputPartition]:
        """Ask Kafka where everything begins and ends, and cut it into tasks.

        Runs: a short-lived Python process of the driver, once per action; blocks up to `startupTimeout` for a living
        broker and 60 s for partitions that cannot be read.
        """
        with crossing():
            options = with_open_stores(self._options)
            say_notes(options)
            feed = started_feed(self._feed_factory, options)
            try:
                tasks, brokers = plan_batch(feed, options, SystemClock())
            finally:
                feed.stop()
            quick, patient = fetch_settings(options), fetch_settings(options, patient=True)
            return [
                BatchPartition(
                    ranges=ranges, brokers=brokers, settings=patient if any(r.is_slow for r in ranges) else quick
                )
                for ranges in tasks
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task.

        Runs: Spark's Python worker, once per task; blocks as long as a range cannot be read.
        """
        if not isinstance(partition, BatchPartition):
            return  # Spark makes one partition of its own where there is nothing to read
        with crossing():
            yield from fetch(
                partition.ranges,
                partition.brokers,
                partition.settings,
                on_waiting=lambda said: _log.warning("%s", said),
            )


def plan_batch(
    feed: SourceFeed, options: SourceOptions, clock: Clock
) -> tuple[tuple[Task, ...], tuple[BrokerAddress, ...]]:
    """Turn the bounds of a batch read into tasks, by answers that are fresh and complete.

    Raises:
        KafkaUnreachableError: no living broker within `startupTimeout`, or a partition that cannot be read for 60 s.
        ConfigError: a topic does not exist, JSON offsets name other partitions, or a begin lies behind its end.
        DataLossError: offsets that a partition does not have, and `failOnDataLoss` is true.

    Runs: driver; blocks <= `startupTimeout` + 2 x 60 s.
    """
    begin, until, view = _resolved(feed, options, Patience(feed, options, clock))
    if options.fail_on_data_loss:
        _refuse_lost(options.batch_start, begin, view, options, STARTING)
        _refuse_lost(options.batch_end, until, view, options, ENDING)
    first, last = _numbers(begin, view, options), _numbers(until, view, options)
    _refuse_backward(first, last, options)
    # Without leaders each partition is a group of its own: none waits for another one's leader here.
    ranges = [replace(r, leader=None) for r in ranges_between(first, last, {}, view.partitions)]
    least, most = options.min_partitions, options.max_records_per_partition
    return pack(ranges, partitions=len(last), min_partitions=least, max_records=most), view.bootstrap


def _resolved(feed: SourceFeed, options: SourceOptions, patience: Patience) -> tuple[Offsets, Offsets, FeedView]:
    """Return where each partition begins and ends, EARLIEST and LATEST among it, and a view no older than that."""
    view = _complete_view(feed, options, patience)
    bounds = options.batch_start, options.batch_end
    named = STARTING, ENDING
    begin, until = (_offsets(b, names, view, feed, options, patience) for b, names in zip(bounds, named, strict=True))
    if any(isinstance(bound, ByTimestamp) for bound in bounds):
        # A record found by its time may be younger than the first view, and would seem to lie behind the end.
        view = _complete_view(feed, options, patience)
    return begin, until, view


def _complete_view(feed: SourceFeed, options: SourceOptions, patience: Patience) -> FeedView:
    patience.usable_view(lambda v: is_settled(v, options.interest))
    wait_seconds = longest_wait_seconds(options)
    view = patience.ask(feed.refresh, wait_seconds)
    if view.missing_topics:
        missing = ", ".join(view.missing_topics)
        raise ConfigError(f"subscribe: topic {missing} does not exist; create it or correct the subscription")
    view = patience.wait(lambda v: not _unreadable(v, options), wait_seconds)
    if unreadable := _unreadable(view, options):
        raise KafkaUnreachableError(
            f"a batch read is complete or fails: waited {wait_seconds:g} s for {describe(unreadable.items())}; "
            "read again when their leaders are back, or name the other partitions with assign"
        )
    return view


def _unreadable(view: FeedView, options: SourceOptions) -> Mapping[TopicPartition, str]:
    isolation = options.interest.isolation
    return {
        tp: p.parked_reason or "its leader has not reported its offsets"
        for tp, p in existing(view).items()
        if p.parked_reason is not None or p.start_offset is None or p.end_offset(isolation) is None
    }


def _offsets(  # noqa: PLR0917 - each is another thing
    bound: Bound, names: BoundNames, view: FeedView, feed: SourceFeed, options: SourceOptions, patience: Patience
) -> Offsets:
    there = existing(view)
    if isinstance(bound, ByTimestamp):
        return offsets_by_time(bound, view, feed, patience, wait_seconds=longest_wait_seconds(options))
    if isinstance(bound, int):
        return dict.fromkeys(there, bound)
    refuse_mismatch(bound.keys(), there, option=names.offsets)
    return bound


def _refuse_lost(bound: Bound, offsets: Offsets, view: FeedView, options: SourceOptions, names: BoundNames) -> None:
    if isinstance(bound, dict):
        refuse_out_of_range(offsets, view, options.interest, option=names.offsets)


def _numbers(offsets: Offsets, view: FeedView, options: SourceOptions) -> Offsets:
    """Place EARLIEST and LATEST, and move what a partition does not hold to the nearest it does."""
    return {tp: _number(tp, offset, view.partitions[tp], options.interest.isolation) for tp, offset in offsets.items()}


def _number(tp: TopicPartition, offset: int, partition: PartitionView, isolation: Isolation) -> int:
    begin, end = partition.start_offset or 0, partition.end_offset(isolation) or 0
    if offset in {EARLIEST, LATEST}:
        return begin if offset == EARLIEST else end
    if not begin <= offset <= end:
        _log.warning("data loss accepted (failOnDataLoss=false): %s holds %d to %d, not %d", tp, begin, end, offset)
    return min(max(offset, begin), end)


def _refuse_backward(begin: Offsets, until: Offsets, options: SourceOptions) -> None:
    for tp, offset in begin.items():
        if offset > until[tp]:
            first, last = option_of(options.batch_start, STARTING), option_of(options.batch_end, ENDING)
            raise ConfigError(
                f"{first}: {tp} begins at offset {offset}, behind its end {until[tp]} in {last}; swap or correct them"
            )
