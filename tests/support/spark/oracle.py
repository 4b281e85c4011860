"""What a query must have delivered: a producer that remembers every acknowledged record, and the comparison."""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.helpers import eventually

_PAUSE_SECONDS = 0.05
_TIMEOUT_SECONDS = 120
_READ_SECONDS = 20


class Row(NamedTuple):
    """One record as a query delivers it, or as a broker acknowledged it."""

    topic: str
    partition: int
    offset: int
    value: str | None


class Load:
    """Writes numbered records on a thread, in turn to the given partitions, from `start` to `stop`.

    `acknowledged` is the oracle: topic, partition, offset and value of every record a broker confirmed.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: Iterable[int],
        *,
        per_second: int = 200,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.topic = topic
        self._servers = bootstrap_servers
        self.partitions: Sequence[int] = tuple(partitions)
        self.acknowledged: list[Row] = []
        self.refused: list[str] = []
        self._unplaced: set[tuple[int, str]] = set()
        """Partition and value of what was acknowledged without an offset: by the answer to a later request."""
        self.name = uuid.uuid4().hex[:8]
        self._per_turn = max(1, int(per_second * _PAUSE_SECONDS))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                # Else its next look at a topic that a test has deleted creates it, where brokers let clients do so.
                "allow.auto.create.topics": False,
                "enable.idempotence": True,
                "linger.ms": 5,
                "topic.metadata.refresh.interval.ms": 500,
                "message.timeout.ms": _TIMEOUT_SECONDS * 1000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **(options or {}),
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)
        # A test that failed may have left partitions without a leader: what waits for them is given up.
        self._producer.purge()
        self._producer.flush(1)

    def wait_more(self, count: int, *, partitions: Collection[int] | None = None, deadline_seconds: float = 30) -> None:
        """Wait until so many more records, of these partitions if given, were acknowledged."""

        def counted() -> int:
            return sum(partitions is None or row.partition in partitions for row in self.acknowledged)

        goal = counted() + count
        eventually(lambda: counted() >= goal, deadline_seconds, f"{count} more acknowledged records")

    def stop(self, *, deadline_seconds: float = 60) -> None:
        """Write no more and wait until every record was acknowledged."""
        self._stopping.set()
        self._thread.join(10)
        left = self._producer.flush(deadline_seconds)
        assert left == 0, f"{left} records were not acknowledged within {deadline_seconds:g} s"
        assert not self.refused, f"{len(self.refused)} records were refused, the first: {self.refused[0]}"
        if self._unplaced:
            placed = self._placed()
            lost = self._unplaced - placed.keys()
            assert not lost, f"{len(lost)} records were acknowledged and stand nowhere, such as {min(lost)}"
            self.acknowledged += placed.values()
            self._unplaced.clear()

    def lacking(self, rows: Iterable[Row]) -> list[Row]:
        """Return the acknowledged records that are not among the rows, in order."""
        return sorted(set(self.acknowledged) - set(rows))

    def assert_exact(self, rows: Collection[Row]) -> None:
        """Fail unless the delivered rows are exactly the records of the log: all that were acknowledged, each once.

        A producer whose brokers all die in mid-request may write a record a second time under a new epoch: the log
        holds both, and only one was acknowledged. So a row without acknowledgement is held against the log itself.
        """
        assert_exactly_once(rows, [*self.acknowledged, *self._held(set(rows) - set(self.acknowledged))])

    def _held(self, rows: Collection[Row]) -> list[Row]:
        """Return those of the rows that stand in the log as they were delivered."""
        if not rows:
            return []
        options = {"group.id": self.name, "auto.offset.reset": "error", "log_level": 0}
        consumer = Consumer({"bootstrap.servers": self._servers, **options})
        deadline = time.monotonic() + _READ_SECONDS
        try:
            return [row for row in rows if _read(consumer, row, deadline) == row]
        finally:
            consumer.close()

    def _placed(self) -> dict[tuple[int, str], Row]:
        """Return where the log first has each record that was acknowledged without an offset."""
        placed: dict[tuple[int, str], Row] = {}
        for partition in {partition for partition, _ in self._unplaced}:
            for row in self._log(partition):
                if (partition, row.value) in self._unplaced and row.value is not None:
                    placed.setdefault((partition, row.value), row)
        return placed

    def _log(self, partition: int) -> list[Row]:
        """Return all that a partition holds."""
        tp = TopicPartition(self.topic, partition, OFFSET_BEGINNING)
        options = {"group.id": self.name, "enable.partition.eof": True, "log_level": 0}
        consumer = Consumer({"bootstrap.servers": self._servers, **options})
        deadline, rows = time.monotonic() + _TIMEOUT_SECONDS, []
        try:
            consumer.assign([tp])
            while time.monotonic() < deadline:
                found: Any = consumer.poll(1)
                if found is not None and not found.error():
                    rows.append(Row(self.topic, partition, found.offset(), found.value().decode()))
                elif found is not None and found.error().code() == KafkaError._PARTITION_EOF:
                    return rows
        finally:
            consumer.close()
        raise AssertionError(f"{self.topic}-{partition} was not read to its end within {_TIMEOUT_SECONDS} s")

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for _ in range(self._per_turn):
                self._send(number)
                number += 1
            self._producer.poll(0)
            time.sleep(_PAUSE_SECONDS)

    def _send(self, number: int) -> None:
        partition = self.partitions[number % len(self.partitions)]
        value = f"{self.name}#{number}"
        try:
            self._producer.produce(self.topic, value=value, partition=partition, on_delivery=self._note)
        except BufferError:
            return
        except KafkaException as error:
            # The client learns of an added partition half a second later.
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                raise

    def _note(self, error: object, message: Any) -> None:
        if error is not None:
            self.refused.append(f"{message.topic()}-{message.partition()}: {error}")
            return
        partition, offset, value = message.partition(), message.offset(), message.value().decode()
        if offset is None:
            self._unplaced.add((partition, value))
        else:
            self.acknowledged.append(Row(message.topic(), partition, offset, value))


def _read(consumer: Consumer, row: Row, deadline: float) -> Row | None:
    consumer.assign([TopicPartition(row.topic, row.partition, row.offset)])
    found: Any = consumer.poll(max(0.0, deadline - time.monotonic()))
    if found is None or found.error():
        return None
    value = found.value()
    return Row(found.topic(), found.partition(), found.offset(), value.decode() if value is not None else None)


def assert_exactly_once(rows: Iterable[Row], acknowledged: Iterable[Row]) -> None:
    """Fail unless the delivered rows are exactly the acknowledged records, each once."""
    delivered, wanted = Counter(rows), Counter(acknowledged)
    assert max(wanted.values(), default=1) == 1, "the oracle itself has a record twice"
    repeated = sorted(row for row, count in delivered.items() if count > 1)
    lost = sorted(wanted.keys() - delivered.keys())
    strange = sorted(delivered.keys() - wanted.keys())
    assert not repeated, f"{len(repeated)} rows came twice: {repeated[:3]}"
    assert not lost, f"{len(lost)} records were lost: {lost[:3]}"
    assert not strange, f"{len(strange)} rows were never acknowledged: {strange[:3]}"
