"""The plain engine: `Consumer.consume` and Arrow, no compiled code. Correct first; the fast twin must equal it."""

import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress, TopicName, TopicPartition
from discovery.spark.fetch.client import LINGER_SECONDS, OnError, Piece, TopicAnswer
from discovery.spark.fetch.columns import to_batch

_log = logging.getLogger("kafka_discovery.fetch")
_OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})  # noqa: SLF001 - its names


class PythonClient:
    """See `Client`."""

    def __init__(
        self, client_options: Mapping[str, str], brokers: tuple[BrokerAddress, ...], *, headers: bool, on_error: OnError
    ) -> None:
        """See `ClientFactory`."""
        properties = {
            **client_options,
            "bootstrap.servers": ",".join(map(str, brokers)),
            "error_cb": lambda error: on_error(error.code(), error.str()),
        }
        self._headers = headers
        try:
            self._consumer = Consumer(properties, logger=Quiet())
        except KafkaException as error:
            raise ConfigError(f"kafka options: {error.args[0].str()}") from error

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """See `Client.assign`."""
        self._consumer.incremental_assign(
            [ConfluentPartition(tp.topic, tp.partition, start) for tp, start in starts.items()]
        )

    def unassign(self, partitions: Collection[TopicPartition]) -> None:
        """See `Client.unassign`."""
        self._consumer.incremental_unassign([ConfluentPartition(tp.topic, tp.partition) for tp in partitions])

    def read(self, ends: Mapping[TopicPartition, int], max_rows: int, timeout_seconds: float) -> Piece:
        """See `Client.read`."""
        messages = self._consumer.consume(1, timeout_seconds)
        if not messages:
            return Piece()
        if max_rows > 1:
            messages += self._consumer.consume(max_rows - 1, LINGER_SECONDS)
        sorter = _Sorter({(tp.topic, tp.partition): end for tp, end in ends.items()})
        sorter.sort(messages)
        return Piece(
            batch=to_batch(sorter.rows, include_headers=self._headers) if sorter.rows else None,
            delivered=_by_partition({(m.topic(), m.partition()): m.offset() + 1 for m in sorter.rows}),
            reached=_by_partition(sorter.reached),
            caught_up=frozenset(_by_partition(dict.fromkeys(sorter.caught_up, 0))),
            out_of_range=tuple(_by_partition(dict.fromkeys(sorter.out_of_range, 0))),
            refused=_by_partition(sorter.refused),
            heard=True,
        )

    def topic(self, topic: TopicName, timeout_seconds: float) -> TopicAnswer | None:
        """See `Client.topic`."""
        try:
            metadata = self._consumer.list_topics(topic, timeout=timeout_seconds)
        except KafkaException:
            return None
        found = metadata.topics[topic]
        hosts = {number: BrokerAddress(b.host, b.port) for number, b in metadata.brokers.items()}
        code, text = (0, "") if found.error is None else (found.error.code(), found.error.str())
        return TopicAnswer({i: hosts.get(p.leader) for i, p in found.partitions.items()}, code, text)

    def watermarks(self, tp: TopicPartition, timeout_seconds: float) -> tuple[int, int] | None:
        """See `Client.watermarks`."""
        asked = ConfluentPartition(tp.topic, tp.partition)
        try:
            answer = self._consumer.get_watermark_offsets(asked, timeout=timeout_seconds, cached=False)
        except KafkaException:
            return None
        return None if answer is None or min(answer) < 0 else (answer[0], answer[1])

    def known_end(self, tp: TopicPartition) -> int | None:
        """See `Client.known_end`."""
        known = self._consumer.get_watermark_offsets(ConfluentPartition(tp.topic, tp.partition), cached=True)
        return None if known is None or known[1] < 0 else int(known[1])

    def close(self) -> None:
        """See `Client.close`. Closing has no time limit of its own, so it happens on a thread that nobody awaits."""
        threading.Thread(target=self._consumer.close, name="close-consumer", daemon=True).start()


_Key = tuple[str, int]


class _Sorter:
    """Messages and events of one poll, in their order: rows that are wanted, and how far each stream came."""

    def __init__(self, ends: Mapping[_Key, int]) -> None:
        self.ends = ends
        self.rows: list[Any] = []
        self.reached: dict[_Key, int] = {}
        self.caught_up: set[_Key] = set()
        self.out_of_range: list[_Key] = []
        self.refused: dict[_Key, int] = {}

    def sort(self, messages: Sequence[Any]) -> None:
        for message in messages:
            key = (message.topic(), message.partition())
            if message.error() is not None:
                self._note(key, message)
                continue
            offset = message.offset()
            self.reached[key] = offset + 1
            if self.caught_up:
                self.caught_up.discard(key)
            if offset < self.ends.get(key, -1):
                self.rows.append(message)

    def _note(self, key: _Key, event: Any) -> None:
        code = event.error().code()
        if event.topic() is None:
            return
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self.reached[key] = event.offset()
            self.caught_up.add(key)
        elif code in _OUT_OF_RANGE:
            self.out_of_range.append(key)
        else:
            self.refused[key] = code


def _by_partition(values: Mapping[_Key, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(TopicName(topic), partition): value for (topic, partition), value in values.items()}


class Quiet:
    """A logger for librdkafka: one line per 10 s; an outage writes dozens a second otherwise."""

    _next_at = 0.0

    def log(self, _level: int, message: str, *arguments: object) -> None:
        """Pass the first line on and swallow the rest of the next 10 s.

        Runs: the thread that polls.
        """
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + 10
            _log.info(message, *arguments)
