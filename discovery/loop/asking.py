"""Questions put to Kafka, each turned into one answer; silence and errors are answers, too."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from discovery.config.logs import event_log
from discovery.core.answers import MetadataAnswer, MetadataFailure, OffsetsAnswer, TopicIdsAnswer
from discovery.core.clock import Clock
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.interest import Interest
from discovery.core.model import Isolation, PartitionOffsets, TopicName, TopicPartition
from discovery.core.policy import Policy
from discovery.core.questions import AskOffsets
from discovery.kafka.base import EARLIEST, LATEST, Gateway, ListsOffsets, OffsetAndEpoch, OffsetSpec

_Reported = Mapping[TopicPartition, OffsetAndEpoch]
_log = event_log("discovery.loop")


def ask_metadata(
    gateway: Gateway, interest: Interest, policy: Policy, clock: Clock
) -> MetadataAnswer | MetadataFailure:
    """Ask for brokers and the followed topics.

    Runs: a worker's or a waiter's thread; blocks <= 2 x request timeout.
    """
    began = clock.monotonic()
    try:
        answer = gateway.fetch_metadata(interest.asked_topics, timeout_seconds=policy.request_timeout_seconds)
    except GatewayError as error:
        return MetadataFailure(kind=error.kind, detail=error.detail, elapsed_seconds=clock.monotonic() - began)
    return replace(answer, elapsed_seconds=clock.monotonic() - began)


def ask_topic_ids(gateway: Gateway, topics: Collection[TopicName], policy: Policy, clock: Clock) -> TopicIdsAnswer:
    """Ask for topic ids; unknown is never a blocker.

    Runs: a worker of the loop; blocks <= request timeout + 1 s.
    """
    asked_at = clock.monotonic()
    try:
        ids = gateway.describe_topic_ids(topics, timeout_seconds=policy.request_timeout_seconds)
    except GatewayError as error:
        if error.kind is FailureKind.BUG:
            raise
        _log.debug("topic_ids_unknown", error=error.detail)
        ids = {}
    return TopicIdsAnswer(topic_ids=ids, asked_at=asked_at)


def ask_offsets(client: ListsOffsets, ask: AskOffsets, policy: Policy, clock: Clock) -> OffsetsAnswer:
    """Ask one leader for the ends, and the starts where wanted; silence is an answer with nothing in it.

    A partition counts as answered only with all ends asked for: a start alone plans nothing.

    Runs: a worker of the loop; blocks <= (isolations + 1) x (timeout + 1 s), the timeout being that of slow leaders
    or of the others.
    """
    timeout = policy.offsets_deadline_seconds if ask.patient else policy.offsets_timeout_seconds
    elapsed, asked_at = [0.0], clock.monotonic()

    def request(
        partitions: tuple[TopicPartition, ...], spec: OffsetSpec, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> _Reported:
        began = clock.monotonic()
        try:
            return client.list_offsets(partitions, spec, isolation=isolation, timeout_seconds=timeout)
        finally:
            elapsed.append(clock.monotonic() - began)

    try:
        ends = {isolation: request(ask.partitions, LATEST, isolation) for isolation in ask.isolations}
        known = frozenset.intersection(*(frozenset(one) for one in ends.values()))
        starts = request(tuple(known), EARLIEST) if ask.with_start and known else {}
    except GatewayError as error:
        return OffsetsAnswer(
            leader_id=ask.leader_id,
            asked=ask.partitions,
            offsets={},
            detail=error.detail,
            elapsed_seconds=max(elapsed),
            asked_at=asked_at,
        )
    offsets = {tp: _offsets({isolation: one[tp] for isolation, one in ends.items()}, starts.get(tp)) for tp in known}
    return OffsetsAnswer(
        leader_id=ask.leader_id,
        asked=ask.partitions,
        offsets=offsets,
        detail="" if len(offsets) == len(ask.partitions) else _why(offsets, max(elapsed), timeout),
        elapsed_seconds=max(elapsed),
        asked_at=asked_at,
    )


def _why(offsets: Mapping[TopicPartition, PartitionOffsets], took_seconds: float, timeout_seconds: float) -> str:
    """Say what it can mean. Where librdkafka says so at once, nothing was late: it had no connection, or no leader."""
    if took_seconds < timeout_seconds:
        return "its connection ended, or it does not lead it now"
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
