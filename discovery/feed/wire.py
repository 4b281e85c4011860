"""How a view travels between the service and its followers: whole at first, then only what changed.

One document per answer. `since` is the version it builds on; 0 means it is whole. Partitions travel as short rows, for
there may be fifty thousand of them and offsets change all the time.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from discovery.core.errors import ConfigError, WireError
from discovery.core.interest import Interest
from discovery.core.model import (
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    LoopState,
    TopicId,
    TopicName,
    TopicPartition,
    Verdict,
)
from discovery.feed.base import AddressReport, FeedView, PartitionView

ROW = (
    "partition",
    "leader_id",
    "leader_epoch",
    "start_offset",
    "high_watermark",
    "last_stable_offset",
    "parked_reason",
    "parked_since_wall",
)
"""What a partition's row holds, in this order; null is unknown."""
_LEADERS = "leaders"
_ANSWER_SECONDS = "answer_seconds"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a follower stands: versions count within an epoch, and a restart begins a new epoch."""

    epoch: str = ""
    version: int = 0


def encode_view(
    view: FeedView, *, position: Position, since: int, partitions: Iterable[TopicPartition], scope: Interest
) -> dict[str, Any]:
    """Return the document that brings a follower from version `since` to this view.

    Args:
        view: What is shown now.
        position: Its epoch and version at the service.
        since: The version the follower holds; 0 sends `partitions` as all there are.
        partitions: What to send: all followed ones, or those that changed.
        scope: What the service follows at all: beyond it, absence proves nothing.

    Runs: anywhere (pure); O(partitions sent).
    """
    rows: defaultdict[TopicName, list[list[Any]]] = defaultdict(list)
    topics: dict[TopicName, dict[str, Any]] = {}
    leaders: dict[str, str] = {}
    answer_seconds: dict[str, float] = {}
    for tp in partitions:
        one = view.partitions[tp]
        rows[tp.topic].append([tp.partition, *(getattr(one, name) for name in ROW[1:])])
        topics[tp.topic] = {"topic_id": one.topic_id, "gone": one.gone}
        if one.leader_id is not None and one.leader is not None:
            leaders[str(one.leader_id)] = str(one.leader)
        if one.leader_id is not None and one.answer_seconds:
            answer_seconds[str(one.leader_id)] = one.answer_seconds
    return {
        "epoch": position.epoch,
        "version": position.version,
        "since": since,
        "generation": view.generation,
        "state": view.state.value,
        "cluster_id": view.cluster_id,
        "bootstrap": [str(address) for address in view.bootstrap],
        "missing_topics": list(view.missing_topics),
        "addresses": {str(address): report_document(report) for address, report in view.addresses.items()},
        "sentence": view.sentence,
        "fatal": view.fatal,
        "scope": {"topics": sorted(scope.topics), "pattern": scope.pattern},
        _LEADERS: leaders,
        _ANSWER_SECONDS: answer_seconds,
        "topics": {topic: {**topics[topic], "partitions": rows[topic]} for topic in rows},
    }


def report_document(report: AddressReport) -> dict[str, Any]:
    """Return an address's report as it travels."""
    return {
        "verdict": report.verdict.value if report.verdict else None,
        "detail": report.detail,
        "since_wall": report.since_wall,
        "configured": report.configured,
    }


def decode_position(document: Mapping[str, Any]) -> Position:
    """Return where a document leads.

    Raises:
        WireError: it is not one of ours.
    """
    try:
        return Position(epoch=str(document["epoch"]), version=int(document["version"]))
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"not a view of the service: {type(error).__name__}: {error}") from error


def decode_view(
    document: Mapping[str, Any], *, held: FeedView | None, interest: Interest, version: int, age_seconds: float
) -> FeedView:
    """Return the view after a document.

    Args:
        document: From `encode_view`, over the network: anything may be in it.
        held: The view that `since` names; None if nothing is held.
        interest: Whose partitions to keep.
        version: The version of the new view, in the follower's own count.
        age_seconds: How old the service said it is.

    Raises:
        WireError: it is not one of ours, or builds on a view that is not held.

    Runs: anywhere (pure); O(partitions).
    """
    try:
        return _decode(document, held=held, interest=interest, version=version, age_seconds=age_seconds)
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise WireError(f"not a view of the service: {type(error).__name__}: {error}") from error


