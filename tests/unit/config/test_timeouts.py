"""How long clients wait for one answer."""

import pytest
from confluent_kafka.admin import AdminClient

from discovery.config.client.options import ClientOptions, map_client_options
from discovery.config.client.timeouts import patient, raised
from discovery.core.model import BrokerAddress
from discovery.core.policy import Policy
from discovery.kafka.settings import client_properties
from discovery.spark.fetch.ranges import FetchSettings
from discovery.spark.fetch.tuning import complete, limits_of

BROKERS = (BrokerAddress("b1", 9092),)


def test_given_a_cluster_that_is_slow_as_a_whole_when_the_user_says_so_then_discovery_waits_as_long() -> None:
    given = {"kafka.request.timeout.ms": "9000", "kafka.socket.connection.setup.timeout.ms": "8000"}
    policy = raised(Policy(), map_client_options(given))
    assert (policy.connect_timeout_seconds, policy.request_timeout_seconds) == (8.0, 9.0)
    assert policy.request_timeout_seconds < policy.api_timeout_seconds < policy.staleness_seconds


@pytest.mark.parametrize("given", [{}, {"request.timeout.ms": "100", "socket.connection.setup.timeout.ms": "1000"}])
def test_given_smaller_timeouts_or_none_when_raised_then_the_policy_stays(given: dict[str, str]) -> None:
    assert raised(Policy(), map_client_options(given)) == Policy()


def test_given_a_setup_timeout_above_the_request_timeout_when_raised_then_both_agree() -> None:
    policy = raised(Policy(), map_client_options({"socket.connection.setup.timeout.ms": "9000"}))
    assert policy.connect_timeout_seconds == policy.request_timeout_seconds == 9.0


def test_given_timeouts_of_minutes_for_the_jvm_client_when_raised_then_discovery_waits_ten_seconds_at_most() -> None:
    given = {"kafka.request.timeout.ms": "120000", "kafka.socket.connection.setup.timeout.ms": "60000"}
    policy = raised(Policy(), map_client_options(given))
    assert policy.connect_timeout_seconds == policy.request_timeout_seconds == 10.0
    assert policy.api_timeout_seconds == 20.0


def test_given_a_slow_leader_when_workers_read_it_then_every_answer_may_take_the_deadline() -> None:
    options = complete(patient({"socket.timeout.ms": "90000"}, 60.0), limits_of(FetchSettings()))
    assert options["socket.connection.setup.timeout.ms"] == "60000"
    assert options["api.version.request.timeout.ms"] == "60000"
    assert options["socket.timeout.ms"] == "90000", "what the user gave is never shortened"


@pytest.mark.parametrize("seconds", [1.0, 5.0, 3_600.0])
def test_given_any_deadline_when_a_client_is_made_then_librdkafka_takes_its_timeouts(seconds: float) -> None:
    properties = client_properties(
        ClientOptions(), BROKERS, connect_timeout_seconds=seconds, request_timeout_seconds=seconds
    )
    AdminClient(dict(properties))
    AdminClient({"bootstrap.servers": "b1:9092", **patient({}, seconds)})
