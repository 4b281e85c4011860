"""A compacted topic as the journal of many writers, each alone under its name.

Transactions fence: whoever opens a journal ends what an earlier holder of the name had begun, and that holder's next
write fails. They do not decide what is read. Reading goes to an offset of one's own, without looking at commits:
another name's open transaction would hide what stands behind it, and a leader that has just been elected may not show
its last records yet. So what is read may have been written and never confirmed; the holder writes it again at once.
Every record names the run that wrote it, and it counts only where that run was the holder at its place in the log:
what a driver writes after another one came is refused to it, yet stays in the log.

A holder binds an abstract socket with the name of its run, so that processes of the same machine see whether it lives:
of the sources of one query, which are children of one driver, each knows by that which names are the others'.
"""

import contextlib
import logging
import socket
import time
import uuid
import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as RawTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from discovery.core.errors import ConfigError, LedgerFencedError, StateError
from discovery.core.model import BrokerAddress, TopicName
from discovery.core.plural import counted
from discovery.kafka.patience import SHORT_WAITS, OutOfTimeError, outcome_of, retried
from discovery.kafka.settings import QuietLog
from discovery.kafka.topics import LEAST_IN_SYNC, REPLICAS, make_topic
from discovery.kafka.transactions import connect

_log = logging.getLogger("kafka_discovery.source")
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.1
_SEPARATOR = "\x1f"
_HOLDER = "holder"
_RUN_HEADER = "run"
_LOG_NEEDED = (
    "; a transaction takes a coordinator that can write __transaction_state, whose partitions need as many replicas in "
    "sync as its min.insync.replicas (transaction.state.log.min.isr, 2 by default): bring back brokers that hold them"
)


