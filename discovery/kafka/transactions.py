"""Transactions and the small notes that are committed with them: all that a sink asks of confluent_kafka.

One transaction per producer, never a second one: librdkafka repeats the end of a transaction by itself, and a late
repetition must not meet a later transaction of the same epoch (brokers tell them apart only with KIP-890's second
part, which it does not speak yet). A failed transaction is dropped, not aborted: the next producer of the id ends it.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as RawTopicPartition

from discovery.core.errors import ConfigError, TransactionError, TransactionRefusedError, TransactionTimeoutError
from discovery.core.model import BrokerAddress, TopicName
from discovery.kafka.commits import CommitAnswer
from discovery.kafka.patience import SHORT_WAITS, OutOfTimeError, checked, may_pass, retried
from discovery.kafka.settings import QuietLog, milliseconds

_POLL_SECONDS = 0.1
_ANSWER_POLL_SECONDS = 0.002
"""A consumer's `poll` waits for messages to its end, even where a callback was served meanwhile."""
_POLL_EVERY_ROWS = 512
_CONNECT_TRIES = 3
_ASKED_TOPICS = 20
_ANSWER_SECONDS = 5.0
_LEAST_SECONDS = 0.001
_ABORT_SECONDS = 1.0
"""What it takes brokers, which look every 10 s, to end what they found: they get so much less as their limit."""
_BUFFER_KILOBYTES = 65_536
_HINTS: Mapping[int, str] = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "; allow READ and DESCRIBE on groups that begin with __spark_sink.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "; allow WRITE on the target, READ, WRITE and DESCRIBE on the marker topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "; allow WRITE on transactional ids that begin with the sinkId",
    KafkaError._FENCED: "; a later attempt of this lane has begun",  # noqa: SLF001 - a public name
}
"""What a user can do about it, or should know."""
_REFUSED = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - public names
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    }
)
"""A restart would meet them again."""


@dataclass(frozen=True, slots=True)
class Note:
    """A committed offset with its metadata."""

    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Access:
    """How the brokers are reached. Picklable; `repr` would show passwords, so it is never logged."""

    connection: Mapping[str, Any]
    brokers: tuple[BrokerAddress, ...]

    def properties(self) -> dict[str, Any]:
        """Return librdkafka properties of any client.

        Runs: anywhere (pure).
        """
        return {**self.connection, **SHORT_WAITS, "bootstrap.servers": ",".join(map(str, self.brokers))}


