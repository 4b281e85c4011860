"""Which topics are followed: the one filter of names and patterns."""

import re
from dataclasses import dataclass

from discovery.core.errors import ConfigError
from discovery.core.model import Isolation, TopicMetadata, TopicName, TopicPartition

CUT_LEDGER_TOPIC = TopicName("__kafka_discovery_cuts")
"""Where the source keeps cuts by default."""
SINK_LEDGER_TOPIC = TopicName("__spark_sink_ledger")
"""Where the sink keeps its markers by default."""
INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", CUT_LEDGER_TOPIC, SINK_LEDGER_TOPIC}
)
"""Kafka's own and ours: no pattern means them, a reader names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """Which partitions a follower wants: exactly one of topics, pattern, assigned, or brokers alone.

    Raises:
        ConfigError: none or several are given, or the pattern is not a regular expression.
    """

    topics: tuple[TopicName, ...] = ()
    """`subscribe`: these topics, with all their partitions."""
    pattern: str | None = None
    """`subscribePattern`: unanchored regular expression (find), in the syntax Java and Python share."""
    assigned: tuple[TopicPartition, ...] = ()
    """`assign`: exactly these partitions; new ones are not discovered."""
    brokers_only: bool = False
    """No partition at all: brokers are asked for, and no topic."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    both_ends: bool = False
    """Ask for high watermarks and last stable offsets: one loop then serves readers of either isolation."""

    def __post_init__(self) -> None:
        """Check that exactly one is given and that the pattern compiles."""
        if sum((bool(self.topics), self.pattern is not None, bool(self.assigned), self.brokers_only)) != 1:
            raise ConfigError("follow exactly one of: topics, a pattern, assigned partitions, brokers alone")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise ConfigError(f"subscribePattern: {self.pattern!r} is not a regular expression: {error}") from error

    @property
    def asked_topics(self) -> tuple[TopicName, ...] | None:
        """Topics to name in a metadata request; None asks for all."""
        if self.pattern is not None:
            return None
        return self.topics or tuple(dict.fromkeys(tp.topic for tp in self.assigned))

    @property
    def isolations(self) -> tuple[Isolation, ...]:
        """Which ends to ask for."""
        return tuple(Isolation) if self.both_ends else (self.isolation,)

    def wants_topic(self, name: TopicName) -> bool:
        """Tell whether any partition of the topic, existing or not, is followed; internal topics only when named."""
        if self.pattern is not None:
            return name not in INTERNAL_TOPICS and re.search(self.pattern, name) is not None
        return name in (self.asked_topics or ())

    def wants(self, partition: TopicPartition) -> bool:
        """Tell whether this partition is followed."""
        return partition in self.assigned if self.assigned else self.wants_topic(partition.topic)

    def followed(self, topics: tuple[TopicMetadata, ...]) -> tuple[TopicMetadata, ...]:
        """Return the topics without those that nobody follows."""
        return tuple(topic for topic in topics if self.wants_topic(topic.name))
