"""Writes 100-byte records round robin until its standard input ends: `python -m benchmarks.load SERVERS TOPIC N RATE`.

A process of its own, so that it takes no turns from the interpreter that is measured.
"""

import contextlib
import sys
import threading
import time

from confluent_kafka import KafkaException, Producer

_TICK_SECONDS = 0.02


def main(bootstrap: str, topic: str, partitions: int, rows_per_second: float) -> None:
    """Write until the parent closes the pipe, however it ends."""
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 500,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    number, began = 0, time.monotonic()
    while not over.wait(_TICK_SECONDS):
        due = int((time.monotonic() - began) * rows_per_second)
        while number < due:
            with contextlib.suppress(BufferError, KafkaException):
                producer.produce(topic, b"x" * 100, partition=number % partitions)
            number += 1
        producer.poll(0)
    producer.flush(5)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
