"""The seam between a task and an engine: what either engine must be able to do, and what it hands over."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from discovery.core.model import BrokerAddress, TopicName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one poll brought: rows in Arrow, how far each stream came, and what the brokers said."""

    batch: pa.RecordBatch | None = None
    delivered: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offset behind the last row of `batch`, by partition."""
    reached: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offset that the stream delivers next: also behind rows nobody wants, gaps, and control records at a log's end."""
    caught_up: frozenset[TopicPartition] = frozenset()
    """Partitions that have no more records for now."""
    out_of_range: tuple[TopicPartition, ...] = ()
    """Partitions that do not have the offset that was asked for; they stand still until the next seek."""
    refused: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Errors of partitions that librdkafka does not deal with alone, by its code; raised at each assignment of one."""
    heard: bool = False
    """Whether anything came at all; a broker lives."""


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    """What a broker says of one topic."""

    partitions: Mapping[int, BrokerAddress | None]
    """Where the leader of each is; None: it has none."""
    error_code: int = 0
    error_text: str = ""


class Client(Protocol):
    """A librdkafka consumer without a group. One thread at a time; never blocks longer than it was asked to.

    The constructor connects in the background.
    """

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Begin to read partitions that are not read yet; -2 means the earliest record there is."""
        ...

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading; what was prefetched of them is dropped by the next `read`."""
        ...

    def read(self, ends: Mapping[TopicPartition, int], max_rows: int, timeout_seconds: float) -> Piece:
        """Take up to `max_rows` messages; rows at or beyond their partition's end, or of other ones, are left out."""
        ...

    def topic(self, topic: TopicName, timeout_seconds: float) -> TopicAnswer | None:
        """Ask any broker for a topic; None when nobody answers."""
        ...

    def watermarks(self, tp: TopicPartition, timeout_seconds: float) -> tuple[int, int] | None:
        """Ask the leader for the earliest and the end offset; None when it does not answer."""
        ...

    def known_end(self, tp: TopicPartition) -> int | None:
        """Return the end offset that came with the last records, from memory; None when none came."""
        ...

    def close(self) -> None:
        """Give the client up at once; whatever may block happens elsewhere."""
        ...


LINGER_SECONDS = 0.01
"""How long a poll that has something waits for more: a control record is counted as missing, but never comes."""

OnError = Callable[[int, str], None]
"""Gets errors that concern no partition: librdkafka's code and text. On the caller's thread, inside its calls."""


class ClientFactory(Protocol):
    """How an engine makes its clients."""

    def __call__(
        self, client_options: Mapping[str, str], brokers: tuple[BrokerAddress, ...], *, headers: bool, on_error: OnError
    ) -> Client:
        """Build a client from complete librdkafka options.

        Raises:
            ConfigError: librdkafka refuses an option.
        """
        ...
