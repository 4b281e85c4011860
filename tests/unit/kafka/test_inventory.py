"""What brokers tell of their configuration, read from answers that lack something."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from discovery.core.errors import FailureKind, GatewayError
from discovery.core.model import BrokerId, TopicName
from discovery.kafka.inventory import MIN_IN_SYNC, ROLES, VOTERS, min_in_sync, voters


class Describes:
    """An admin client whose answers are given by topic or broker: a value, no value, several options, or an error."""

    def __init__(self, values: dict[str, object]) -> None:
        self.values = values

    def describe_configs(self, resources: list[Any], *, request_timeout: float) -> dict[Any, Future[Any]]:
        """Answer at once."""
        assert request_timeout > 0
        return {resource: self._answer(self.values[resource.name]) for resource in resources}

    def _answer(self, value: object) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            options = value if isinstance(value, dict) else {MIN_IN_SYNC: value}
            future.set_result({name: SimpleNamespace(value=one) for name, one in options.items()})
        return future


def test_given_topics_without_a_value_or_an_answer_when_asked_then_they_are_absent() -> None:
    silent = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    client: Any = Describes({"seen": "2", "empty": None, "silent": silent})
    asked = [TopicName(name) for name in client.values]
    assert min_in_sync(client, asked, timeout_seconds=1.0) == {"seen": 2}


def test_given_no_answer_at_all_when_asked_then_that_is_an_error() -> None:
    client: Any = Describes({"silent": KafkaException(KafkaError(KafkaError._TIMED_OUT))})
    with pytest.raises(KafkaException):
        min_in_sync(client, [TopicName("silent")], timeout_seconds=1.0)


REFUSED = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))


def known_voters(*answers: object) -> dict[int, set[int]]:
    """Ask brokers 1, 2, … that answer like this."""
    client: Any = Describes({str(broker): answer for broker, answer in enumerate(answers, 1)})
    asked = [BrokerId(int(name)) for name in client.values]
    return {broker: set(found) for broker, found in voters(client, asked, timeout_seconds=1.0).items()}


STATIC = "1@b1:9093,2@[::1]:9093, 100@c100:9093"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({ROLES: "broker,controller", VOTERS: STATIC}, {1: {1, 2, 100}}),
        ({ROLES: "broker, controller", VOTERS: ""}, {1: {1}}),
        ({ROLES: "controller", VOTERS: None}, {1: {1}}),
        ({ROLES: "broker", VOTERS: "100@c100:9093"}, {1: {100}}),
        ({ROLES: "broker", VOTERS: ""}, {1: set()}),
        ({ROLES: "broker"}, {1: set()}),
        ({ROLES: "broker", VOTERS: " , "}, {1: set()}),
        ({ROLES: "", VOTERS: ""}, {}),
        ({ROLES: None, VOTERS: STATIC}, {}),
        ({ROLES: "something else", VOTERS: ""}, {}),
        ({}, {}),
    ],
)
def test_given_the_roles_a_broker_names_when_read_then_so_are_its_voters_or_it_is_absent(
    answer: dict[str, object], found: dict[int, set[int]]
) -> None:
    assert known_voters(answer) == found


def test_given_brokers_that_refuse_or_are_silent_when_asked_for_voters_then_they_alone_are_absent() -> None:
    silent = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    reported = {ROLES: "broker,controller", VOTERS: ""}
    assert known_voters(REFUSED, reported, silent, {ROLES: "broker", VOTERS: ""}) == {2: {2}, 4: set()}
    assert known_voters() == {}


def test_given_all_refuse_when_asked_for_voters_then_the_missing_permission_is_named() -> None:
    with pytest.raises(GatewayError, match="grant DescribeConfigs") as refused:
        known_voters(REFUSED, REFUSED)
    assert refused.value.kind is FailureKind.AUTH


@pytest.mark.parametrize("garbage", ["b1:9093", "x@b1:9093", "1@b1:9093,garbage"])
def test_given_voters_that_cannot_be_read_when_asked_then_that_is_an_error_and_no_guess(garbage: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        known_voters({ROLES: "broker", VOTERS: garbage})
