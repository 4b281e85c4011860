from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.support.helpers import partitions_of


class Client:
    """Answers in turn: no broker, one that lags behind its controller, one that knows."""

    def __init__(self) -> None:
        self._answers: list[Any] = [None, {}, {0: "zero", 1: "one"}]

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        if (partitions := self._answers.pop(0)) is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})


def test_given_a_broker_that_does_not_know_the_topic_yet_when_asked_then_it_is_asked_again() -> None:
    client: Any = Client()
    assert sorted(partitions_of(client, "t")) == [0, 1]
