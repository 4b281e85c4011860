"""Questions to one leader, put together into one answer."""

from collections.abc import Mapping, Sequence

from discovery.core.answers import OffsetsAnswer
from discovery.core.errors import GatewayError
from discovery.core.model import Isolation, PartitionOffsets, TopicPartition
from discovery.core.policy import Policy
from discovery.kafka.base import EARLIEST, LATEST, Gateway, OffsetAndEpoch
from discovery.loop.offsets import LeaderAsk

_Answered = Mapping[TopicPartition, OffsetAndEpoch]


def ask_offsets(gateway: Gateway, ask: LeaderAsk, isolations: Sequence[Isolation], policy: Policy) -> OffsetsAnswer:
    """Ask one leader for the ends, and the starts where wanted; silence is an answer with nothing in it.

    A partition counts as answered only with all ends asked for: a start alone plans nothing.

    Runs: a worker of the loop; blocks <= (isolations + 1) x (offsets timeout + 1 s).
    """
    timeout = policy.offsets_timeout_seconds
    try:
        ends = {
            isolation: gateway.list_offsets(ask.partitions, LATEST, isolation=isolation, timeout_seconds=timeout)
            for isolation in isolations
        }
        answered = frozenset.intersection(*(frozenset(one) for one in ends.values()))
        starts: _Answered = {}
        if ask.with_start and answered:
            starts = gateway.list_offsets(tuple(answered), EARLIEST, timeout_seconds=timeout)
    except GatewayError as error:
        return OffsetsAnswer(leader_id=ask.leader_id, asked=ask.partitions, offsets={}, detail=error.detail)
    offsets = {tp: _offsets({isolation: one[tp] for isolation, one in ends.items()}, starts.get(tp)) for tp in answered}
    detail = "" if len(offsets) == len(ask.partitions) else _why(offsets, timeout)
    return OffsetsAnswer(leader_id=ask.leader_id, asked=ask.partitions, offsets=offsets, detail=detail)


def _why(offsets: Mapping[TopicPartition, PartitionOffsets], timeout_seconds: float) -> str:
    """Say what silence can mean: of many partitions some may come too late, where others say who leads no more."""
    late = f"no answer within {timeout_seconds:g} s"
    return f"{late}, or it does not lead it now" if offsets else late


def _offsets(ends: Mapping[Isolation, OffsetAndEpoch], start: OffsetAndEpoch | None) -> PartitionOffsets:
    high, stable = ends.get(Isolation.READ_UNCOMMITTED), ends.get(Isolation.READ_COMMITTED)
    epochs = [end.leader_epoch for end in ends.values() if end.leader_epoch is not None]
    return PartitionOffsets(
        start_offset=start.offset if start else None,
        high_watermark=high.offset if high else None,
        last_stable_offset=stable.offset if stable else None,
        leader_epoch=max(epochs, default=None),
    )
