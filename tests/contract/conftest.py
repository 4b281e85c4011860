"""One subject per kind of Kafka. The real cluster is the contract's own, because some cases break it for a while."""

from collections.abc import Iterator

import pytest

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.contract.subjects import FakeSubject, MockSubject, RealSubject, Subject
from tests.support.fakes.mock_cluster import MockCluster


@pytest.fixture(scope="session")
def contract_cluster() -> Iterator[LocalKafka]:
    """Its brokers create a topic for any client that lets them, so that ours is seen not to."""
    with LocalKafka(ClusterSettings(brokers=3, extra_properties={"auto.create.topics.enable": "true"})) as cluster:
        yield cluster


@pytest.fixture(params=["fake", "mock", pytest.param("real", marks=pytest.mark.kafka)])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    match request.param:
        case "fake":
            yield FakeSubject()
        case "mock":
            with MockCluster(3) as mock:
                yield MockSubject(mock)
        case _:
            yield RealSubject(request.getfixturevalue("contract_cluster"))
