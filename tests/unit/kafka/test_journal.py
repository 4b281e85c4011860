"""A journal in Kafka where brokers refuse to be asked; what it keeps is in tests/contract/test_ledger.py."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from discovery.core.errors import StateError
from discovery.core.model import BrokerAddress, TopicName
from discovery.kafka.journal import Journal


def test_given_brokers_that_refuse_when_all_entries_are_looked_at_then_it_is_an_error_of_state_that_names_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))

    journal = Journal(TopicName("cuts"), "dau", properties=dict, brokers=lambda: (BrokerAddress("b", 1),))
    monkeypatch.setattr(journal, "_known", refuse)
    with pytest.raises(StateError, match=r"^cutLedger: topic cuts cannot be read: "):
        journal.look_all()
