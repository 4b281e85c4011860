"""Brokers that speak garbage in Kafka's frames: whoever asks them gets a verdict, in time, and stays small."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from discovery.config.client.options import map_client_options
from discovery.core.answers import ProbeOutcome
from discovery.core.errors import GatewayError
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, LoopState
from discovery.core.policy import Policy
from discovery.feed.embedded import EmbeddedFeed
from discovery.kafka.confluent import ConfluentGatewayFactory
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from discovery.localkafka.keeper.processes import resident_bytes
from tests.support.fakes.mock_cluster import MockCluster
from tests.support.faults import Malformed, malformed_broker
from tests.support.helpers import eventually

POLICY = Policy(connect_timeout_seconds=0.5, request_timeout_seconds=1.0, api_timeout_seconds=3.0)
SEEDS = range(4)


@pytest.fixture(scope="module")
def malformed() -> Iterator[list[BrokerAddress]]:
    """One broker of every kind and seed."""
    with ExitStack() as stack:
        yield [
            BrokerAddress.parse(stack.enter_context(malformed_broker(kind, seed=seed)))
            for kind in Malformed
            for seed in SEEDS
        ]


def test_given_brokers_of_malformed_responses_when_vetted_then_each_gets_a_verdict_in_time_and_memory_is_bounded(
    malformed: list[BrokerAddress],
) -> None:
    vetter = LibrdkafkaVetter(map_client_options({}), POLICY)
    before = _resident()
    outcomes: dict[BrokerAddress, ProbeOutcome] = {}
    began = time.monotonic()
    vetter.vet(
        malformed,
        connect_timeout_seconds=POLICY.connect_timeout_seconds,
        request_timeout_seconds=POLICY.request_timeout_seconds,
        full=malformed,
        on_outcome=lambda outcome: outcomes.__setitem__(outcome.address, outcome),
    )
    assert time.monotonic() - began < 10
    assert set(outcomes) == set(malformed)
    assert not [o for o in outcomes.values() if o.cluster_id is not None or o.brokers]
    assert not [o for o in outcomes.values() if o.failure is None and not o.tcp_only]
    assert _resident() - before < 100_000_000


@pytest.mark.parametrize("kind", list(Malformed))
def test_given_a_broker_of_malformed_responses_when_asked_for_metadata_then_it_fails_in_time(kind: Malformed) -> None:
    with malformed_broker(kind, seed=7) as address:
        gateway = ConfluentGatewayFactory(map_client_options({}), POLICY)([BrokerAddress.parse(address)])
        began = time.monotonic()
        with pytest.raises(GatewayError):
            gateway.fetch_metadata(None, timeout_seconds=0.7)
        assert time.monotonic() - began < 5
        gateway.close()


def test_given_one_real_broker_among_malformed_ones_when_followed_then_the_view_is_its_and_no_bug_is_logged(
    malformed: list[BrokerAddress],
) -> None:
    with MockCluster(1) as mock:
        mock.call("topic_create", "t", 3, 1)
        real = BrokerAddress.parse(mock.bootstrap_servers)
        feed = EmbeddedFeed(bootstrap=(*malformed, real), interest=Interest(pattern="t"), policy=POLICY)
        threads = threading.active_count()
        try:
            feed.start()
            eventually(lambda: feed.view().state is LoopState.FRESH and len(feed.view().partitions) == 3, 30)
            verdicts = eventually_judged(feed, malformed)
            assert feed.view().bootstrap == (real,)
            assert "alive" not in verdicts
            assert feed.vitals().bugs == 0
        finally:
            feed.stop()
        eventually(lambda: threading.active_count() <= threads + 16, 20)


def eventually_judged(feed: EmbeddedFeed, addresses: list[BrokerAddress]) -> set[str]:
    """Wait until every address has a verdict and return them."""
    eventually(lambda: all(feed.view().addresses[a].verdict is not None for a in addresses), 30, "all verdicts")
    reports = feed.view().addresses
    return {seen.value for a in addresses if (seen := reports[a].verdict) is not None}


def _resident() -> int:
    found = resident_bytes(os.getpid())
    assert found is not None
    return found
