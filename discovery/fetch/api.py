"""What the data plane promises, whichever engine runs it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from discovery.core.model import BrokerAddress, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRange:
    """Records `[start_offset, end_offset)` of one partition, as far as they still exist and are visible."""

    topic_partition: TopicPartition
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How to read. Picklable; compared by value, because consumers are cached by it (the broker list is not in it)."""

    client_options: Mapping[str, str] = field(default_factory=dict)
    """librdkafka option names; without `bootstrap.servers`."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    batch_rows: int = 10_000


def fetch(
    ranges: Sequence[FetchRange],
    brokers: Sequence[BrokerAddress],
    settings: FetchSettings,
    *,
    on_waiting: Callable[[str], None],
) -> Iterator[pa.RecordBatch]:
    """Read every range to its end, readable ones first.

    A range whose leader is gone is retried until it is back; meanwhile `on_waiting` gets one sentence
    whenever the set of waiting partitions changes and every 10 s, and the generator keeps its slot.

    Args:
        ranges: 0..n ranges of different partitions; an empty range yields nothing and needs no broker.
        brokers: 1..n vetted addresses of this moment; a changed list does not drop cached consumers.
        settings: See `FetchSettings`.
        on_waiting: Called on the caller's thread.

    Yields:
        Batches with exactly `schema(settings.include_headers)`; rows of one partition in offset order.

    Raises:
        DataLossError: `fail_on_data_loss` and records of a range were deleted or truncated.
        GatewayError: authentication or TLS failure, or an answer that is not retriable.

    Runs: Spark's Python worker, once per task; blocks as long as a range cannot be read.
    """
    raise NotImplementedError
