"""A range that is not at its end, and what was heard of it."""

from dataclasses import dataclass

from confluent_kafka import KafkaError

from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerAddress, TopicPartition
from discovery.spark.fetch.ranges import FetchRange

_LASTING_SECONDS = 5.0


_DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_LASTING = _DENIED | {
    KafkaError.INVALID_MSG,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    KafkaError._BAD_MSG,  # noqa: SLF001 - confluent-kafka's public names
    KafkaError._BAD_COMPRESSION,  # noqa: SLF001
    KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001
}
"""What no other leader cures; all else is over by itself, or asked for apart as a topic that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What a broker said of one partition, again and again."""

    code: int
    since: float
    at: float
    """When it was heard last."""

    @property
    def text(self) -> str:
        """Say it in librdkafka's words."""
        return str(KafkaError(self.code).str())

    def is_passing(self) -> bool:
        """Tell whether it is expected to be over by itself, as a move of leaders is."""
        return self.code not in _LASTING

    def is_lasting(self) -> bool:
        """Tell whether it was heard again after so long that waiting will not cure it."""
        return not self.is_passing() and self.at - self.since >= _LASTING_SECONDS

    def error(self, tp: TopicPartition) -> GatewayError:
        """Make one line of it."""
        if self.code in _DENIED:
            return GatewayError(
                FailureKind.AUTH, f"{tp} cannot be read: {self.text}; grant this user READ on the topic"
            )
        return GatewayError(FailureKind.BUG, f"{tp} cannot be read: {self.text}; it stays so, look at the broker's log")


@dataclass(slots=True, kw_only=True)
class OpenRange:
    """One range of a task while it is read."""

    range: FetchRange
    end: int
    position: int
    progress_at: float
    leader_address: BrokerAddress | None = None
    """Where its leader was when we heard of it last."""
    caught_up: bool = False
    """The broker said: no more records for now, although the end is not reached."""
    bad_since: float | None = None
    """Since when the cluster says that the rest of it does not exist."""
    refusal: Refusal | None = None
    """What a broker said instead of its records, if it was not over by itself."""

    def move(self, position: int, now: float) -> None:
        """Note progress: whatever was wrong is over."""
        self.position, self.progress_at, self.bad_since, self.refusal = position, now, None, None

    def refuse(self, code: int, now: float) -> None:
        """Note what a broker said of it."""
        since = self.refusal.since if self.refusal is not None and self.refusal.code == code else now
        self.refusal = Refusal(code=code, since=since, at=now)

    def is_lasting(self, now: float, *, bad: bool) -> bool:
        """Note whether the cluster denies the rest of it; True when it has done so for long enough to believe it."""
        if not bad:
            self.bad_since = None
            return False
        if self.bad_since is None:
            self.bad_since = now
        return now - self.bad_since >= _LASTING_SECONDS
