"""librdkafka consumers of one worker process: built once per client configuration, aimed at exact offsets."""

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from discovery.core.errors import ConfigError, FailureKind, GatewayError
from discovery.core.model import BrokerAddress, TopicName
from discovery.core.model import TopicPartition as Partition

_log = logging.getLogger("kafka_discovery.fetch")
_INTRODUCE_SECONDS = 1.0
_CACHE_SIZE = 4
"""Worker processes serve several queries; each keeps its consumer while it is used."""
_WORTH_KEEPING_ROWS = 10_000

_DEFAULTS = {
    "group.id": "kafka-discovery",
    # Memory: what is prefetched, and what one answer of a broker may bring on top.
    "queued.max.messages.kbytes": "32768",
    "fetch.max.bytes": "16777216",
    # A range is known to exist, so an answer is due at once; a broker has one request in flight, so a long poll
    # at the end of one partition would delay the first records of the next task by as much.
    "fetch.wait.max.ms": "20",
    "fetch.queue.backoff.ms": "10",
    "fetch.error.backoff.ms": "100",
    # A dead leader must be replaced as soon as the cluster has a new one. A frozen one holds every request until the
    # socket times out, the request for metadata too, since librdkafka prefers the connection it used last.
    "topic.metadata.refresh.interval.ms": "2000",
    "reconnect.backoff.max.ms": "1000",
    "socket.connection.setup.timeout.ms": "3000",
    "socket.timeout.ms": "5000",
    "socket.max.fails": "1",
    "enable.metrics.push": "false",
    "log.connection.close": "false",
}
_INSISTED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "enable.partition.eof": "true",
    "allow.auto.create.topics": "false",
}
_DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_FATAL = {
    **dict.fromkeys(_DENIED, FailureKind.AUTH),
    KafkaError._AUTHENTICATION: FailureKind.AUTH,  # noqa: SLF001 - confluent-kafka's public name
    KafkaError._SSL: FailureKind.TLS,  # noqa: SLF001
}


