"""What a compacted topic has kept, where brokers do not say what it has."""

import pytest

from discovery.core.errors import TransactionError
from discovery.core.model import TopicName
from discovery.kafka.kept import last_values
from discovery.kafka.transactions import Access


def test_given_a_topic_of_which_brokers_report_an_error_when_read_then_that_is_not_taken_for_nothing_recorded() -> None:
    access = Access({"test.mock.num.brokers": 1}, ())
    with pytest.raises(TransactionError, match=r"could not look for topic ledger in time: .*nknown topic"):
        last_values(access, TopicName("ledger"), lambda _: True, group="g", timeout_seconds=4)
