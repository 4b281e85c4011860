"""The seam to Kafka: what the loop may ask, each question with a mandatory timeout.

`confluent.py` answers with librdkafka; `tests/support/fakes` has a scripted twin. One contract suite runs on both.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from discovery.core.answers import MetadataAnswer, ProbeOutcome
from discovery.core.model import BrokerAddress, BrokerId, Isolation, TopicId, TopicName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpec:
    """Which offset of a partition is asked for: exactly one of earliest, latest, a timestamp."""

    timestamp_milliseconds: int | None = None
    latest: bool = False


EARLIEST = OffsetSpec()
LATEST = OffsetSpec(latest=True)
NO_RECORD = -1
"""Reported instead of an offset: the partition has no record at or after the timestamp. Answered, hence not unknown."""


@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """An offset >= 0 (or NO_RECORD) and the leader epoch it was reported under (None: unknown)."""

    offset: int
    leader_epoch: int | None = None


class ListsOffsets(Protocol):
    """A client that is asked for offsets alone."""

    def list_offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: OffsetSpec,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_seconds: float,
    ) -> Mapping[TopicPartition, OffsetAndEpoch]:
        """Ask for one offset per partition; callers pass the partitions of *one* leader.

        Returns:
            Offsets >= 0, and NO_RECORD for a timestamp after the last record. A partition whose offset is unknown
            (dead leader, error) is absent.

        Raises:
            GatewayError: nothing was answered at all.

        Runs: a worker thread of the loop; blocks <= timeout_seconds + 1.
        """
        ...


class Gateway(ListsOffsets, Protocol):
    """One client bootstrapped with a list of vetted addresses. Thread-safe; never retries by itself."""

    def fetch_metadata(self, topics: Collection[TopicName] | None, *, timeout_seconds: float) -> MetadataAnswer:
        """Ask for brokers and topics; `topics=None` asks for all, an empty collection for brokers only.

        Returns:
            An answer with >= 1 broker. Never creates a topic.

        Raises:
            GatewayError: no answer, an answer without brokers (EMPTY), authentication or TLS failure.

        Runs: a worker thread of the loop; blocks <= 2 x timeout_seconds (librdkafka restarts its wait when
        the asked broker leaves the cluster); the caller bounds it once more.
        """
        ...

    def describe_topic_ids(
        self, topics: Collection[TopicName], *, timeout_seconds: float
    ) -> Mapping[TopicName, TopicId]:
        """Ask for topic ids. Unknown or unanswered topics are absent.

        Raises:
            GatewayError: nothing was answered at all.

        Runs: a worker thread of the loop; blocks <= timeout_seconds + 1.
        """
        ...

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], *, timeout_seconds: float
    ) -> Mapping[TopicPartition, int]:
        """Ask for a group's committed offsets; partitions without one are absent.

        Raises:
            GatewayError: the coordinator did not answer.

        Runs: a worker thread; blocks <= timeout_seconds + 1.
        """
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_seconds: float) -> None:
        """Set a group's committed offsets (>= 0) from outside of it. A group that has members refuses.

        Raises:
            GatewayError: not everything was taken; TOPIC_UNKNOWN where a partition does not exist.

        Runs: a worker thread; blocks <= timeout_seconds + 1.
        """
        ...

    def min_in_sync(self, topics: Collection[TopicName], *, timeout_seconds: float) -> Mapping[TopicName, int]:
        """Ask for `min.insync.replicas`; topics that do not answer are absent.

        Raises:
            GatewayError: nothing was answered at all; AUTH where it may not be described.

        Runs: a worker thread; blocks <= timeout_seconds + 1.
        """
        ...

    def voters(
        self, brokers: Collection[BrokerId], *, timeout_seconds: float
    ) -> Mapping[BrokerId, frozenset[BrokerId]]:
        """Ask each broker which voters of the metadata quorum it knows; those that do not answer are absent.

        It knows itself where it is a controller too, and every voter where `controller.quorum.voters` names them.

        Raises:
            GatewayError: nobody answered.

        Runs: a worker thread; blocks <= timeout_seconds + 1.
        """
        ...

    def groups(self, *, timeout_seconds: float) -> tuple[str, ...]:
        """Ask for the names of all consumer groups.

        Raises:
            GatewayError: not every broker reported its own.

        Runs: a worker thread; blocks <= timeout_seconds + 1.
        """
        ...

    def close(self) -> None:
        """Release the client; safe to call twice. May block on a slow resolver, so call it on a thread of its own."""
        ...


class GatewayFactory(Protocol):
    """Makes a `Gateway` for a bootstrap list; does no I/O that blocks."""

    def __call__(self, bootstrap: Sequence[BrokerAddress]) -> Gateway:
        """Build the client; raises ConfigError for options librdkafka refuses."""
        ...


class Vetter(Protocol):
    """Asks addresses one by one, all in parallel, within one timeout."""

    def vet(
        self,
        addresses: Collection[BrokerAddress],
        *,
        connect_timeout_seconds: float,
        request_timeout_seconds: float,
        full: Collection[BrokerAddress] = (),
        on_outcome: Callable[[ProbeOutcome], None],
    ) -> None:
        """Report exactly one outcome per address, as soon as it is known, on any thread.

        Step one (DNS and TCP) runs for all; step two (a metadata request through a client that knows this
        address alone) for those in `full` that accepted a connection. The others end as `tcp_only`.

        Runs: a worker thread of the loop; blocks <= connect + request timeout, whatever the number of addresses.
        """
        ...
