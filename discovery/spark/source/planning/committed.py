"""A start where a consumer group stands: what it committed, checked against what there is."""

import logging
from collections.abc import Mapping

from discovery.core.errors import ConfigError
from discovery.core.model import TopicPartition
from discovery.feed.base import FeedView, Interest, PartitionView
from discovery.spark.source.options.parse import FALLBACK
from discovery.spark.source.planning.bounds import STARTING
from discovery.spark.source.planning.offsets import Offsets
from discovery.spark.source.planning.plan import describe
from discovery.spark.source.planning.start import existing

_log = logging.getLogger("kafka_discovery.source")


def committed_start(
    committed: Mapping[TopicPartition, int], view: FeedView, interest: Interest, *, group: str, fallback: int | None
) -> Offsets:
    """Choose where each partition begins: at its committed offset where that can be read, else at the fallback.

    Args:
        committed: What the group committed; partitions without an offset are absent.
        view: The feed's picture. A partition whose range is unknown is taken at the group's word.
        interest: What is read.
        group: For messages.
        fallback: EARLIEST, LATEST, or None: such a partition is an error.

    Raises:
        ConfigError: there is no fallback; names every partition that would need one, with the reason.

    Runs: anywhere (pure, but for a line in the log).
    """
    there = existing(view)
    odd = {tp: why for tp, known in there.items() if (why := _why_not(committed.get(tp), known, interest))}
    if odd and fallback is None:
        raise ConfigError(
            f"{STARTING.offsets}=committed: group {group} has no offset to begin at for {describe(odd.items())}; "
            f"set {FALLBACK} to earliest or latest, or give offsets as JSON"
        )
    if odd:
        _log.warning("group %s has no offset to begin at, %s is used: %s", group, FALLBACK, describe(odd.items()))
    return {tp: fallback if tp in odd and fallback is not None else committed[tp] for tp in there}


def _why_not(offset: int | None, known: PartitionView, interest: Interest) -> str | None:
    begin, end = known.start_offset, known.end_offset(interest.isolation)
    if offset is None:
        return "nothing committed"
    if begin is not None and offset < begin:
        return f"committed {offset}, but it begins at {begin}"
    if end is not None and offset > end:
        return f"committed {offset}, but it ends at {end}"
    return None
