"""Topics as a writer needs them: made, counted, and what they take."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as RawTopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from discovery.core.errors import ConfigError, TransactionError
from discovery.core.model import TopicName
from discovery.core.plural import counted
from discovery.kafka.inventory import broker_option, topic_option
from discovery.kafka.patience import OutOfTimeError, outcome_of, retried
from discovery.kafka.settings import QuietLog
from discovery.kafka.transactions import Access, patiently

_LARGEST, _RETENTION, _POLICY = "max.message.bytes", "offsets.retention.minutes", "cleanup.policy"
REPLICAS = 3
LEAST_IN_SYNC = REPLICAS // 2 + 1
"""Of three replicas, those that must have a record before it counts: one broker may die, and none be wrong."""
_SEGMENT_BYTES = 1 << 24
_MANY_REPLICAS = 5
"""Of a topic that must be written to while any two brokers are dead: three of five must have a record."""


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What a writer must know of a topic."""

    partitions: int
    replicas: int


def make_topic(
    admin: AdminClient,
    topic: TopicName,
    *,
    partitions: int,
    compacted: bool,
    deadline: float,
    outlives_two: bool = False,
) -> None:
    """Make a topic with three replicas where there are three brokers; one that exists meanwhile is fine.

    Args:
        admin: Asks and makes.
        topic: Its name.
        partitions: How many.
        compacted: The last record of a key is kept for ever.
        deadline: `time.monotonic` after which nothing is tried any more.
        outlives_two: Five replicas where there are five brokers, so that it takes records with any two of them dead.

    Raises:
        KafkaException: it may not be made.
        OutOfTimeError: no answer until `deadline` (`time.monotonic`).

    Runs: driver; blocks until `deadline` at most, and 0.5 s.
    """
    known = retried(lambda left: admin.list_topics(timeout=left), deadline)
    brokers = len(known.brokers)
    replicas = _MANY_REPLICAS if outlives_two and brokers >= _MANY_REPLICAS else min(REPLICAS, brokers)
    config = {
        "min.insync.replicas": str(replicas // 2 + 1),
        "cleanup.policy": "compact" if compacted else "delete",
        # Only full segments are compacted, and who reads such a topic reads it from its beginning.
        **({"segment.bytes": str(_SEGMENT_BYTES)} if compacted else {}),
    }
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=config)
    try:
        retried(lambda left: outcome_of(admin.create_topics([wanted], request_timeout=left)[topic], left), deadline)
    except KafkaException as exc:
        if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


