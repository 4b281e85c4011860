"""Writes marked 100-byte records round robin and notes each acknowledgement; orders come line by line on stdin.

`python -m benchmarks.peers.load SERVERS TOPIC PARTITIONS RATE FILE`; orders: `partitions N`, `mark X`, `pause`, `go`.
The end of stdin ends it.
"""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from confluent_kafka import KafkaException, Producer

from benchmarks.peers.rows import Row, parse_rows
from tests.support.processes import wait_or_kill

_TICK_SECONDS = 0.02
_FLUSH_SECONDS = 20.0


class Writer:
    """Writes as ordered until stdin ends."""

    def __init__(self, servers: str, topic: str, partitions: int, rate: float, acknowledged: IO[str]) -> None:
        """Make the producer."""
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self._mark, self._paused, self._over = b"a", False, threading.Event()
        self._acknowledged = acknowledged
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def listen(self) -> None:
        """Take orders."""
        for line in sys.stdin:
            match line.split():
                case ["partitions", count]:
                    self._partitions = int(count)
                case ["mark", mark]:
                    self._mark = mark.encode()
                case ["pause"]:
                    self._paused = True
                case ["go"]:
                    self._paused = False
        self._over.set()

    def write(self) -> None:
        """Write until the orders end."""
        number, due, last = 0, 0.0, time.monotonic()
        while not self._over.wait(_TICK_SECONDS):
            now = time.monotonic()
            due += 0.0 if self._paused else (now - last) * self._rate
            last = now
            while number < due:
                with contextlib.suppress(BufferError, KafkaException):
                    self._producer.produce(
                        self._topic, self._mark + b"x" * 99, partition=number % self._partitions, callback=self._note
                    )
                number += 1
            self._producer.poll(0)
        self._producer.flush(_FLUSH_SECONDS)

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            mark = message.value()[:1].decode()
            self._acknowledged.write(f"{message.partition()} {message.offset()} {mark} {time.time_ns() // 1_000_000}\n")


@dataclass(frozen=True, slots=True)
class Load:
    """A running load, seen from outside."""

    process: "subprocess.Popen[str]"
    file: Path

    def acknowledged(self) -> list[Row]:
        """Return all that was acknowledged so far."""
        with self.file.open() as lines:
            return parse_rows(lines)

    def order(self, line: str) -> None:
        """Send one order."""
        if self.process.stdin:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    @property
    def ended_well(self) -> bool:
        """Tell whether it flushed what it had and ended by itself."""
        return self.process.returncode == 0

    def end(self) -> None:
        """Let it flush and end; a second call does nothing."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        wait_or_kill(self.process, _FLUSH_SECONDS + 10)


@contextlib.contextmanager
def loaded(servers: str, topic: str, partitions: int, rate: float, file: Path) -> Iterator[Load]:
    """Write until the block ends, or `Load.end`."""
    command = [sys.executable, "-m", "benchmarks.peers.load", servers, topic, str(partitions), str(rate), str(file)]
    load = Load(subprocess.Popen(command, stdin=subprocess.PIPE, text=True), file)
    try:
        yield load
    finally:
        load.end()


def main(servers: str, topic: str, partitions: int, rate: float, file: str) -> None:
    """Write until stdin ends."""
    with Path(file).open("a", buffering=1) as acknowledged:
        writer = Writer(servers, topic, partitions, rate, acknowledged)
        threading.Thread(target=writer.listen, daemon=True).start()
        writer.write()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
