"""Whoever commits by callback lets go of its client with the last reference: clients have threads and connections."""

import contextlib
import gc
import weakref
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from discovery.core.model import BrokerAddress, TopicName
from discovery.core.model import TopicPartition as Place
from discovery.kafka.commits import CommitAnswer
from discovery.kafka.groups import GroupWriter
from discovery.kafka.transactions import Access, GroupNotes
from tests.support.faults import refused_port

REFUSED = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)


def notes(address: str) -> GroupNotes:
    made = GroupNotes(Access({}, (BrokerAddress.parse(address),)), group="g", topic=TopicName("markers"))
    made.connect()
    return made


def writer(address: str) -> GroupWriter:
    made = GroupWriter({"bootstrap.servers": address}, "g")
    with contextlib.suppress(KafkaException, TimeoutError):
        made.commit({Place(TopicName("t"), 0): 1}, cluster_id="c", timeout_seconds=0.1)
    return made


@pytest.mark.parametrize("make", [notes, writer])
def test_given_one_who_commits_by_callback_when_dropped_then_nothing_keeps_its_client(
    make: Callable[[str], object],
) -> None:
    gc.disable()
    try:
        with refused_port() as address:
            kept = weakref.ref(make(address))
        assert kept() is None
    finally:
        gc.enable()


def test_given_commits_when_answered_then_a_late_answer_is_none_to_the_next_and_any_partitions_error_counts() -> None:
    answer = CommitAnswer()
    first, second = ([TopicPartition("t", 0, offset), TopicPartition("t", 1, offset)] for offset in (1, 2))
    answer.expect(first)
    answer.expect(second)
    answer.hear(None, first)
    assert answer.pending
    answer.hear(REFUSED, second[::-1])
    assert not answer.pending
    assert answer.error is REFUSED
    answer.expect(first)
    answer.hear(None, None)
    assert not answer.pending
    assert answer.error is None
