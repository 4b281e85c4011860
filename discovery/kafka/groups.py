"""Committed offsets of a group: read by a short-lived consumer, written by one that stays."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawTopicPartition

from discovery.core.errors import ConfigError, FailureKind, GatewayError
from discovery.core.model import TopicName, TopicPartition
from discovery.kafka.codes import WAIT_COORDINATOR
from discovery.kafka.commits import CommitAnswer
from discovery.kafka.patience import OutOfTimeError, checked, retried
from discovery.kafka.settings import QuietLog

_POLL_SECONDS = 0.1
_COORDINATOR_MOVING = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        WAIT_COORDINATOR,
    }
)


def committed_offsets(
    properties: Mapping[str, Any], group: str, partitions: Collection[TopicPartition], *, timeout_seconds: float
) -> Mapping[TopicPartition, int]:
    """Ask the group's coordinator; partitions without a committed offset are absent.

    `AdminClient.list_consumer_group_offsets` would need no client of its own, but it crashes the whole process with
    a segmentation fault whenever the asked broker is not the coordinator (any more): on a new cluster, and when the
    coordinator moves, that is in every scale-in (librdkafka issue 5040, seen with 2.16.0).

    Raises:
        ConfigError: librdkafka refuses a property.
        KafkaException: the coordinator did not answer, or refused a partition.

    Runs: anywhere; blocks <= timeout_seconds. The consumer joins no group and is dropped, not closed: `close` has
    no limit.
    """
    consumer = _consumer(properties, group)
    raw = [RawTopicPartition(tp.topic, tp.partition) for tp in partitions]
    answer = _patiently(lambda left: checked(consumer.committed(raw, timeout=left)), timeout_seconds)
    return {TopicPartition(TopicName(tp.topic), tp.partition): tp.offset for tp in answer if tp.offset >= 0}


def _patiently(ask: Callable[[float], Any], timeout_seconds: float) -> Any:
    """Ask again while the coordinator is moving or still being found, as on a new cluster; librdkafka does not."""
    deadline = time.monotonic() + timeout_seconds
    try:
        return retried(ask, deadline, passes=_is_moving, answer_seconds=timeout_seconds)
    except OutOfTimeError as error:
        raise KafkaException(error.last or KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001 - public


def _is_moving(error: KafkaError) -> bool:
    return error.code() in _COORDINATOR_MOVING


_GIVE_UP_MILLISECONDS = 1_000
"""How long librdkafka itself waits for a coordinator before it fails a commit.

It calls this the session timeout, 45 s by default, and a client that is dropped meanwhile turns in a tight loop until
then. No session exists here, since nobody joins.
"""


class GroupWriter:
    """Commits offsets of one group from outside of it. Thread-safe; the constructor connects to nobody.

    `Consumer.commit` of a consumer that joined nothing sends what the protocol calls a simple commit: the coordinator
    takes it while the group has no members and refuses it otherwise (UNKNOWN_MEMBER_ID), so that a group in use by
    ordinary consumers is never disturbed. It is asked to answer by callback, because its blocking form has no limit.
    """

    def __init__(self, properties: Mapping[str, Any], group: str) -> None:
        self._answer = CommitAnswer()
        self._properties = {**properties, "on_commit": self._answer.hear, "session.timeout.ms": _GIVE_UP_MILLISECONDS}
        self._group = group
        self._lock = threading.Lock()
        self._consumer: Any = None

    def commit(self, offsets: Mapping[TopicPartition, int], *, cluster_id: str | None, timeout_seconds: float) -> None:
        """Commit all of it.

        Args:
            offsets: What comes next in each partition, >= 0; at least one.
            cluster_id: Nothing is sent by a client that knows another cluster; None asks nobody.
            timeout_seconds: Limit; the answer of a commit that ran out of time is awaited before the next is sent.

        Raises:
            ConfigError: librdkafka refuses a property.
            GatewayError: the group has members, or the client knows another cluster.
            KafkaException: not taken. Where a partition does not exist the others were, but librdkafka does not say so.
            TimeoutError: no answer in time.

        Runs: anywhere; blocks <= timeout_seconds + 0.1.
        """
        raw = [RawTopicPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            try:
                retried(lambda _: self._exchange(raw, cluster_id, deadline), deadline, passes=_is_moving)
            except OutOfTimeError as error:
                if error.last is None or not _is_moving(error.last):
                    raise TimeoutError from None
                raise KafkaException(error.last) from None
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:
                    raise
                text = f"group {self._group} has members of its own ({error.args[0].str()})"
                raise GatewayError(FailureKind.TRANSIENT, text) from error

    def _exchange(self, raw: list[RawTopicPartition], cluster_id: str | None, deadline: float) -> None:
        if self._consumer is None:
            self._consumer = _consumer(self._properties, self._group)
        self._await_answer(deadline)
        known = self._consumer.cluster_id(timeout=max(0.001, deadline - time.monotonic())) if cluster_id else None
        if known != cluster_id:
            text = f"group {self._group}: the client was led away from cluster {cluster_id}; nothing was committed"
            raise GatewayError(FailureKind.TRANSIENT, text)
        self._consumer.commit(offsets=raw, asynchronous=True)
        self._answer.expect(raw)
        self._await_answer(deadline)
        if self._answer.error is not None:
            raise KafkaException(self._answer.error)

    def _await_answer(self, deadline: float) -> None:
        while self._answer.pending:
            if time.monotonic() >= deadline:
                raise TimeoutError
            self._consumer.poll(min(_POLL_SECONDS, max(0.001, deadline - time.monotonic())))


def _consumer(properties: Mapping[str, Any], group: str) -> Any:
    try:
        return Consumer(
            {**properties, "group.id": group, "enable.auto.commit": False, "enable.auto.offset.store": False},
            logger=QuietLog(),
        )
    except KafkaException as exc:
        raise ConfigError(f"kafka options: {exc.args[0].str()}") from exc