class CachedConsumer:
    """One consumer, where its stream stands, and what went wrong lately. One thread at a time."""

    def __init__(self, client_options: Mapping[str, str], brokers: Sequence[BrokerAddress]) -> None:
        """Build the client; it connects in the background."""
        self.brokers = tuple(brokers)
        self.client_options = dict(client_options)
        self.positions: dict[Partition, int] = {}
        """Offset that the stream delivers next, by assigned partition."""
        self.failure: GatewayError | None = None
        self.all_down = False
        self._introduced: set[Partition] = set()
        self._consumer = self._build()

    def _build(self) -> Any:
        properties = {
            **_DEFAULTS,
            **self.client_options,
            **_INSISTED,
            "bootstrap.servers": ",".join(map(str, self.brokers)),
            "error_cb": self._on_error,
        }
        try:
            return Consumer(properties, logger=_Quiet())
        except KafkaException as error:
            raise ConfigError(f"kafka options: {error.args[0].str()}") from error

    def aim(self, starts: Mapping[Partition, int]) -> None:
        """Read exactly these partitions from these offsets; those that stand there already go on undisturbed.

        Runs: worker; blocks <= 1 s, and only for partitions that this consumer has not read before.
        """
        dropped = [tp for tp, position in self.positions.items() if starts.get(tp) != position]
        if dropped:
            self._consumer.incremental_unassign([TopicPartition(tp.topic, tp.partition) for tp in dropped])
            for tp in dropped:
                del self.positions[tp]
        added = {tp: start for tp, start in starts.items() if tp not in self.positions}
        if added:
            self._introduce(added.keys() - self._introduced)
            self._consumer.incremental_assign(
                [TopicPartition(tp.topic, tp.partition, start) for tp, start in added.items()]
            )
            self.positions.update(added)

    def _introduce(self, strangers: Collection[Partition]) -> None:
        """Let the client hear of partitions before it reads them.

        librdkafka looks for a partition it does not know at its next refresh, 0.3-0.6 s later; asked for the topic it
        knows at once. One that no broker names yet is asked for again; one without a leader is known well enough.
        """
        deadline = time.monotonic() + _INTRODUCE_SECONDS
        for topic in {tp.topic for tp in strangers}:
            wanted = {tp.partition for tp in strangers if tp.topic == topic}
            while (remaining := deadline - time.monotonic()) > 0:
                try:
                    told = self._consumer.list_topics(topic, timeout=remaining).topics[topic].partitions
                except KafkaException:
                    break
                if wanted <= told.keys():
                    break
                time.sleep(0.01)
        self._introduced.update(strangers)

    def rest(self) -> None:
        """Between tasks: stay only where a backlog is left, whose prefetched part the next task will want.

        A partition that is read to its end would be polled for nothing, fifty times a second at each broker.

        Runs: worker; does not block.
        """
        self.aim({tp: position for tp, position in self.positions.items() if self._backlog(tp, position)})

    def _backlog(self, tp: Partition, position: int) -> bool:
        known = self._consumer.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), cached=True)
        return known is not None and 0 <= position <= known[1] - _WORTH_KEEPING_ROWS

    def move(self, tp: Partition, offset: int) -> None:
        """Read one assigned partition from another offset.

        Runs: worker; does not block.
        """
        self.aim({**self.positions, tp: offset})

    def consume(self, count: int, timeout_seconds: float) -> list[Any]:
        """Return up to `count` messages and events; forgets earlier connection errors once something came.

        Runs: worker; blocks <= timeout_seconds.
        """
        messages: list[Any] = self._consumer.consume(count, timeout_seconds)
        if messages:
            self.all_down, self.failure = False, None
        return messages

    def watermarks(self, tp: Partition, timeout_seconds: float) -> tuple[int, int] | None:
        """Ask the leader for the earliest and the end offset; None when it does not answer.

        Runs: worker; blocks <= timeout_seconds.
        """
        try:
            answer = self._consumer.get_watermark_offsets(
                TopicPartition(tp.topic, tp.partition), timeout=timeout_seconds, cached=False
            )
        except KafkaException:
            return None
        return None if answer is None or min(answer) < 0 else (answer[0], answer[1])

    def exists(self, tp: Partition, timeout_seconds: float) -> bool | None:
        """Ask any broker whether the partition exists; None when nobody answers.

        Raises:
            GatewayError: AUTH, this user may not see the topic.

        Runs: worker; blocks <= 2 x timeout_seconds.
        """
        try:
            found = self._consumer.list_topics(tp.topic, timeout=timeout_seconds).topics[tp.topic]
        except KafkaException:
            return None
        code = None if found.error is None else found.error.code()
        if code in _DENIED:
            raise GatewayError(FailureKind.AUTH, f"{tp}: {found.error.str()}; grant this user READ on the topic")
        if code in _UNKNOWN_TOPIC:
            return False
        return None if code is not None else tp.partition in found.partitions

    def rebuild(self, brokers: Sequence[BrokerAddress]) -> None:
        """Start over with another list and the same positions: the old client knows nobody who answers.

        Runs: worker; does not block.
        """
        starts = dict(self.positions)
        self.close()
        self.brokers = tuple(brokers)
        self.positions, self.failure, self.all_down = {}, None, False
        self._introduced = set()
        self._consumer = self._build()
        self.aim(starts)

    def close(self) -> None:
        """Give the client up. Closing has no time limit of its own, so it happens on a thread that nobody awaits."""
        threading.Thread(target=self._consumer.close, name="close-consumer", daemon=True).start()

    def _on_error(self, error: Any) -> None:
        kind = _FATAL.get(error.code())
        if kind is not None:
            self.failure = GatewayError(kind, f"{kind.value}: {error.str()}")
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self.all_down = True


_UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)


class _Quiet:
    """A logger for librdkafka: one line per 10 s; an outage writes dozens a second otherwise."""

    _next_at = 0.0

    def log(self, _level: int, message: str, *arguments: object) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + 10
            _log.info(message, *arguments)


_cache: dict[tuple[tuple[str, str], ...], CachedConsumer] = {}


def take(client_options: Mapping[str, str], brokers: Sequence[BrokerAddress]) -> CachedConsumer:
    """Take a consumer out of this process's cache, or build one; the broker list is not part of the key.

    A cached one whose brokers were all down gets the new list.

    Raises:
        ConfigError: librdkafka refuses an option.

    Runs: worker; does not block.
    """
    cached = _cache.pop(_key(client_options), None)
    if cached is None:
        return CachedConsumer(client_options, brokers)
    if cached.failure or (cached.all_down and cached.brokers != tuple(brokers)):
        cached.positions.clear()
        cached.rebuild(brokers)
    return cached


def give_back(cached: CachedConsumer) -> None:
    """Put a consumer back for the next task; the least recently used one beyond the limit is closed.

    Runs: worker; does not block.
    """
    cached.rest()
    twin = _cache.pop(_key(cached.client_options), None)
    if twin is not None:
        twin.close()
    _cache[_key(cached.client_options)] = cached
    while len(_cache) > _CACHE_SIZE:
        _cache.pop(next(iter(_cache))).close()


def close_all() -> None:
    """Close every cached consumer of this process.

    Runs: tests and worker exit; does not block.
    """
    while _cache:
        _cache.popitem()[1].close()


def partition_of(message: Any) -> Partition:
    """Return which partition a message or event belongs to.

    Runs: anywhere.
    """
    return Partition(TopicName(message.topic()), message.partition())


def _key(client_options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(client_options.items()))
