"""What a follower wants: which topics are asked for, and which answers concern it."""

import pytest

from discovery.core.answers import OffsetsAnswer
from discovery.core.errors import ConfigError
from discovery.core.interest import CUT_LEDGER_TOPIC, SINK_LEDGER_TOPIC, Interest
from discovery.core.model import (
    BrokerId,
    Isolation,
    PartitionOffsets,
    TopicName,
    TopicPartition,
)
from discovery.core.offsets import OffsetBook
from tests.support.core_values import (
    topic,
)

A, B = TopicName("a"), TopicName("b")


@pytest.mark.parametrize("given", [{}, {"topics": (A,), "pattern": "a"}, {"pattern": "", "brokers_only": True}])
def test_given_none_or_several_kinds_when_made_then_it_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="follow exactly one of"):
        Interest(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}"])
def test_given_no_regular_expression_when_made_then_the_option_is_named(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"subscribePattern: .* is not a regular expression"):
        Interest(pattern=pattern)


def test_given_each_kind_when_asked_then_it_names_its_topics_and_wants_its_partitions() -> None:
    both = (TopicPartition(A, 0), TopicPartition(A, 2))
    assigned, brokers_only = Interest(assigned=both), Interest(brokers_only=True)
    assert Interest(topics=(A, B)).asked_topics == (A, B)
    assert Interest(pattern="a|b").asked_topics is None
    assert assigned.asked_topics == (A,)
    assert [assigned.wants(TopicPartition(A, number)) for number in range(3)] == [True, False, True]
    assert Interest(topics=(A,)).wants(TopicPartition(A, 7))
    assert brokers_only.asked_topics == ()
    assert not brokers_only.wants_topic(A)


def test_given_an_isolation_when_asked_for_ends_then_both_only_where_both_are_wanted() -> None:
    assert Interest(topics=(A,)).isolations == (Isolation.READ_UNCOMMITTED,)
    assert set(Interest(topics=(A,), both_ends=True).isolations) == set(Isolation)


def test_given_an_answer_with_other_topics_when_filtered_then_they_are_left_out() -> None:
    whole = (topic("a"), topic("b"))
    assert [found.name for found in Interest(topics=(A,)).followed(whole)] == [A]
    assert Interest(pattern=".").followed(whole) == whole


def test_given_offsets_that_did_not_change_when_answered_again_then_the_book_keeps_what_it_has() -> None:
    partition = TopicPartition(A, 0)
    first = OffsetsAnswer(
        leader_id=BrokerId(1), asked=(partition,), offsets={partition: PartitionOffsets(high_watermark=5)}
    )
    book = OffsetBook().with_answer(first, now=1.0)
    assert book.with_answer(first, now=2.0) == book


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", CUT_LEDGER_TOPIC, SINK_LEDGER_TOPIC])
def test_given_an_internal_topic_when_followed_then_a_name_means_it_and_no_pattern_does(name: str) -> None:
    assert Interest(topics=(TopicName(name),)).wants_topic(TopicName(name))
    assert not Interest(pattern="").wants_topic(TopicName(name))
    assert not Interest(pattern="^__").wants(TopicPartition(TopicName(name), 0))
