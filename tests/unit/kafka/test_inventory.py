"""What brokers tell of their configuration, read from answers that lack something."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from discovery.core.model import TopicName
from discovery.kafka.inventory import MIN_IN_SYNC, min_in_sync


class Describes:
    """An admin client whose answers are given by topic: a value, no value, or an error."""

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
            future.set_result({MIN_IN_SYNC: SimpleNamespace(value=value)})
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
