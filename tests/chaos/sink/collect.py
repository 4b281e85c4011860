"""Evidence from real brokers: full reads, a reader that is there all the time, ends of partitions, markers."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from discovery.spark.sink.hooks import AUDIT_HEADER, SAID
from discovery.spark.sink.ledger import SinkLedger
from discovery.spark.sink.plan import SinkPlan
from tests.chaos.sink.evidence import Place, Proof, Said, Seen
from tests.support.helpers import eventually, partitions_of, produce

_READ_SECONDS = 60.0
_TAIL_POLL_SECONDS = 0.2
_PLAIN: dict[str, Any] = {"q": "", "b": -1, "lane": -1, "attempt": "", "seq": -1}
"""Of a record that was produced as in production."""
_SENTINEL = "sentinel"


def read_all(bootstrap: str, topic: str, *, committed: bool = True) -> tuple[Seen, ...]:
    """Read a topic from its beginning to its end of this moment; sentinels are left out."""
    return tuple(seen for seen in _read(bootstrap, topic, committed=committed) if seen is not None)


def _read(bootstrap: str, topic: str, *, committed: bool) -> Iterator[Seen | None]:
    consumer = _consumer(bootstrap, committed=committed)
    try:
        open_ends = {(topic, number) for number in _assign(consumer, topic)}
        until = time.monotonic() + _READ_SECONDS
        while open_ends:
            assert time.monotonic() < until, f"{topic}: {open_ends} not read to the end in {_READ_SECONDS:g} s"
            for message in consumer.consume(500, _TAIL_POLL_SECONDS):
                if (error := message.error()) is None:
                    yield _seen(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard((message.topic(), message.partition()))
    finally:
        consumer.close()


@contextmanager
def tailing(bootstrap: str, topic: str) -> Iterator[list[Seen]]:
    """Read committed records all the while; the list grows."""
    found: list[Seen] = []

    def take(message: Any) -> None:
        if (seen := _seen(message)) is not None:
            found.append(seen)

    with following(bootstrap, topic, take):
        yield found


@contextmanager
def following(bootstrap: str, topic: str, take: Callable[[Any], None]) -> Iterator[None]:
    """Hand every committed record of a topic over, from its beginning, on a thread, until the block ends."""
    over = threading.Event()
    consumer = _consumer(bootstrap, committed=True)
    reached = dict.fromkeys(_assign(consumer, topic), 0)

    def took(message: Any) -> bool:
        """Take in one message; False: the reader stands still there and must be sent on."""
        if (error := message.error()) is not None:
            return bool(error.code() == KafkaError._PARTITION_EOF)
        reached[message.partition()] = message.offset() + 1
        take(message)
        return True

    def follow() -> None:
        while not over.is_set():
            taken = [took(message) for message in consumer.consume(500, _TAIL_POLL_SECONDS)]
            if not all(taken):
                # A leader that has just come may know nothing yet: librdkafka then never reads that partition again.
                over.wait(_TAIL_POLL_SECONDS)
                consumer.assign([TopicPartition(topic, number, offset) for number, offset in reached.items()])

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
        consumer.close()


def stable_ends(bootstrap: str, topic: str, *, patience_seconds: float) -> Mapping[Place, tuple[int, int]]:
    """Return last stable offset and high watermark of each partition, as soon as they agree or the time is up.

    A leader that has just moved, under a broker that another seed bounced, is asked again.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            ends = [ends_of(bootstrap, topic, committed=committed) for committed in (True, False)]
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            if ends[0] == ends[1] or time.monotonic() > deadline:
                return {place: (ends[0][place], ends[1][place]) for place in ends[0]}
        time.sleep(0.1)


def ends_of(bootstrap: str, topic: str, *, committed: bool) -> Mapping[Place, int]:
    """Return how far each partition can be read now: to its last stable offset, or to its high watermark."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, number): latest for number in partitions_of(admin, topic)}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    found = admin.list_offsets(asked, isolation_level=level, request_timeout=10)
    return {(place.topic, place.partition): future.result().offset for place, future in found.items()}


def sentinels_read(bootstrap: str, topic: str, *, deadline_seconds: float = 30.0) -> bool:
    """Write a plain record to each partition and tell whether a committed reader gets them all."""
    consumer = _consumer(bootstrap, committed=True)
    numbers = _assign(consumer, topic)
    consumer.close()
    for number in numbers:
        produce(bootstrap, topic, _SENTINEL, partition=number)

    def there() -> bool:
        return sum(seen is None for seen in _read(bootstrap, topic, committed=True)) >= len(numbers)

    try:
        eventually(there, deadline_seconds)
    except AssertionError:
        return False
    return True


def proofs(plan: SinkPlan) -> Mapping[int, Proof]:
    """Return the markers of all lanes."""
    found = SinkLedger(plan).markers(range(plan.options.lanes), timeout_seconds=30)
    return {lane: Proof(m.batch_id, m.rows, m.attempt, m.query_id) for lane, m in found.items()}


def said(folder: Path) -> tuple[Said, ...]:
    """Return what task attempts said in their last line."""
    file = folder / SAID
    lines = file.read_text().splitlines() if file.exists() else []
    return tuple(Said(w["lane"], w["batch"], w["attempt"], w["outcome"]) for w in map(json.loads, lines))


def _consumer(bootstrap: str, *, committed: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "exactly-once-evidence",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )


def _assign(consumer: Consumer, topic: str) -> list[int]:
    numbers = sorted(partitions_of(consumer, topic))
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    return numbers


def _seen(message: Any) -> Seen | None:
    value = message.value().decode()
    if value == _SENTINEL:
        return None
    headers = dict(message.headers() or ())
    audit = json.loads(headers[AUDIT_HEADER]) if AUDIT_HEADER in headers else _PLAIN
    key, _, number = value.partition(":")
    return Seen(
        id=value,
        place=(message.topic(), message.partition()),
        offset=message.offset(),
        batch=audit["b"],
        lane=audit["lane"],
        attempt=audit["attempt"],
        seq=audit["seq"],
        query=audit["q"],
        key=key,
        number=int(number),
    )
