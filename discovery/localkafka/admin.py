"""Topics and metadata of a local cluster, asked through the brokers that live; every call has a deadline."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from discovery.core.errors import DiscoveryError, KafkaUnreachableError
from discovery.core.plural import counted

_QUIET = logging.getLogger("kafka_discovery.localkafka.librdkafka")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
_CALL_SECONDS = 5.0
_ASIDE_SECONDS = 1.0
_ANSWER_SECONDS = 60.0
"""librdkafka ends every request earlier, by the deadline it was given."""


class TopicError(DiscoveryError):
    """The cluster refused to do something to a topic; says what and why."""


def wait_until(condition: Callable[[], bool], *, deadline_seconds: float, otherwise: Callable[[], str]) -> None:
    """Ask until the condition holds.

    Raises:
        KafkaUnreachableError: it did not within the deadline; carries the text of `otherwise`.
    """
    deadline = time.monotonic() + deadline_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise KafkaUnreachableError(f"{otherwise()} (waited {deadline_seconds:g} s)")
        time.sleep(0.05)


class Admin:
    """Administration over the given addresses; holds one short-lived client."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str]) -> None:
        """Make the client; connects in the background."""
        self._client = AdminClient(
            {
                "bootstrap.servers": bootstrap_servers,
                "socket.timeout.ms": 5000,
                "socket.connection.setup.timeout.ms": 2000,
                "reconnect.backoff.max.ms": 500,
                "allow.auto.create.topics": False,
                **options,
            },
            logger=_QUIET,
        )

    def metadata(self, *, timeout_seconds: float = _CALL_SECONDS) -> Any:
        """Return the cluster's metadata, or None where nobody answered."""
        try:
            return self._client.list_topics(timeout=timeout_seconds)
        except KafkaException:
            return None

    def registered(self) -> set[int]:
        """Return the ids that metadata lists; empty where nobody answers."""
        found = self.metadata()
        return set(found.brokers) if found else set()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        assignment: Sequence[Sequence[int]] | None,
        deadline_seconds: float,
    ) -> None:
        """Create a topic and wait until every partition has a leader and all its replicas in sync."""
        how: dict[str, Any] = (
            {"num_partitions": len(assignment), "replica_assignment": [list(replicas) for replicas in assignment]}
            if assignment
            else {"num_partitions": partitions, "replication_factor": replication_factor}
        )
        topic = NewTopic(name, config=dict(config), **how)
        self._finish(self._client.create_topics([topic], request_timeout=deadline_seconds), name, "create topic")
        self.await_leaders(name, len(assignment) if assignment else partitions, deadline_seconds=deadline_seconds)

    def add_partitions(self, topic: str, total: int, *, deadline_seconds: float) -> None:
        """Grow a topic to `total` partitions; returns when the cluster has accepted it."""
        grown = self._client.create_partitions([NewPartitions(topic, total)], request_timeout=deadline_seconds)
        self._finish(grown, topic, f"grow to {counted(total, 'partition')} topic")

    def delete_topic(self, topic: str, *, deadline_seconds: float) -> None:
        """Delete a topic and wait until metadata no longer names it."""

        def unlisted() -> bool:
            return (found := self.metadata()) is not None and topic not in found.topics

        def deleted() -> bool:
            asked = self._client.delete_topics([topic], request_timeout=deadline_seconds)
            try:
                self._finish(asked, topic, "delete topic")
            except TopicError as error:
                cause: Any = error.__cause__
                if cause.args[0].code() != KafkaError._TRANSPORT:  # noqa: SLF001 - public
                    raise
                return unlisted()  # the broker that was asked died over it: another one may be asked
            return True

        wait_until(deleted, deadline_seconds=deadline_seconds, otherwise=lambda: f"cannot delete topic {topic}")
        wait_until(
            unlisted,
            deadline_seconds=deadline_seconds,
            otherwise=lambda: f"topic {topic} is still listed after its deletion",
        )

    def await_leaders(self, topic: str, partitions: int, *, deadline_seconds: float) -> None:
        """Wait until the topic has that many partitions, all led and with their whole replica list in sync."""

        def led() -> bool:
            found = self.metadata()
            if found is None or topic not in found.topics or len(found.topics[topic].partitions) < partitions:
                return False
            return all(
                p.leader >= 0 and set(p.isrs) >= set(p.replicas) for p in found.topics[topic].partitions.values()
            )

        wait_until(
            led,
            deadline_seconds=deadline_seconds,
            otherwise=lambda: f"topic {topic} has not all of {counted(partitions, 'partition')} led and in sync",
        )

    def _finish(self, futures: Mapping[str, Any], topic: str, verb: str) -> None:
        future = futures[topic]

        def answered() -> bool:
            if not wait([future], _ASIDE_SECONDS).done:
                self.metadata()  # the last one may have called a broker controller that has died since
            return bool(future.done())

        wait_until(
            answered,
            deadline_seconds=_ANSWER_SECONDS,
            otherwise=lambda: f"cannot {verb} {topic}: no broker answered; see that some live",
        )
        try:
            future.result()
        except KafkaException as error:
            raise TopicError(f"cannot {verb} {topic}: {error.args[0].str()}") from error