class Journal:
    """Entries by key under one name. One thread at a time; the constructor does no I/O."""

    def __init__(
        self,
        topic: TopicName,
        name: str,
        *,
        properties: Callable[[], Mapping[str, Any]],
        brokers: Callable[[], Sequence[BrokerAddress]],
        timeout_seconds: float = 30.0,
        open_timeout_seconds: float | None = None,
    ) -> None:
        """Name topic and holder.

        Args:
            topic: Made when it is not there: one partition, compacted.
            name: Who holds the entries; part of the transactional id.
            properties: librdkafka properties of a new connection, without `bootstrap.servers`.
            brokers: The living brokers of the moment.
            timeout_seconds: Bounds `append`.
            open_timeout_seconds: Bounds `open`; None: as `append`.
        """
        self._topic = topic
        self._name = name
        self._properties = properties
        self._brokers = brokers
        self._timeout_seconds = timeout_seconds
        self._open_timeout_seconds = timeout_seconds if open_timeout_seconds is None else open_timeout_seconds
        self._run = uuid.uuid4().hex
        self._position = 0
        self._own = _Kept()
        self._sign: socket.socket | None = None
        """Bound while this holds the name; the end of the process unbinds it, however it ends."""

    def open(self) -> Mapping[str, str]:
        """Become the holder and return all entries of the name.

        Raises:
            StateError: Kafka did not let us in time.
            ConfigError: librdkafka refuses a property.

        Runs: driver; blocks <= open_timeout_seconds.
        """
        deadline = time.monotonic() + self._open_timeout_seconds
        self._create_topic(deadline)
        # What was read and may not have been committed is written again: it counts from now on.
        self._write({_HOLDER: self._run}, deadline, is_holder=False)
        self._show_life()
        return dict(self._own.entries)

    def close(self) -> None:
        """Hold the name no more; a second call does nothing."""
        if self._sign is not None:
            self._sign.close()
            self._sign = None

    def look(self) -> Mapping[str, str] | None:
        """Return all entries of the name without becoming the holder; None where there are none.

        Raises:
            StateError: Kafka did not answer in time, or refuses.
            ConfigError: librdkafka refuses a property.

        Runs: anywhere; blocks <= open_timeout_seconds.
        """
        return self.look_all().get(self._name)

    def look_all(self, *, held: bool = True) -> Mapping[str, Mapping[str, str]]:
        """Return the entries of all names, without becoming a holder; see `look`. Also beside a thread that writes.

        Args:
            held: Also those of names that a living process of this machine holds.
        """
        deadline = time.monotonic() + min(self._timeout_seconds, self._open_timeout_seconds)
        found: defaultdict[str, _Kept] = defaultdict(_Kept)
        try:
            if self._exists(self._known(self._admin(), deadline)):
                self._read(None, deadline, begin=0, kept=found)
        except KafkaException as error:
            raise StateError(f"cutLedger: topic {self._topic} cannot be read: {error.args[0].str()}") from error
        return {name: kept.entries for name, kept in found.items() if held or not _lives(kept.holder)}

    def append(self, entries: Mapping[str, str | None]) -> None:
        """Write entries in one transaction, None to forget one; the same may be written again.

        Raises:
            StateError: another holder came, or it is not known whether they are written.

        Runs: driver; blocks <= timeout_seconds. Costs a new producer: a transaction's late end must not meet the next.
        """
        self._write(entries, time.monotonic() + self._timeout_seconds, is_holder=True)

    def _show_life(self) -> None:
        if self._sign is None:
            with contextlib.suppress(OSError):  # of a system without such names nobody is seen
                self._sign = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                weakref.finalize(self, self._sign.close)
                self._sign.bind(_sign_of(self._run))

    def _connected(self) -> dict[str, Any]:
        return {**self._properties(), **SHORT_WAITS, "bootstrap.servers": ",".join(map(str, self._brokers()))}

    def _create_topic(self, deadline: float) -> None:
        admin = self._admin()
        known = self._known(admin, deadline)
        if self._exists(known):
            self._check_topic(admin, known, deadline)
            return
        try:
            make_topic(admin, self._topic, partitions=1, compacted=True, deadline=deadline, outlives_two=True)
        except OutOfTimeError as error:
            raise StateError(f"Kafka did not let us create topic {self._topic} in time: {error}") from error
        except KafkaException as error:
            raise StateError(f"cutLedger: topic {self._topic} cannot be made: {error.args[0].str()}") from error

    def _admin(self) -> AdminClient:
        try:
            return AdminClient(self._connected(), logger=QuietLog())
        except KafkaException as error:
            raise ConfigError(f"kafka options: {error.args[0].str()}") from error

    def _known(self, admin: AdminClient, deadline: float) -> Any:
        return _patiently(lambda left: admin.list_topics(timeout=left), deadline, "list the brokers")

    def _exists(self, known: Any) -> bool:
        return self._topic in known.topics and known.topics[self._topic].error is None

    def _check_topic(self, admin: AdminClient, known: Any, deadline: float) -> None:
        """Refuse a topic that forgets or loses entries; warn of one with too few replicas, for people to mend."""
        replicas = len(known.topics[self._topic].partitions[0].replicas)
        wanted = min(REPLICAS, len(known.brokers))
        if replicas < wanted:
            _log.warning(
                "cutLedger: topic %s has %d replicas on %d brokers and may be lost with one; give it %d",
                self._topic, replicas, len(known.brokers), wanted,
            )  # fmt: skip
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        try:
            answered = _patiently(
                lambda left: outcome_of(admin.describe_configs([resource], request_timeout=left)[resource], left),
                deadline,
                f"see how topic {self._topic} is configured",
            )
        except KafkaException as error:
            _log.warning("cutLedger: whether topic %s is kept is not known: %s", self._topic, error.args[0].str())
            return
        values = {name: entry.value for name, entry in answered.items()}
        self._check_settings({name: str(value) for name, value in values.items() if value is not None}, replicas)

    def _check_settings(self, settings: Mapping[str, str], replicas: int) -> None:
        policy, in_sync = settings.get("cleanup.policy", "compact"), int(settings.get("min.insync.replicas", "1"))
        least = LEAST_IN_SYNC if replicas >= REPLICAS else 1
        if policy.strip() != "compact":
            raise ConfigError(
                f"cutLedgerTopic: topic {self._topic} has cleanup.policy={policy}, so Kafka would delete cuts after "
                f"retention.ms ({settings.get('retention.ms', 'unknown')}); set it to compact, or name another topic"
            )
        if in_sync < least:
            raise ConfigError(
                f"cutLedgerTopic: topic {self._topic} has min.insync.replicas={in_sync} with "
                f"{counted(replicas, 'replica')}, so a cut may be lost with one broker; "
                f"set it to {least}, or name another topic"
            )

    def _write(self, entries: Mapping[str, str | None], deadline: float, *, is_holder: bool) -> None:
        producer = self._producer()
        try:
            _patiently(lambda left: connect(producer, self._topic, left), deadline, "reach a broker")
            _patiently(producer.init_transactions, deadline, "begin to write", needed=_LOG_NEEDED)
            producer.begin_transaction()
            until = self._produce(producer, entries, deadline)
            self._position = self._read(until, deadline, begin=self._position, kept={self._name: self._own})
            if is_holder and self._own.holder != self._run:
                _give_up(producer)
                raise LedgerFencedError(
                    f"sourceId {self._name!r} is in use: another driver holds its ledger in {self._topic}"
                )
            if not is_holder and self._own.entries:
                self._produce(producer, self._own.entries, deadline)
            _patiently(producer.commit_transaction, deadline, "commit", needed=_LOG_NEEDED)
        except KafkaException as error:
            raise StateError(f"the ledger in topic {self._topic} was not written: {error.args[0].str()}") from error

    def _producer(self) -> Producer:
        try:
            return Producer(
                {
                    **self._connected(),
                    "transactional.id": f"kafka-discovery-{self._topic}-{self._name}",
                    "transaction.timeout.ms": max(1_000, int(self._timeout_seconds * 1_000)),
                    "message.timeout.ms": max(1_000, int(self._timeout_seconds * 1_000)),
                    "linger.ms": 0,
                },
                logger=QuietLog(),
            )
        except KafkaException as error:
            raise ConfigError(f"kafka options: {error.args[0].str()}") from error

    def _produce(self, producer: Producer, entries: Mapping[str, str | None], deadline: float) -> int:
        """Write and wait; returns the first offset."""
        offsets: list[int] = []
        failures: list[str] = []

        def note(error: object, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                failures.append(str(error))

        for key, value in entries.items():
            producer.produce(
                self._topic,
                key=f"{self._name}{_SEPARATOR}{key}",
                value=value,
                headers={_RUN_HEADER: self._run},
                partition=0,
                on_delivery=note,
            )
        left = producer.flush(max(0.1, deadline - time.monotonic()))
        if left or failures:
            raise StateError(
                f"the ledger in topic {self._topic} was not written: {failures[0] if failures else 'no answer in time'}"
            )
        return min(offsets)

    def _read(self, until: int | None, deadline: float, *, begin: int, kept: "Mapping[str, _Kept]") -> int:
        """Take in the entries of some names, or of all where `kept` makes them; return where it stopped.

        It goes up to an offset that holds a record of our own; None: up to the end of the log, as the leader says it
        when asked: what it shows to those that fetch may be shorter for a moment after its election (KIP-207).
        """
        consumer = self._consumer(begin)
        position, end = begin, self._end(consumer, deadline) if until is None else until + 1
        while position < end:
            if time.monotonic() >= deadline:
                raise StateError(f"the ledger in topic {self._topic} was not read to its end in time")
            for message in consumer.consume(500, _POLL_SECONDS):
                if (failed := message.error()) is not None:
                    if failed.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        raise KafkaException(failed)
                    if until is None and failed.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                        position = max(position, int(message.offset() or 0))  # behind the end of a transaction
                    continue
                position = int(message.offset() or 0) + 1
                name, _, key = (message.key() or b"").decode(errors="replace").rpartition(_SEPARATOR)
                if name in kept or (name and isinstance(kept, defaultdict)):
                    kept[name].take_in(key, message.value(), run=_run_of(message))
        return position

    def _end(self, consumer: Consumer, deadline: float) -> int:
        def end(left: float) -> int:
            found = consumer.get_watermark_offsets(RawTopicPartition(self._topic, 0), left)
            if found is None:
                raise TimeoutError
            return int(found[1])

        return int(_patiently(end, deadline, f"see where topic {self._topic} ends"))

    def _consumer(self, begin: int) -> Consumer:
        # One for each reading: an idle one would poll its broker ten times a second. Dropped, since closing may block.
        properties = {
            **self._connected(),
            "group.id": "kafka-discovery-journal",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
        }
        consumer = Consumer(properties, logger=QuietLog())
        consumer.assign([RawTopicPartition(self._topic, 0, begin)])
        return consumer


@dataclass(slots=True)
class _Kept:
    """What was read of one name."""

    entries: dict[str, str] = field(default_factory=dict)
    holder: str | None = None

    def take_in(self, key: str, value: bytes | None, *, run: str | None) -> None:
        if key == _HOLDER:
            self.holder = (value or b"").decode(errors="replace")
        elif run != self.holder:
            return  # refused to its writer, since another holder had come
        elif value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value.decode(errors="replace")


def _sign_of(run: str) -> str:
    return f"\0kafka-discovery/{run}"


def _lives(run: str | None) -> bool:
    """Tell whether a process of this machine, in this network namespace, holds a name by this run."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asked:
        asked.connect(_sign_of(str(run)))
        return True
    return False


def _run_of(message: Any) -> str | None:
    found = dict(message.headers() or ()).get(_RUN_HEADER)
    return None if found is None else str(found.decode(errors="replace"))


def _give_up(producer: Producer) -> None:
    """End a transaction at once that would hide what follows it from readers of committed records, until it expires."""
    with contextlib.suppress(KafkaException):
        producer.abort_transaction(_ANSWER_SECONDS)


def _patiently(act: Callable[[float], Any], deadline: float, what: str, *, needed: str = "") -> Any:
    """Do it again while it may still succeed.

    Args:
        act: Takes the seconds it may block.
        deadline: `time.monotonic` after which nothing is tried any more.
        what: Names it in errors.
        needed: What it needs of Kafka, for the error of a time that is up.

    Raises:
        KafkaException: it cannot.
        StateError: the time is up.
    """
    try:
        return retried(act, deadline)
    except OutOfTimeError as error:
        raise StateError(f"Kafka did not let us {what} in time: {error}{needed}") from error
