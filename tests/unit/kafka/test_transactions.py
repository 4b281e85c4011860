"""How calls to Kafka are tried again, and what a refusal says."""

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from discovery.core.errors import TransactionError, TransactionRefusedError, TransactionTimeoutError
from discovery.core.model import TopicName
from discovery.kafka import transactions
from discovery.kafka.transactions import Access, GroupNotes, Note, Transaction, connect, patiently


@pytest.mark.parametrize("first", [KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)), TimeoutError()])
def test_given_an_error_that_passes_when_tried_again_then_the_answer_counts(first: Exception) -> None:
    answers: list[object] = [first, "answer"]

    def act(_seconds: float) -> object:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    assert patiently(act, time.monotonic() + 60, "ask") == "answer"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "could not ask: .*; allow READ and DESCRIBE on groups"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "could not ask: .*; allow WRITE on the target"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "could not ask: .*; allow WRITE on transactional ids"),
        (KafkaError.INVALID_TXN_STATE, "could not ask: "),
    ],
)
def test_given_an_error_that_does_not_pass_when_tried_then_it_is_reported_at_once_with_the_remedy(
    code: int, said: str
) -> None:
    calls = []

    def act(seconds: float) -> None:
        calls.append(seconds)
        raise KafkaException(KafkaError(code))

    with pytest.raises(TransactionError, match=said) as caught:
        patiently(act, time.monotonic() + 60, "ask")
    assert len(calls) == 1
    assert isinstance(caught.value, TransactionRefusedError) is (code != KafkaError.INVALID_TXN_STATE)


def test_given_no_time_when_asked_then_nothing_is_tried() -> None:
    with pytest.raises(TransactionTimeoutError, match="could not ask in time: no time was left"):
        patiently(lambda _: pytest.fail("it was tried"), time.monotonic() - 1, "ask")


def test_given_a_late_answer_to_an_earlier_note_when_another_is_written_then_it_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [(Note(1, "earlier"), None), (Note(1, "mine"), KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))]

    class Consumer:
        def __init__(self, properties: dict[str, Any], **_: object) -> None:
            self._on_commit = properties["on_commit"]

        def commit(self, **_: object) -> None:
            """Answered by `poll`."""

        def poll(self, _seconds: float) -> None:
            note, error = answers.pop(0)
            self._on_commit(error, [TopicPartition("markers", 0, note.offset, note.text)])

    monkeypatch.setattr(transactions, "Consumer", Consumer)
    notes = GroupNotes(Access({}, ()), group="g", topic=TopicName("markers"))
    with pytest.raises(TransactionRefusedError, match="could not write the sink's control record"):
        notes.write(0, Note(1, "mine"), timeout_seconds=60)


def test_given_a_timeout_when_a_transaction_is_made_then_brokers_have_a_second_left_to_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They look every 10 s: a reader waits for the timeout and that, and was seen to wait for 0.13 s more."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(transactions, "Producer", lambda properties, **_: found.update(properties))
    Transaction(Access({}, ()), transactional_id="t-0", topic=TopicName("t"), timeout_seconds=20, options={})
    assert (found["transaction.timeout.ms"], found["message.timeout.ms"]) == (19_000, 19_000)


class Lists:
    """A producer that knows bootstrap addresses alone, and notes how long it was given."""

    def __init__(self) -> None:
        self.given: list[float] = []
        self.orig_broker_id = -1

    def list_topics(self, _topic: str, *, timeout: float) -> "Lists":
        self.given.append(timeout)
        return self


def test_given_addresses_that_are_given_up_when_connected_then_all_tries_share_one_limit() -> None:
    producer: Any = Lists()
    connect(producer, TopicName("t"), 5.0)
    assert len(producer.given) > 1
    assert producer.given == sorted(producer.given, reverse=True)
    assert 0 < producer.given[-1] < producer.given[0] <= 5.0
