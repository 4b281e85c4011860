"""A cluster that tests may break, and a Spark driver to watch it from; imported by the conftest."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.spark.driver import BUG_PHRASE, Query, SparkDriver

StartQuery = Callable[..., Query]


@pytest.fixture(scope="session")
def _six_brokers() -> Iterator[LocalKafka]:
    # Any client that lets them create topics would: our own is seen not to.
    settings = ClusterSettings(brokers=6, extra_properties={"auto.create.topics.enable": "true"})
    with LocalKafka(settings) as cluster:
        yield cluster


@pytest.fixture
def breakable(_six_brokers: LocalKafka) -> Iterator[LocalKafka]:
    """Six brokers to kill and freeze; whatever a test did to them is mended afterwards."""
    yield _six_brokers
    _six_brokers.heal()


@pytest.fixture(scope="session")
def _driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    with SparkDriver(tmp_path_factory.mktemp("driver")) as driver:
        yield driver


@pytest.fixture
def driver(_driver: SparkDriver) -> Iterator[SparkDriver]:
    """Four slots in a process of its own. A test fails if our code met an exception nobody foresaw."""
    before = len(_driver.log())
    yield _driver
    assert BUG_PHRASE not in _driver.log()[before:]


@pytest.fixture
def start_query(driver: SparkDriver, breakable: LocalKafka, tmp_path: Path) -> Iterator[StartQuery]:
    """Start queries on the breakable cluster: `start_query(topic, stateDir=...)`; all end before it is mended."""
    started: list[Query] = []

    def start(
        topic: str, *, checkpoint: str | None = None, trigger: str | None = "100 milliseconds", **options: str
    ) -> Query:
        given = {
            "kafka.bootstrap.servers": breakable.bootstrap_servers,
            "subscribe": topic,
            "stateDir": str(tmp_path / "state"),
            **{name.replace("kafka_", "kafka.").replace("_", "."): value for name, value in options.items()},
        }
        folder = tmp_path / checkpoint if checkpoint else None
        started.append(driver.query(given, checkpoint=folder, trigger=trigger))
        return started[-1]

    yield start
    for query in started:
        query.stop()


def replicas(leaders: Sequence[int], *, copies: int = 3, brokers: int = 6) -> list[list[int]]:
    """Place one partition per leader named, with followers next to it in the ring of brokers."""
    return [[(leader - 1 + step) % brokers + 1 for step in range(copies)] for leader in leaders]
