"""What a task needs of a consumer; the tests of the task script it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from discovery.core.errors import GatewayError
from discovery.core.model import BrokerAddress, TopicPartition
from discovery.spark.fetch.client import Piece


class Stream(Protocol):
    """See `CachedConsumer`, whose methods these are."""

    brokers: tuple[BrokerAddress, ...]
    positions: dict[TopicPartition, int]
    failure: GatewayError | None
    all_down: bool
    stood_still: bool
    awaited: frozenset[TopicPartition]

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions from these offsets."""
        ...

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read one partition from an offset, even if the stream stands there."""
        ...

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these no longer."""
        ...

    def read(self, ends: Mapping[TopicPartition, int], missing_rows: int | None, timeout_seconds: float) -> Piece:
        """Take what came."""
        ...

    def watermarks(self, tp: TopicPartition, timeout_seconds: float) -> tuple[int, int] | None:
        """Ask the leader for the earliest and the end offset."""
        ...

    def exists(self, tp: TopicPartition, timeout_seconds: float) -> bool | None:
        """Ask any broker whether the partition exists."""
        ...

    def leaders(
        self, partitions: Collection[TopicPartition], timeout_seconds: float
    ) -> Mapping[TopicPartition, BrokerAddress | None]:
        """Ask any broker where their leaders are now."""
        ...

    def rebuild(self, brokers: Sequence[BrokerAddress]) -> None:
        """Start over with another list and the same positions."""
        ...
