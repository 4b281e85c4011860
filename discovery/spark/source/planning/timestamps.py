"""From a time to offsets: asked of the leaders, and waited for, because no other answer would be exact."""

import contextlib
from datetime import UTC, datetime

from discovery.core.errors import ConfigError, KafkaUnreachableError
from discovery.core.model import TopicPartition
from discovery.feed.base import FeedView, SourceFeed
from discovery.spark.source.planning.bounds import STRATEGY, ByTimestamp, NoneAfter
from discovery.spark.source.planning.offsets import LATEST, Offsets
from discovery.spark.source.planning.plan import describe
from discovery.spark.source.planning.start import existing, refuse_mismatch
from discovery.spark.source.waiting import Patience


def offsets_by_time(
    by: ByTimestamp, view: FeedView, feed: SourceFeed, patience: Patience, *, wait_seconds: float
) -> Offsets:
    """Find the first record at or after a time in every partition; LATEST where there is none and that is allowed.

    A checkpoint holds offsets and no times, so a partition whose leader is silent cannot be put off: it is waited for.

    Raises:
        ConfigError: a partition has no such record, and `startingOffsetsByTimestampStrategy` is error, or a time by
            partition does not name exactly those of the view.
        KafkaUnreachableError: a leader did not answer within `wait_seconds`; names its partitions.

    Runs: driver, once at a start; blocks <= wait_seconds.
    """
    there, answered = existing(view), Offsets()
    if not isinstance(by.milliseconds, int):
        refuse_mismatch(by.milliseconds.keys(), there, option=by.option)

    def ask(seconds: float) -> None:
        if missing := {tp: by.of(tp) for tp in there if tp not in answered}:
            with contextlib.suppress(KafkaUnreachableError):
                answered.update(feed.resolve(missing, timeout_seconds=seconds, by_timestamp=True))
        if silent := [tp for tp in missing if tp not in answered]:
            raise KafkaUnreachableError(_text(by, silent, feed, wait_seconds))

    patience.ask(ask, wait_seconds)
    none = sorted(tp for tp, offset in answered.items() if offset == LATEST)
    if none and by.none_after is NoneAfter.ERROR:
        more = f" and {len(none) - 1} more" if len(none) > 1 else ""
        raise ConfigError(
            f"{by.option}: {none[0]}{more} has no record at or after {_readable(by.of(none[0]))}; "
            f"name an earlier time, or set {STRATEGY} to latest to begin there with what comes next"
        )
    return answered


def _text(by: ByTimestamp, silent: list[TopicPartition], feed: SourceFeed, wait_seconds: float) -> str:
    known = feed.view().partitions
    reasons = [(tp, (known[tp].parked_reason if tp in known else None) or "its leader is silent") for tp in silent]
    return (
        f"{by.option}: the offset at that time is unknown for {describe(reasons)}, waited for up to "
        f"{wait_seconds:g} s; try again when its leader is back, or use offsets instead of a time"
    )


def _readable(milliseconds: int) -> str:
    try:
        return f"{milliseconds} ({datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
