"""Addresses, partitions and errors as they are written and shown."""

import pytest

from discovery.core.errors import ConfigError, FailureKind, GatewayError
from discovery.core.model import (
    BrokerAddress,
    TopicName,
    TopicPartition,
    parse_bootstrap_servers,
)

T0 = TopicPartition(TopicName("t"), 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b1:9092", BrokerAddress("b1", 9092)),
        (" SSL://b1:9093 ", BrokerAddress("b1", 9093)),
        ("[::1]:9092", BrokerAddress("::1", 9092)),
    ],
)
def test_given_an_address_when_parsed_then_it_reads_back(text: str, expected: BrokerAddress) -> None:
    assert BrokerAddress.parse(text) == expected
    assert BrokerAddress.parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["b1", "b1:", ":9092", "b1:0", "b1:65536", "b1:x", "b1:-1", "b1:٣"])
def test_given_a_malformed_address_when_parsed_then_the_message_names_option_and_value(text: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers: .*host:port"):
        BrokerAddress.parse(text, option="kafka.bootstrap.servers")


def test_given_a_list_with_repeats_when_parsed_then_each_comes_once_in_order() -> None:
    assert parse_bootstrap_servers("b2:1,b1:1, b2:1,") == (BrokerAddress("b2", 1), BrokerAddress("b1", 1))


def test_given_an_empty_list_when_parsed_then_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="the list is empty"):
        parse_bootstrap_servers(" , ")


def test_given_a_gateway_error_when_shown_then_it_is_its_detail() -> None:
    error = GatewayError(FailureKind.AUTH, "b1:9092 refused the login")
    assert (str(error), error.kind) == ("b1:9092 refused the login", FailureKind.AUTH)


def test_given_a_partition_when_shown_then_it_reads_as_kafkas_tools_write_it() -> None:
    assert str(T0) == "t-0"