def _decode(
    document: Mapping[str, Any], *, held: FeedView | None, interest: Interest, version: int, age_seconds: float
) -> FeedView:
    if document["since"] and held is None:
        raise WireError("the service sent changes of a view that is not held here")
    kept = dict(held.partitions) if held is not None and document["since"] else {}
    leaders = {int(i): BrokerAddress.parse(text, option="leader") for i, text in document[_LEADERS].items()}
    # An older service knows nothing of it.
    slow = {int(i): _seconds(value) for i, value in document.get(_ANSWER_SECONDS, {}).items()}
    for topic, reported in document["topics"].items():
        for row in reported["partitions"]:
            tp = TopicPartition(TopicName(topic), int(row[0]))
            if interest.wants(tp):
                kept[tp] = _partition(dict(zip(ROW, row, strict=True)), reported, leaders, slow)
    return FeedView(
        version=version,
        generation=Generation(int(document["generation"])),
        state=LoopState(document["state"]),
        cluster_id=ClusterId(document["cluster_id"]) if document["cluster_id"] else None,
        age_seconds=age_seconds,
        bootstrap=tuple(_address(text) for text in document["bootstrap"]),
        partitions=MappingProxyType(kept if _is_sorted(kept) else dict(sorted(kept.items()))),
        missing_topics=_missing(document, kept, interest),
        addresses=MappingProxyType({_address(a): _report(r) for a, r in document["addresses"].items()}),
        sentence=str(document["sentence"]),
        fatal=document["fatal"],
    )


def covers(document: Mapping[str, Any], interest: Interest) -> bool:
    """Tell whether the service follows all that this reader wants.

    Raises:
        WireError: the document is not one of ours.

    Runs: anywhere (pure).
    """
    try:
        topics, pattern = document["scope"]["topics"], document["scope"]["pattern"]
        if interest.pattern is not None:
            return pattern in {"", interest.pattern}
        scope = Interest(topics=tuple(map(TopicName, topics))) if topics else Interest(pattern=pattern)
        return all(scope.wants_topic(topic) for topic in interest.asked_topics or ())
    except (KeyError, TypeError, ConfigError) as error:
        raise WireError(f"not a view of the service: {type(error).__name__}: {error}") from error


def _missing(
    document: Mapping[str, Any], kept: Mapping[TopicPartition, PartitionView], interest: Interest
) -> tuple[TopicName, ...]:
    """Return the topics asked for by name that do not exist; only a confirmed view says that."""
    if document["state"] != LoopState.FRESH.value:
        return ()
    there = {tp.topic for tp, one in kept.items() if not one.gone}
    return tuple(topic for topic in interest.asked_topics or () if topic not in there)


def _is_sorted(partitions: Mapping[TopicPartition, PartitionView]) -> bool:
    listed = list(partitions)
    return all(a < b for a, b in itertools.pairwise(listed))


def _partition(
    row: Mapping[str, Any],
    topic: Mapping[str, Any],
    leaders: Mapping[int, BrokerAddress],
    slow: Mapping[int, float],
) -> PartitionView:
    leader_id = row["leader_id"]
    return PartitionView(
        topic_id=TopicId(topic["topic_id"]) if topic["topic_id"] else None,
        leader_id=None if leader_id is None else BrokerId(leader_id),
        leader=leaders.get(leader_id) if leader_id is not None else None,
        leader_epoch=_whole(row["leader_epoch"]),
        start_offset=_whole(row["start_offset"]),
        high_watermark=_whole(row["high_watermark"]),
        last_stable_offset=_whole(row["last_stable_offset"]),
        parked_reason=row["parked_reason"],
        parked_since_wall=row["parked_since_wall"],
        answer_seconds=slow.get(leader_id, 0.0),
        gone=bool(topic["gone"]),
    )


def _whole(value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise WireError(f"{value!r} is no offset")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise WireError(f"{value!r} is no duration")
    return float(value)


def _address(text: str) -> BrokerAddress:
    return BrokerAddress.parse(text, option="address")


def _report(raw: Mapping[str, Any]) -> AddressReport:
    return AddressReport(
        verdict=Verdict(raw["verdict"]) if raw["verdict"] else None,
        detail=str(raw["detail"]),
        since_wall=raw["since_wall"],
        configured=bool(raw["configured"]),
    )


def nested(values: Mapping[TopicPartition, _T]) -> dict[str, dict[str, _T]]:
    """Return `{topic: {"partition": value}}`, in order, as JSON has it."""
    found: dict[str, dict[str, _T]] = {}
    for tp in sorted(values):
        found.setdefault(tp.topic, {})[str(tp.partition)] = values[tp]
    return found


def flat(reported: Mapping[str, Mapping[str, _T]]) -> dict[TopicPartition, _T]:
    """Return what `nested` was made of."""
    return {TopicPartition(TopicName(t), int(p)): value for t, ps in reported.items() for p, value in ps.items()}
