"""What a local cluster's administration makes of a request that nobody answers."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from discovery.core.errors import KafkaUnreachableError
from discovery.localkafka import admin


class Silent:
    """A client whose requests stay open; metadata fails, and each asking is counted."""

    def __init__(self, *_: object, **__: object) -> None:
        self.asked = 0

    def delete_topics(self, topics: list[str], **_: object) -> dict[str, "Future[Any]"]:
        return {topic: Future() for topic in topics}

    def list_topics(self, **_: object) -> None:
        self.asked += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_given_a_request_that_stays_open_when_waited_for_then_it_ends_and_metadata_was_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Silent()
    monkeypatch.setattr(admin, "AdminClient", lambda *_, **__: client)
    monkeypatch.setattr(admin, "_ASIDE_SECONDS", 0.001)
    monkeypatch.setattr(admin, "_ANSWER_SECONDS", 0.05)
    with pytest.raises(KafkaUnreachableError, match=r"cannot delete topic t: no broker answered.*waited 0.05 s"):
        admin.Admin("127.0.0.1:1", {}).delete_topic("t", deadline_seconds=30)
    assert client.asked
