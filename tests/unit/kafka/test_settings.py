"""The properties of our clients, and what they may log."""

import logging

import pytest

from discovery.config.client.options import map_client_options
from discovery.core.model import BrokerAddress
from discovery.kafka.settings import PROBE_TOPIC, QuietLog, client_properties


def test_given_user_options_then_what_discovery_insists_on_wins() -> None:
    options = map_client_options({"kafka.request.timeout.ms": "60000", "kafka.fetch.min.bytes": "5", "client.id": "me"})
    properties = client_properties(
        options,
        [BrokerAddress("::1", 1), BrokerAddress("b", 2)],
        connect_timeout_seconds=0.2,
        request_timeout_seconds=3,
    )
    assert properties["bootstrap.servers"] == "[::1]:1,b:2"
    assert properties["socket.timeout.ms"] == 3_000
    assert properties["socket.connection.setup.timeout.ms"] == 1_000, "librdkafka takes no less"
    assert properties["allow.auto.create.topics"] is False
    assert properties["client.id"] == "me"
    assert "fetch.min.bytes" not in properties


def test_given_the_probe_topic_then_kafka_can_never_create_it() -> None:
    assert PROBE_TOPIC == "/", "legal names match [a-zA-Z0-9._-]+"


def test_given_a_noisy_client_then_a_few_lines_pass_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    log = QuietLog(lines=2, window_seconds=60)
    with caplog.at_level(logging.INFO, logger="discovery.kafka.client"):
        for number in range(5):
            log.log(3, "line %d", number)
        log._window_start -= 61
        log.log(3, "later")
    assert [r.getMessage() for r in caplog.records] == [
        "line 0",
        "line 1",
        "dropped 3 log lines of the Kafka client",
        "later",
    ]
