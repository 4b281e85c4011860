"""From a time to offsets: asked of the leaders, and waited for, because no other answer would be exact."""

import logging
from collections.abc import Collection
from datetime import UTC, datetime

from discovery.core.clock import Clock
from discovery.core.errors import ConfigError, KafkaUnreachableError
from discovery.core.model import TopicPartition
from discovery.feed.base import FeedView, SourceFeed
from discovery.spark.source.planning.bounds import STRATEGY, ByTimestamp, NoneAfter
from discovery.spark.source.planning.offsets import LATEST, Offsets
from discovery.spark.source.planning.plan import describe
from discovery.spark.source.planning.start import existing, refuse_mismatch

_log = logging.getLogger("kafka_discovery.source")
_ASK_SECONDS = 5.0
_AGAIN_SECONDS = 0.5
_SAY_AGAIN_SECONDS = 10.0


def offsets_at(
    by: ByTimestamp, partitions: Collection[TopicPartition], feed: SourceFeed, clock: Clock, *, wait_seconds: float
) -> Offsets:
    """Find the first record at or after a time in every partition; LATEST where there is none and that is allowed.

    A checkpoint holds offsets and no times, so a partition whose leader is silent cannot be put off: it is waited for.

    Raises:
        ConfigError: a partition has no such record, and `startingOffsetsByTimestampStrategy` is error.
        KafkaUnreachableError: a leader did not answer within `wait_seconds`; names its partitions.

    Runs: driver, once at a start; blocks <= wait_seconds.
    """
    answered = _ask(by, partitions, feed, clock, wait_seconds)
    none = sorted(tp for tp, offset in answered.items() if offset == LATEST)
    if none and by.none_after is NoneAfter.ERROR:
        more = f" and {len(none) - 1} more" if len(none) > 1 else ""
        raise ConfigError(
            f"{by.option}: {none[0]}{more} has no record at or after {_readable(by.of(none[0]))}; "
            f"name an earlier time, or set {STRATEGY} to latest to begin there with what comes next"
        )
    return answered


def offsets_by_time(by: ByTimestamp, view: FeedView, feed: SourceFeed, clock: Clock, *, wait_seconds: float) -> Offsets:
    """Do `offsets_at` for the partitions of a view, which a time by partition must name exactly."""
    there = existing(view)
    if not isinstance(by.milliseconds, int):
        refuse_mismatch(by.milliseconds.keys(), there, option=by.option)
    return offsets_at(by, there, feed, clock, wait_seconds=wait_seconds)


def _ask(
    by: ByTimestamp, partitions: Collection[TopicPartition], feed: SourceFeed, clock: Clock, wait_seconds: float
) -> Offsets:
    answered: Offsets = {}
    deadline, say_at = clock.monotonic() + wait_seconds, clock.monotonic() + _SAY_AGAIN_SECONDS
    while missing := {tp: by.of(tp) for tp in partitions if tp not in answered}:
        remaining = deadline - clock.monotonic()
        try:
            answered |= feed.resolve(missing, timeout_seconds=max(min(_ASK_SECONDS, remaining), 0.1), by_timestamp=True)
        except KafkaUnreachableError as error:
            _log.info("%s: nobody answered an offset: %s", by.option, error)
        silent = [tp for tp in missing if tp not in answered]
        now = clock.monotonic()
        if silent and now >= deadline:
            raise KafkaUnreachableError(_text(by, silent, feed, f"after {wait_seconds:g} s"))
        if silent and now >= say_at:
            say_at = now + _SAY_AGAIN_SECONDS
            _log.warning("the query cannot start yet: %s", _text(by, silent, feed, "so far"))
        if silent:
            feed.wait(feed.view().version, min(_AGAIN_SECONDS, deadline - now))
    return answered


def _text(by: ByTimestamp, silent: list[TopicPartition], feed: SourceFeed, since: str) -> str:
    known = feed.view().partitions
    reasons = [(tp, (known[tp].parked_reason if tp in known else None) or "its leader is silent") for tp in silent]
    return (
        f"{by.option}: {since} the offset at that time is unknown for {describe(reasons)}; "
        "try again when its leader is back, or use offsets instead of a time"
    )


def _readable(milliseconds: int) -> str:
    try:
        return f"{milliseconds} ({datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
