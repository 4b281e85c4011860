"""The process that makes the events and knows the truth: `python -m discovery.demo.load.generator --help`.

It spreads records over all partitions in turn, new ones as soon as they exist, and counts what Kafka acknowledged.
SIGTERM ends it after everything it has sent is acknowledged.
"""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from discovery.config.signals import on_stop_signal
from discovery.demo.load.events import Event, EventFactory
from discovery.demo.load.oracle import Oracle, save_produced

_QUIET = logging.getLogger("kafka_discovery.demo.librdkafka")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False

_TICK_SECONDS = 0.02
_BURST_SECONDS = 0.5
"""So often a client sends what has come together. Each request wakes the followers of its partitions: a request per
partition and moment cost twelve brokers half of two cores."""
_PROGRESS_SECONDS = 0.2
_PARTITIONS_SECONDS = 0.15
_DELIVERY_SECONDS = 300
"""Longer than any outage of the demo: a record is resent until Kafka has it, never given up in between."""
_FLUSH_SECONDS = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions:
    """What to make, how fast, and where to account for it."""

    bootstrap_servers: str
    topic: str
    rate: float
    """Records per second."""
    count: int | None
    """End after so many records; None: when asked to."""
    users: int
    malformed_share: float
    begin: float
    """Simulated time of the first event, seconds since the epoch."""
    speed: float
    """Simulated seconds per second."""
    seed: int
    progress: Path
    expected: Path


class Partitions:
    """How many partitions the topic has, asked on a thread of its own so that a silent broker delays no event."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self.count = 0

    def start(self) -> None:
        """Begin asking."""
        threading.Thread(target=self._follow, name="partitions", daemon=True).start()

    def _follow(self) -> None:
        while True:
            try:
                found = self._producer.list_topics(self._topic, timeout=2).topics[self._topic].partitions
                self.count = max(self.count, len(found))
            except KafkaException:
                pass  # asked again in a moment; the last answer stays
            time.sleep(_PARTITIONS_SECONDS)


class Generator:
    """Sends at a steady rate until it is stopped or done."""

    def __init__(self, options: GeneratorOptions) -> None:
        self._options = options
        self._oracle = Oracle()
        self._events = EventFactory(
            users=options.users, malformed_share=options.malformed_share, seed=options.seed, name=options.topic
        )
        self._producer = Producer(_producer_options(options.bootstrap_servers), logger=_QUIET)
        self._partitions = Partitions(self._producer, options.topic)
        self._began = 0.0
        self._saved = 0.0

    def run(self, stopping: threading.Event) -> bool:
        """Send until `stopping` is set or the count is reached, then wait for the acknowledgements.

        Returns:
            True where Kafka acknowledged every record.

        Runs: main thread of the generator's process; blocks.
        """
        self._partitions.start()
        while not self._partitions.count and not stopping.wait(_TICK_SECONDS):
            pass
        self._began = time.monotonic()
        burst = self._began
        while not stopping.is_set() and not self._done():
            if time.monotonic() >= burst:
                self._send_due()
                burst = time.monotonic() + _BURST_SECONDS
            self._producer.poll(_TICK_SECONDS)
            self._save()
        return self._finish()

    def _done(self) -> bool:
        return self._options.count is not None and self._oracle.sent >= self._options.count

    def _send_due(self) -> None:
        elapsed = time.monotonic() - self._began
        due = int(elapsed * self._options.rate) + 1
        if self._options.count is not None:
            due = min(due, self._options.count)
        # Never ahead of the real clock: a job rightly refuses events from the future.
        now = min(time.time(), self._options.begin + elapsed * self._options.speed)
        while self._oracle.sent < due and self._send(self._events.make(now)):
            pass

    def _send(self, event: Event) -> bool:
        partition = self._oracle.sent % self._partitions.count

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._oracle.delivered(event, int(message.partition() or 0), int(message.offset() or 0))
            else:
                self._oracle.refused()

        try:
            self._producer.produce(self._options.topic, value=event.value, partition=partition, on_delivery=on_delivery)
        except BufferError:
            return False  # the queue is full: the next tick goes on
        self._oracle.sent += 1
        return True

    def _save(self) -> None:
        if time.monotonic() - self._saved >= _PROGRESS_SECONDS:
            self._saved = time.monotonic()
            save_produced(self._options.progress, self._oracle.produced())

    def _finish(self) -> bool:
        deadline = time.monotonic() + _FLUSH_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.poll(_TICK_SECONDS)
            self._save()
        for _ in range(len(self._producer)):
            self._oracle.refused()
        self._oracle.save_expected(self._options.expected)
        final = self._oracle.produced(finished=True)
        save_produced(self._options.progress, final)
        return final.failed == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; 0 where every record was acknowledged, else 1."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    stopping = threading.Event()
    with on_stop_signal(lambda _: stopping.set()):
        return 0 if Generator(options).run(stopping) else 1


def _producer_options(bootstrap_servers: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "acks": "all",
        "enable.idempotence": True,
        "delivery.timeout.ms": _DELIVERY_SECONDS * 1000,
        # The partitions of a leader that a burst touches go in one request.
        "linger.ms": 20,
        # A new partition would be seen after five minutes otherwise.
        "topic.metadata.refresh.interval.ms": 500,
        "socket.connection.setup.timeout.ms": 2000,
        "reconnect.backoff.max.ms": 1000,
        "allow.auto.create.topics": False,
    }


def _parse(arguments: Sequence[str]) -> GeneratorOptions:
    parser = argparse.ArgumentParser(prog="generator", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--progress", required=True, type=Path)
    parser.add_argument("--expected", required=True, type=Path)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--malformed-share", type=float, default=0.002)
    parser.add_argument("--days", type=float, default=3.0, help="how long ago the first event happened")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds per second")
    parser.add_argument("--seed", type=int, default=1)
    given = vars(parser.parse_args(arguments))
    days = given.pop("days")
    return GeneratorOptions(begin=time.time() - timedelta(days=days).total_seconds(), **given)


if __name__ == "__main__":
    sys.exit(main())
