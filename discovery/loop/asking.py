"""Questions to one leader, put together into one answer."""

from collections.abc import Mapping

from discovery.core.answers import OffsetsAnswer
from discovery.core.errors import GatewayError
from discovery.core.model import Isolation, PartitionOffsets, TopicPartition
from discovery.core.policy import Policy
from discovery.kafka.base import EARLIEST, LATEST, Gateway, OffsetAndEpoch
from discovery.loop.offsets import LeaderAsk

_Told = Mapping[TopicPartition, OffsetAndEpoch]


def ask_offsets(gateway: Gateway, ask: LeaderAsk, isolation: Isolation, policy: Policy) -> OffsetsAnswer:
    """Ask one leader for the ends, and the starts where wanted; silence is an answer with nothing in it.

    A partition counts as told only with its end: a start alone plans nothing.

    Runs: a worker of the loop; blocks <= 2 x (offsets timeout + 1 s).
    """
    timeout = policy.offsets_timeout_seconds
    try:
        ends = gateway.list_offsets(ask.partitions, LATEST, isolation=isolation, timeout_seconds=timeout)
        starts: _Told = {}
        if ask.with_start and ends:
            starts = gateway.list_offsets(tuple(ends), EARLIEST, timeout_seconds=timeout)
    except GatewayError as error:
        return OffsetsAnswer(leader_id=ask.leader_id, asked=ask.partitions, offsets={}, detail=error.detail)
    offsets = {tp: _offsets(end, starts.get(tp), isolation) for tp, end in ends.items()}
    detail = "" if len(offsets) == len(ask.partitions) else _why(offsets, timeout)
    return OffsetsAnswer(leader_id=ask.leader_id, asked=ask.partitions, offsets=offsets, detail=detail)


def _why(offsets: Mapping[TopicPartition, PartitionOffsets], timeout_seconds: float) -> str:
    return "it no longer leads it, or not yet" if offsets else f"no answer within {timeout_seconds:g} s"


def _offsets(end: OffsetAndEpoch, start: OffsetAndEpoch | None, isolation: Isolation) -> PartitionOffsets:
    committed = isolation is Isolation.READ_COMMITTED
    return PartitionOffsets(
        start_offset=start.offset if start else None,
        high_watermark=None if committed else end.offset,
        last_stable_offset=end.offset if committed else None,
        leader_epoch=end.leader_epoch,
    )
