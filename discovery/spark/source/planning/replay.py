"""A batch that an earlier run planned: what of it may be read still. Pure."""

from collections.abc import Callable

from discovery.core.errors import DataLossError
from discovery.core.model import TopicPartition
from discovery.spark.source.planning.losses import Loss, LossKind, summarize
from discovery.spark.source.planning.offsets import Offsets


def refuse_rewinds(
    first: Offsets, last: Offsets, *, is_cut: Callable[[TopicPartition, int, int], bool] | None = None
) -> None:
    """Refuse a plan that goes back, unless a cut is the reason.

    Raises:
        DataLossError: names the partitions.

    Runs: anywhere (pure).
    """
    losses = tuple(
        Loss(
            kind=LossKind.SHRUNK,
            topic_partition=tp,
            text=f"the checkpoint plans {tp} back from offset {first[tp]} to {until}: "
            "the topic was truncated or recreated, or sourceId is not the one under which it was cut",
        )
        for tp, until in last.items()
        if until < first.get(tp, until) and not (is_cut is not None and is_cut(tp, first[tp], until))
    )
    if losses:
        raise DataLossError(summarize(losses))
