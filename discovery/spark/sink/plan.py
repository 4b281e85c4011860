"""What a worker needs to write: made by the driver, pickled with the writer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from discovery.config.client.opened_stores import fresh
from discovery.core.model import BrokerAddress, TopicName
from discovery.spark.sink.lanes import RETENTION_SECONDS
from discovery.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from discovery.kafka.transactions import Access

DEFAULT_LARGEST_BYTES = 1_048_588
"""A broker's own default of `max.message.bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SinkPlan:
    """One sink, checked against the living cluster. Holds connection secrets; never logged."""

    options: SinkOptions
    brokers: tuple[BrokerAddress, ...]
    largest_bytes: Mapping[TopicName, int] = field(default_factory=dict)
    """`max.message.bytes` by topic, as far as known."""
    retention_seconds: int = RETENTION_SECONDS
    """How long brokers keep markers."""

    @property
    def access(self) -> "Access":
        """How a client that is about to be made reaches the brokers; see `opened_stores.fresh`."""
        # Planning a batch needs no client of Kafka's; who connects imports it.
        from discovery.kafka.transactions import Access  # noqa: PLC0415

        return Access(fresh(self.options.client).connection, self.brokers)

    def largest(self, topic: str) -> int:
        """Return the most bytes a record of this topic may have."""
        return self.largest_bytes.get(TopicName(topic), DEFAULT_LARGEST_BYTES)