class GroupNotes:
    """Notes of one group: committed offsets of a topic into which nothing is ever written.

    A consumer that joins nothing reads and writes them. Not `AdminClient.list_consumer_group_offsets`: that crashes
    the process where the asked broker is not the group's coordinator (librdkafka issue 5040). A `read_committed`
    consumer asks for *stable* offsets: one that belongs to a transaction whose outcome is still on its way is waited
    for, never skipped. One thread at a time; the constructor connects to nobody.
    """

    def __init__(self, access: Access, *, group: str, topic: TopicName, stable: bool = True) -> None:
        """Name group and topic.

        Args:
            access: How the brokers are reached.
            group: The group; it never has members.
            topic: The marker topic.
            stable: Wait for open transactions; False only shows what a test wants to see go wrong.
        """
        self._answer = CommitAnswer()
        self._properties = {
            **access.properties(),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed" if stable else "read_uncommitted",
            "session.timeout.ms": 1_000,
            "on_commit": self._answer.hear,
        }
        self._topic = topic
        self._consumer: Any = None

    def read(self, partitions: Collection[int], *, timeout_seconds: float) -> Mapping[int, Note]:
        """Return the notes of these partitions; those without one are absent.

        Raises:
            ConfigError: librdkafka refuses a property.
            TransactionError: no stable answer in time, or refused.

        Runs: workers and driver; blocks <= timeout_seconds.
        """
        consumer = self._opened()
        asked = [RawTopicPartition(self._topic, partition) for partition in partitions]
        found: Sequence[Any] = patiently(
            lambda left: _committed(consumer, asked, left),
            time.monotonic() + timeout_seconds,
            "read the sink's markers",
        )
        return {tp.partition: Note(tp.offset, tp.metadata or "") for tp in found if tp.offset >= 0}

    def write(self, partition: int, note: Note, *, timeout_seconds: float) -> None:
        """Commit one note, outside of any transaction.

        Raises:
            TransactionError: not taken, or nobody knows.

        Runs: driver; blocks <= timeout_seconds.
        """
        raw = [RawTopicPartition(self._topic, partition, note.offset, note.text)]
        deadline = time.monotonic() + timeout_seconds
        patiently(lambda left: self._commit(raw, left), deadline, "write the sink's control record")

    def connect(self) -> None:
        """Begin to look for the group's coordinator, so that several groups do it at the same time.

        Raises:
            ConfigError: librdkafka refuses a property.

        Runs: workers and driver; returns at once.
        """
        self._opened()

    @property
    def metadata(self) -> Any:
        """What `Transaction.attach` needs to know of this group: it has no members."""
        return self._opened().consumer_group_metadata()

    def _opened(self) -> Any:
        if self._consumer is None:
            try:
                self._consumer = Consumer(self._properties, logger=QuietLog())
            except KafkaException as exc:
                raise ConfigError(f"kafka options: {exc.args[0].str()}") from exc
        return self._consumer

    def _commit(self, raw: list[RawTopicPartition], timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        consumer = self._opened()
        consumer.commit(offsets=raw, asynchronous=True)
        self._answer.expect(raw)
        while self._answer.pending:
            if time.monotonic() >= deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - public
            consumer.poll(_ANSWER_POLL_SECONDS)
        if self._answer.error is not None:
            raise KafkaException(self._answer.error)


def _committed(consumer: Any, asked: list[RawTopicPartition], timeout_seconds: float) -> Sequence[Any]:
    """Ask, and where the time is up find out why: a group that may not be used is reported by `poll` alone."""
    try:
        return checked(consumer.committed(asked, timeout=timeout_seconds))
    except KafkaException:
        answered = consumer.poll(0)
        error = None if answered is None else answered.error()
        if error is not None and not may_pass(error):
            raise KafkaException(error) from None
        raise


class Transaction:
    """One transaction of one new producer. One thread; the constructor connects to nobody that answers yet."""

    def __init__(
        self,
        access: Access,
        *,
        transactional_id: str,
        topic: TopicName,
        timeout_seconds: float,
        options: Mapping[str, str],
    ) -> None:
        """Build the producer.

        Args:
            access: How the brokers are reached.
            transactional_id: Its earlier producers are fenced by `fence`.
            topic: Any that this login may see; asked for to hear of brokers.
            timeout_seconds: After so long, and the 10 s at most until they look, the brokers have aborted it; > 6.
            options: librdkafka properties of a producer that the user chose.

        Raises:
            ConfigError: librdkafka refuses a property.
        """
        self._id = transactional_id
        self._topic = topic
        self._timeout_seconds = timeout_seconds
        self._until_poll = _POLL_EVERY_ROWS
        self._named: set[str] = set()
        self._connecting: threading.Thread | None = None
        self._is_connected = False
        limit = milliseconds(timeout_seconds - _ABORT_SECONDS)
        try:
            self._producer = Producer(
                {
                    **access.properties(),
                    "linger.ms": 5,
                    # How long a topic that no broker knows may be one that has just been made.
                    "topic.metadata.propagation.max.ms": 5_000,
                    "partitioner": "murmur2_random",
                    "queue.buffering.max.kbytes": _BUFFER_KILOBYTES,
                    "queue.buffering.max.messages": 0,
                    "delivery.report.only.error": True,
                    **options,
                    "transactional.id": transactional_id,
                    "transaction.timeout.ms": limit,
                    "message.timeout.ms": limit,
                },
                logger=QuietLog(),
            )
        except KafkaException as exc:
            raise ConfigError(f"kafka options: {exc.args[0].str()}") from exc

    def connect(self) -> "Transaction":
        """Begin to connect, so that `fence` need not wait for it; returns at once.

        Runs: workers; a thread of its own for at most 5 s.
        """

        def run() -> None:
            with suppress(KafkaException):
                connect(self._producer, self._topic, _ANSWER_SECONDS)
                self._is_connected = True

        self._connecting = threading.Thread(target=run, name="sink-connect", daemon=True)
        self._connecting.start()
        return self

    def fence(self, deadline: float) -> None:
        """End whatever earlier producers of this id began, and keep them from committing ever again.

        Raises:
            ConfigError: the timeout is above the brokers' cap, or the id may not be used.
            TransactionError: not in time.

        Runs: workers; blocks until `deadline` (`time.monotonic`) at most.
        """
        if self._connecting is not None:
            self._connecting.join(max(0.0, deadline - time.monotonic()))
        try:
            if not self._is_connected:
                patiently(
                    lambda left: connect(self._producer, self._topic, left), deadline, f"reach a broker for {self._id}"
                )
            patiently(self._producer.init_transactions, deadline, f"initialise {self._id}")
        except TransactionError as error:
            raise _explained(error, self._id, self._timeout_seconds) from error.__cause__

    def begin(self) -> None:
        """Begin; sends nothing.

        Raises:
            TransactionError: another producer took the id.
        """
        _translated(self._producer.begin_transaction, f"begin {self._id}")

    def produce(
        self,
        topic: str,
        *,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
        deadline: float,
    ) -> None:
        """Hand over one record; waits while too many are under way.

        Raises:
            TransactionError: refused at once, or no room before the deadline.

        Runs: workers, once per record; microseconds.
        """
        self._named.add(topic)
        self._until_poll -= 1
        if self._until_poll <= 0:
            self._until_poll = _POLL_EVERY_ROWS
            self._producer.poll(0)
        rest: dict[str, Any] = {"headers": list(headers)} if headers else {}
        if partition is not None:
            rest["partition"] = partition
        while True:
            try:
                self._producer.produce(topic, value, key, **rest)
            except BufferError:
                if time.monotonic() >= deadline:
                    raise self._too_slow() from None
                self._producer.poll(_POLL_SECONDS)
            except KafkaException as exc:
                raise _failed(exc.args[0], f"{self._id}: topic {topic}, partition {partition}: ") from exc
            else:
                return

    def produce_plain(
        self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None], deadline: float
    ) -> None:
        """Hand over records without partition and headers; raises and waits like `produce`.

        Runs: workers, once per Arrow batch; half a microsecond per record.
        """
        self._named.add(topic)
        send, poll = self._producer.produce, self._producer.poll
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                send(topic, value, key)
            except (BufferError, KafkaException):
                self.produce(topic, partition=None, key=key, value=value, headers=None, deadline=deadline)
            if not number % _POLL_EVERY_ROWS:
                poll(0)

    def flush(self, deadline: float) -> None:
        """Wait until brokers have all that was handed over: no later record shares a batch with it.

        Raises:
            TransactionError: not before the deadline.

        Runs: workers; blocks until `deadline` at most.
        """
        if self._producer.flush(max(0.0, deadline - time.monotonic())):
            raise self._too_slow()

    def _too_slow(self) -> TransactionError:
        return TransactionTimeoutError(f"{self._id}: the brokers did not take records in time")

    def attach(self, topic: TopicName, partition: int, note: Note, metadata: Any, deadline: float) -> None:
        """Make a note part of this transaction.

        Raises:
            TransactionError: not taken.

        Runs: workers, once per task; blocks until `deadline` at most.
        """
        offsets = [RawTopicPartition(topic, partition, note.offset, note.text)]
        patiently(
            lambda left: self._producer.send_offsets_to_transaction(offsets, metadata, left),
            deadline,
            f"add the marker to {self._id}",
        )

    def commit(self, deadline: float) -> None:
        """Send what is left and commit; the same call is repeated while its outcome is open.

        Raises:
            TransactionError: it failed, or its outcome is not known.

        Runs: workers, once per task; blocks until `deadline` at most, and 5 s more to find out why it failed.
        """
        try:
            patiently(self._producer.commit_transaction, deadline, f"commit {self._id}")
        except TransactionError as error:
            refused = self._refused_topic()
            raise (TransactionRefusedError if refused else type(error))(f"{error}{refused}") from error

    def _refused_topic(self) -> str:
        """Why a record may not have been taken: the commit itself says only that one was not. Asks for 5 s at most."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        for topic in sorted(self._named)[:_ASKED_TOPICS]:
            left = max(_LEAST_SECONDS, deadline - time.monotonic())
            try:
                error = self._producer.list_topics(topic, timeout=left).topics[topic].error
            except KafkaException:
                return ""
            if error is not None and error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:  # noqa: SLF001 - a public name
                return f"; topic {topic} does not exist: create it, or correct the column topic"
            if error is not None and not may_pass(error):
                return f"; topic {topic}: {error.str()}; allow WRITE and DESCRIBE on it"
        return ""


def connect(producer: Producer, topic: TopicName, timeout_seconds: float) -> None:
    """Wait until a producer is connected to a broker that it will keep.

    Where none is, librdkafka looks for the transaction's coordinator again only after half a second; and a connection
    to an address of the bootstrap list does not count, since it is given up once the brokers are known.

    Raises:
        KafkaException: no broker in time.

    Runs: workers and driver; blocks <= timeout_seconds.
    """
    deadline = time.monotonic() + timeout_seconds
    for _ in range(_CONNECT_TRIES):
        answered: Any = producer.list_topics(topic, timeout=max(_LEAST_SECONDS, deadline - time.monotonic()))
        if answered.orig_broker_id >= 0:
            return


def _explained(error: TransactionError, transactional_id: str, timeout_seconds: float) -> Exception:
    cause = error.__cause__
    code = cause.args[0].code() if isinstance(cause, KafkaException) else None
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(
            f"transactionTimeout: {timeout_seconds:g} s is above the brokers' transaction.max.timeout.ms; lower one "
            "or raise the other"
        )
    if code in {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
        return ConfigError(
            f"sinkId: the brokers refuse transactional id {transactional_id!r}; allow WRITE and DESCRIBE on "
            "transactional ids that begin with the sinkId"
        )
    return error


def _translated(act: Callable[[], Any], what: str) -> Any:
    try:
        return act()
    except KafkaException as exc:
        raise TransactionError(f"could not {what}: {exc.args[0].str()}") from exc


def _failed(error: KafkaError, what: str) -> TransactionError:
    kind = TransactionRefusedError if error.code() in _REFUSED else TransactionError
    return kind(f"{what}{error.str()}{_HINTS.get(error.code(), '')}")


def patiently(
    act: Callable[[float], Any],
    deadline: float,
    what: str,
    *,
    passes: Callable[[KafkaError], bool] = may_pass,
) -> Any:
    """Do it again while it may still succeed.

    Args:
        act: Takes the seconds it may block, at most 5.
        deadline: `time.monotonic` after which nothing is tried any more.
        what: Names it in errors.
        passes: Whether an error may pass by itself.

    Raises:
        TransactionError: it cannot succeed.
        TransactionTimeoutError: the time is up.

    Runs: anywhere; blocks until `deadline` at most.
    """
    try:
        return retried(act, deadline, passes=passes)
    except KafkaException as exc:
        raise _failed(exc.args[0], f"could not {what}: ") from exc
    except OutOfTimeError as error:
        raise TransactionTimeoutError(f"could not {what} in time: {error}") from error
