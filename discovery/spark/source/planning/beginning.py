"""Where a new query begins: asked of the feed, with time for leaders that are away."""

import logging

from discovery.feed.base import FeedView, SourceFeed
from discovery.spark.source.options.parse import SourceOptions
from discovery.spark.source.planning.bounds import STARTING, ByTimestamp
from discovery.spark.source.planning.committed import committed_start
from discovery.spark.source.planning.offsets import COMMITTED, LATEST, OffsetsJson, to_json
from discovery.spark.source.planning.start import existing, first_offsets, is_settled, moving, refuse_out_of_range
from discovery.spark.source.planning.timestamps import offsets_by_time
from discovery.spark.source.waiting import Patience

_log = logging.getLogger("kafka_discovery.source")


def begin(feed: SourceFeed, options: SourceOptions, patience: Patience) -> tuple[OffsetsJson, OffsetsJson]:
    """Return where a query begins, and the same with LATEST where that may be another place when it is asked again.

    Raises:
        KafkaUnreachableError: nobody answered within `startupTimeout`; carries a verdict per address.
        ConfigError: the subscribed topics do not exist, or `startingOffsets` names other partitions.
        DataLossError: `startingOffsets` names offsets that are not there, and `failOnDataLoss` is true.

    Runs: driver, once; blocks <= `startupTimeout`.
    """
    view = _first_view(feed, options, patience)
    start, option, wait_seconds = options.stream_start, STARTING.offsets, options.startup_timeout_seconds
    if isinstance(start, ByTimestamp):
        option = start.option
        start = offsets_by_time(start, view, feed, patience, wait_seconds=wait_seconds)
    moves = moving(start, existing(view))
    if start == COMMITTED:
        group, fallback = options.group or "", options.starting_fallback
        there = existing(view)
        committed = patience.ask(lambda left: feed.committed(group, there, timeout_seconds=left), wait_seconds)
        start = committed_start(committed, view, options.interest, group=group, fallback=fallback)
    first = first_offsets(view, options.interest, start, option=option)
    if options.fail_on_data_loss and start is options.stream_start:
        refuse_out_of_range(first, view, options.interest, option=option)
    return to_json(first), to_json({**first, **dict.fromkeys(moves, LATEST)})


def _first_view(feed: SourceFeed, options: SourceOptions, patience: Patience) -> FeedView:
    view = patience.usable_view(lambda v: is_settled(v, options.interest))
    if view.partitions:
        return view
    # Topics that are only not known yet would be taken for new ones and read from their beginning.
    view = patience.ask(feed.refresh, options.startup_timeout_seconds)
    if not view.partitions:
        _log.warning("no topic matches %r yet; the query waits for one", options.interest.pattern)
    return patience.usable_view(lambda v: is_settled(v, options.interest))
