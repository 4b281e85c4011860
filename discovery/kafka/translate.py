"""The border: librdkafka's errors and metadata become our values, each in one function."""

from functools import lru_cache
from operator import attrgetter
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from discovery.core.answers import MetadataAnswer
from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    ClusterId,
    PartitionMetadata,
    TopicMetadata,
    TopicName,
)
from discovery.kafka import codes
from discovery.kafka.settings import PROBE_TOPIC
from discovery.kafka.vetting.tls import is_tls_failure

_REMEMBERED = 50_000
"""Partitions reported lately; beyond it they are built again."""
_LONGEST = 400


def said(error: KafkaError) -> str:
    """Return an error's text as one short line: what an issuer of tokens answers, a page in HTML too, is part of it.

    Runs: anywhere (pure).
    """
    text = " ".join(error.str().split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def failure_kind(error: KafkaError) -> FailureKind:
    """Say how the loop should treat this error.

    Runs: anywhere (pure).
    """
    code = error.code()
    if code in codes.AUTH:
        return FailureKind.AUTH
    if code == codes.SSL or (code == codes.TRANSPORT and is_tls_failure(error.str())):
        return FailureKind.TLS
    if code in codes.UNKNOWN_TOPIC:
        return FailureKind.TOPIC_UNKNOWN
    if code in codes.TRANSIENT or error.retriable():
        return FailureKind.TRANSIENT
    return FailureKind.BUG


def is_answer(exc: BaseException) -> bool:
    """Tell whether this failure is an answer about one partition (no leader, moved, unknown), not silence or refusal.

    Runs: anywhere (pure).
    """
    if not isinstance(exc, KafkaException):
        return False
    code = exc.args[0].code()
    return code == codes.NO_LEADER or (code > 0 and code not in codes.AUTH)


def gateway_error(exc: BaseException, doing: str) -> GatewayError:
    """Turn what confluent_kafka raised into the one error the loop knows.

    Runs: anywhere (pure).
    """
    if isinstance(exc, KafkaException) and exc.args and isinstance(exc.args[0], KafkaError):
        error = exc.args[0]
        return GatewayError(failure_kind(error), f"{doing}: {error.name()}: {error.str()}")
    if isinstance(exc, TimeoutError):
        return GatewayError(FailureKind.TRANSIENT, f"{doing}: no answer in time")
    return GatewayError(FailureKind.BUG, f"{doing}: {type(exc).__name__}: {exc}")


def brokers_of(metadata: Any) -> tuple[Broker, ...]:
    """Return the brokers of one answer, by id.

    Runs: anywhere (pure).
    """
    return tuple(
        Broker(broker_id=BrokerId(b.id), address=BrokerAddress(b.host, b.port))
        for b in sorted(metadata.brokers.values(), key=lambda b: b.id)
        if b.host and b.port > 0
    )


def topic_of(topic: Any) -> TopicMetadata:
    """Return one topic. A partition-level error keeps the partition and leaves its leader unknown.

    Runs: anywhere (pure).
    """
    return TopicMetadata(
        name=TopicName(topic.topic),
        partitions=tuple(
            _partition(p.id, p.leader, tuple(p.replicas), tuple(p.isrs))
            for p in sorted(topic.partitions.values(), key=attrgetter("id"))
        ),
    )


@lru_cache(maxsize=_REMEMBERED)
def _partition(
    number: int, leader: int, replicas: tuple[BrokerId, ...], in_sync: tuple[BrokerId, ...]
) -> PartitionMetadata:
    """Return the same object for the same words: they come every second, and what is the same is compared at once."""
    leader_id = BrokerId(leader) if leader >= 0 else None
    return PartitionMetadata(partition=number, leader_id=leader_id, replicas=replicas, in_sync=in_sync)


def metadata_answer(metadata: Any, *, complete: bool = False) -> MetadataAnswer:
    """Turn one `list_topics` result into our answer; the probe topic is left out.

    Raises:
        GatewayError: no broker in it (EMPTY), or an asked topic is forbidden (AUTH).

    Runs: anywhere (pure).
    """
    brokers = brokers_of(metadata)
    if not brokers:
        raise GatewayError(FailureKind.EMPTY, "the metadata answer holds no broker")
    known: list[TopicMetadata] = []
    unknown: list[TopicName] = []
    for topic in metadata.topics.values():
        if topic.topic == PROBE_TOPIC:
            # It is asked for to hear of brokers. A login that may not describe all topics learns that it is forbidden.
            continue
        if topic.error is None:
            known.append(topic_of(topic))
        elif topic.error.code() in codes.UNKNOWN_TOPIC:
            unknown.append(TopicName(topic.topic))
        elif failure_kind(topic.error) is FailureKind.AUTH:
            raise GatewayError(FailureKind.AUTH, f"topic {topic.topic}: {topic.error.str()}; allow DESCRIBE on it")
        # Any other topic error (LEADER_NOT_AVAILABLE while it is made) leaves the topic unsaid: unknown, not gone.
    return MetadataAnswer(
        cluster_id=ClusterId(metadata.cluster_id) if metadata.cluster_id else None,
        brokers=brokers,
        topics=tuple(sorted(known, key=lambda t: t.name)),
        unknown_topics=tuple(sorted(unknown)),
        complete=complete,
        controller_id=BrokerId(metadata.controller_id) if metadata.controller_id >= 0 else None,
        answered_by=BrokerId(metadata.orig_broker_id) if metadata.orig_broker_id >= 0 else None,
    )
