"""Every shell snippet of the pages that need no Spark, walked through from top to bottom.

On brokers that the client library plays where that is enough; `make test-docs` walks the same pages, and those whose
commands take long, on real ones.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fakes.mock_cluster import MockCluster
from tests.support.helpers import numbered, produce
from tests.support.kafka_fixtures import KafkaFactory
from tests.support.manual import long_run
from tests.support.manual.markdown import pages
from tests.support.manual.stage import WITH_SPARK, Brokers, is_shell, staged, to_play

_numbers = itertools.count(1)


class PlayedBrokers:
    """See `Brokers`: librdkafka's own."""

    def __init__(self, cluster: MockCluster) -> None:
        self._cluster = cluster
        self.bootstrap_servers = cluster.bootstrap_servers
        self.broker_ids = tuple(range(1, len(self.bootstrap_servers.split(",")) + 1))

    def address(self, broker_id: int) -> str:
        return self.bootstrap_servers.split(",")[broker_id - 1]

    def create_topic(self, name: str, partitions: int, *, replication_factor: int) -> None:
        self._cluster.call("topic_create", name, partitions, replication_factor)


@pytest.fixture
def brokers(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """Real ones, one more than copies, for the long run; they are this test's own, for a page may move replicas."""
    if long_run():
        factory: KafkaFactory = request.getfixturevalue("kafka_factory")
        yield factory(brokers=4)
        return
    with MockCluster() as cluster:
        yield PlayedBrokers(cluster)


def walked() -> list[Path]:
    """Return the pages with shell alone; `tests/spark/test_manual.py` walks those with Python."""
    found = {page: to_play(page, long=long_run()) for page in pages()}
    return [page for page, blocks in found.items() if blocks and all(map(is_shell, blocks)) and page not in WITH_SPARK]


@pytest.mark.parametrize("page", walked(), ids=str)
def test_given_a_page_when_its_commands_are_typed_then_each_ends_as_the_page_says(
    page: Path, brokers: Brokers, tmp_path: Path
) -> None:
    topic = f"page-{next(_numbers)}"
    with staged(tmp_path, brokers, topic) as stage:
        brokers.create_topic(f"{topic}-events", 3, replication_factor=3)
        produce(brokers.bootstrap_servers, f"{topic}-events", *numbered(12))
        for block in to_play(page, long=long_run()):
            stage.play(block)
