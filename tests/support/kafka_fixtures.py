"""Real clusters for tests. Import these names in a conftest; clusters end with the session or the test."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import pytest

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings

KafkaFactory = Callable[..., LocalKafka]


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[LocalKafka]:
    """Three brokers shared by all tests that do not break it; use topic names of your own (`topic_name`)."""
    with LocalKafka(ClusterSettings(brokers=3)) as cluster:
        yield cluster


@pytest.fixture
def kafka_factory() -> Iterator[KafkaFactory]:
    """Start clusters of this test's own: `kafka_factory(brokers=6, racks=3)`; all end with the test."""
    with contextlib.ExitStack() as stack:

        def make(
            brokers: int = 3,
            *,
            racks: int = 1,
            extra_properties: Mapping[str, str] | None = None,
            sasl_users: Mapping[str, str] | None = None,
        ) -> LocalKafka:
            settings = ClusterSettings(
                brokers=brokers, racks=racks, extra_properties=extra_properties or {}, sasl_users=sasl_users or {}
            )
            return stack.enter_context(LocalKafka(settings))

        yield make


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of this session uses."""
    _COUNTER.append(1)
    return f"{request.node.originalname[:40]}-{len(_COUNTER)}".replace("[", "-").replace("]", "")


_COUNTER: list[int] = []
