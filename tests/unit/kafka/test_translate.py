"""librdkafka's answers and errors as values of ours."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from discovery.core.errors import FailureKind, GatewayError
from discovery.kafka import codes
from discovery.kafka.translate import failure_kind, gateway_error, is_answer, metadata_answer, said

TIMED_OUT = KafkaError._TIMED_OUT


def broker(broker_id: int) -> SimpleNamespace:
    return SimpleNamespace(id=broker_id, host=f"b{broker_id}", port=9092)


def partition(index: int, leader: int = 1) -> SimpleNamespace:
    return SimpleNamespace(id=index, leader=leader, replicas=[1, 2], isrs=[1], error=None)


def topic(name: str, *partitions: SimpleNamespace, error: KafkaError | None = None) -> SimpleNamespace:
    return SimpleNamespace(topic=name, error=error, partitions={p.id: p for p in partitions})


def metadata(*topics: SimpleNamespace, brokers: int = 2) -> Any:
    return SimpleNamespace(
        cluster_id="c",
        controller_id=-1,
        orig_broker_id=-1,
        brokers={n: broker(n) for n in range(brokers, 0, -1)},
        topics={t.topic: t for t in topics},
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (TIMED_OUT, FailureKind.TRANSIENT),
        (codes.TRANSPORT, FailureKind.TRANSIENT),
        (KafkaError.LEADER_NOT_AVAILABLE, FailureKind.TRANSIENT),
        (KafkaError._DESTROY_BROKER, FailureKind.TRANSIENT),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, FailureKind.TRANSIENT),
        (codes.LOGIN, FailureKind.AUTH),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, FailureKind.AUTH),
        (codes.SSL, FailureKind.TLS),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, FailureKind.TOPIC_UNKNOWN),
        (KafkaError.TOPIC_EXCEPTION, FailureKind.TOPIC_UNKNOWN),
        (KafkaError._INVALID_ARG, FailureKind.BUG),
    ],
)
def test_given_an_error_code_then_the_loop_knows_how_to_treat_it(code: int, kind: FailureKind) -> None:
    assert failure_kind(KafkaError(code)) is kind
    assert gateway_error(KafkaException(KafkaError(code)), "doing").kind is kind


def test_given_a_foreign_exception_then_it_counts_as_a_bug_and_is_named() -> None:
    assert gateway_error(ValueError("odd"), "offsets").detail == "offsets: ValueError: odd"
    assert gateway_error(TimeoutError(), "offsets").kind is FailureKind.TRANSIENT


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (codes.NO_LEADER, True),
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (TIMED_OUT, False),
    ],
)
def test_given_a_failed_partition_then_an_answer_about_it_differs_from_silence(code: int, found: bool) -> None:  # noqa: FBT001
    assert is_answer(KafkaException(KafkaError(code))) is found
    assert not is_answer(TimeoutError())


def test_given_metadata_then_brokers_and_partitions_are_in_order_and_no_leader_is_none() -> None:
    answer = metadata_answer(metadata(topic("t", partition(1, leader=-1), partition(0))))
    assert [b.broker_id for b in answer.brokers] == [1, 2]
    assert [(p.partition, p.leader_id) for p in answer.topics[0].partitions] == [(0, 1), (1, None)]
    assert answer.controller_id is None


def test_given_metadata_without_brokers_then_it_is_a_failure() -> None:
    with pytest.raises(GatewayError) as caught:
        metadata_answer(metadata(topic("t", partition(0)), brokers=0))
    assert caught.value.kind is FailureKind.EMPTY


def test_given_topic_errors_then_unknown_is_said_forbidden_fails_and_others_stay_unsaid() -> None:
    gone = topic("gone", error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    young = topic("young", error=KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    answer = metadata_answer(metadata(gone, young))
    assert (answer.topics, answer.unknown_topics) == ((), ("gone",))
    forbidden = topic("secret", error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(GatewayError, match="topic secret") as caught:
        metadata_answer(metadata(forbidden))
    assert caught.value.kind is FailureKind.AUTH


def test_given_an_error_with_a_page_in_it_when_said_then_it_is_one_short_line() -> None:
    page = "<html>\n <body>no</body>\n</html>" + "\n<p>" * 500
    assert said(KafkaError(codes.LOGIN, f"no token: {page}")).startswith("no token: <html> <body>no</body> </html> <p>")
    assert len(said(KafkaError(codes.LOGIN, page))) < 450
