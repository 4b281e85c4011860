"""What a task asks of the topics that its records name."""

import pytest

from discovery.core.errors import TransactionError
from discovery.core.model import parse_bootstrap_servers
from discovery.spark.sink import targets
from discovery.spark.sink.ledger import naming_limit
from discovery.spark.sink.options import parse_options
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.targets import Targets
from tests.support.ports import bound_socket


def test_given_brokers_that_do_not_answer_when_asked_for_a_topic_then_transaction_timeout_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(targets, "_ANSWER_SECONDS", 0.1)
    with bound_socket() as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        options = parse_options({"kafka.bootstrap.servers": servers, "sinkId": "s"})
        plan = SinkPlan(options=options, brokers=tuple(parse_bootstrap_servers(servers, option="test")))
        with pytest.raises(TransactionError) as caught, naming_limit(options):
            Targets(plan).largest("orders")
    assert str(caught.value).startswith("could not look for topic orders in time")
    assert "transactionTimeout" not in str(caught.value)