class TopicAdmin:
    """Asks for topics and makes them. One thread at a time; the constructor connects to nobody."""

    def __init__(self, access: Access) -> None:
        """Build the client.

        Raises:
            ConfigError: librdkafka refuses a property.
        """
        try:
            self._admin = AdminClient(access.properties(), logger=QuietLog())
        except KafkaException as exc:
            raise ConfigError(f"kafka options: {exc.args[0].str()}") from exc

    def shape(
        self, topic: TopicName, *, timeout_seconds: float, rights: str = "WRITE and DESCRIBE"
    ) -> TopicShape | None:
        """Return a topic's shape; None: there is none.

        Args:
            topic: Its name.
            timeout_seconds: Bounds the call.
            rights: What the caller needs on it; named where it may not even be seen.

        Raises:
            ConfigError: it may not be described.
            TransactionError: no answer in time.

        Runs: driver; blocks <= timeout_seconds.
        """
        found: Any = patiently(
            lambda left: self._admin.list_topics(topic, timeout=left),
            time.monotonic() + timeout_seconds,
            f"look for topic {topic}",
        )
        reported = found.topics[topic]
        if reported.error is None:
            replicas = min((len(p.replicas) for p in reported.partitions.values()), default=0)
            return TopicShape(len(reported.partitions), replicas)
        if reported.error.code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
            raise ConfigError(f"topic {topic}: {reported.error.str()}; allow {rights} on it")
        return None

    def filled(self, topic: TopicName, partitions: Collection[int], *, timeout_seconds: float) -> set[int]:
        """Return those of these partitions that have records.

        Raises:
            TransactionError: no answer in time, from one of their leaders.

        Runs: driver; blocks <= timeout_seconds + 0.5.
        """
        if not partitions:
            return set()
        deadline = time.monotonic() + timeout_seconds

        def offsets(spec: Any) -> dict[int, int]:
            asked = {RawTopicPartition(topic, number): spec for number in partitions}

            def ask(left: float) -> dict[int, int]:
                answered = self._admin.list_offsets(asked, request_timeout=left)
                return {place.partition: outcome_of(future, left).offset for place, future in answered.items()}

            found: dict[int, int] = patiently(ask, deadline, f"find the records of topic {topic}")
            return found

        ends = offsets(OffsetSpec.latest())  # type: ignore[no-untyped-call]
        starts = offsets(OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        return {number for number, end in ends.items() if starts[number] < end}

    def may_write(self, topic: TopicName, *, timeout_seconds: float) -> bool:
        """Tell whether this login may write; True also where brokers do not say.

        Runs: driver; blocks <= timeout_seconds + 0.5.
        """
        described = self._described(topic, timeout_seconds, include_authorized_operations=True)
        allowed = None if described is None else described.authorized_operations
        return not allowed or AclOperation.WRITE in allowed

    def topic_id(self, topic: TopicName, *, timeout_seconds: float = 10.0) -> str:
        """Return a topic's id, which no other topic of that name ever has; empty where nobody says it.

        Runs: driver; blocks <= timeout_seconds + 0.5.
        """
        described = self._described(topic, timeout_seconds)
        return "" if described is None or described.topic_id is None else str(described.topic_id)

    def _described(self, topic: TopicName, timeout_seconds: float, **options: bool) -> Any:
        def ask(left: float) -> Any:
            asked = TopicCollection([topic])
            return outcome_of(self._admin.describe_topics(asked, request_timeout=left, **options)[topic], left)

        try:
            return retried(ask, time.monotonic() + timeout_seconds)
        except (KafkaException, OutOfTimeError):
            return None

    def create(self, topic: TopicName, *, partitions: int, timeout_seconds: float, compacted: bool = True) -> None:
        """Make a topic with three replicas where there are three brokers; one that exists meanwhile is fine.

        Raises:
            ConfigError: it may not be made.
            TransactionError: no answer in time.

        Runs: driver; blocks <= timeout_seconds + 0.5.
        """
        deadline = time.monotonic() + timeout_seconds
        try:
            make_topic(self._admin, topic, partitions=partitions, compacted=compacted, deadline=deadline)
        except OutOfTimeError as error:
            raise TransactionError(f"topic {topic} could not be made in time: {error}") from error
        except KafkaException as exc:
            raise ConfigError(
                f"topic {topic}: {exc.args[0].str()}; create it by hand: {counted(partitions, 'partition')}, "
                f"{REPLICAS} replicas, or allow CREATE"
            ) from exc

    def forget_group(self, group: str, *, timeout_seconds: float) -> None:
        """Delete a group with all its offsets; one that does not exist is fine.

        Raises:
            TransactionError: not done, or nobody knows.

        Runs: an operator's command; blocks <= timeout_seconds + 0.5.
        """
        try:
            patiently(
                lambda left: outcome_of(self._admin.delete_consumer_groups([group], request_timeout=left)[group], left),
                time.monotonic() + timeout_seconds,
                f"delete group {group}",
            )
        except TransactionError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    def offsets_retention_seconds(self, *, timeout_seconds: float) -> int | None:
        """Return how long every broker keeps a committed offset at least; None where none of them says.

        Runs: driver; blocks <= timeout_seconds + 0.5.
        """
        deadline = time.monotonic() + timeout_seconds
        try:
            brokers = retried(lambda left: self._admin.list_topics(timeout=left), deadline).brokers
        except (KafkaException, OutOfTimeError):
            return None
        left = max(0.1, deadline - time.monotonic())
        reported = broker_option(self._admin, _RETENTION, list(brokers), timeout_seconds=left, needs_one=False)
        return min((int(minutes) * 60 for minutes in reported.values() if minutes), default=None)

    def cleanup_policy(self, topic: TopicName, *, timeout_seconds: float) -> str | None:
        """Return what becomes of a topic's old records; None where it may not be asked.

        Runs: driver; blocks <= timeout_seconds + 0.5.
        """
        reported = topic_option(self._admin, _POLICY, [topic], timeout_seconds=timeout_seconds, needs_one=False)
        return reported.get(topic)

    def largest_records(self, topics: Collection[TopicName], *, timeout_seconds: float) -> Mapping[TopicName, int]:
        """Return `max.message.bytes` of each topic; one that may not be described is absent.

        Runs: driver; blocks <= timeout_seconds + 0.5.
        """
        reported = topic_option(self._admin, _LARGEST, topics, timeout_seconds=timeout_seconds, needs_one=False)
        return {topic: int(value) for topic, value in reported.items()}
