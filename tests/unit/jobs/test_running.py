"""What a job does around its query, without Spark."""

import httpx
import pytest

from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress
from discovery.spark.jobs.running import metrics_server
from tests.support.ports import bound_socket, free_port


def test_given_an_address_when_metrics_are_served_then_they_are_there_until_the_job_ends() -> None:
    address = BrokerAddress("127.0.0.1", free_port())
    with metrics_server(address) as registry:
        assert registry is not None
        assert httpx.get(f"http://{address}/metrics", timeout=30, trust_env=False).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{address}/metrics", timeout=30, trust_env=False)


def test_given_a_port_that_is_taken_when_metrics_are_served_then_one_line_says_so() -> None:
    with bound_socket() as taken:
        address = BrokerAddress("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(ConfigError, match=r"--metrics: .* cannot be had: .*; name a free port"),
            metrics_server(address),
        ):
            pass
