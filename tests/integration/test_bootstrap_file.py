"""A bootstrap list that is changed while a loop runs, on real brokers."""

from pathlib import Path

import pytest

from discovery.core.errors import ConfigError
from discovery.core.interest import Interest
from discovery.core.model import LoopState, TopicName
from discovery.feed.bootstrap_file import BootstrapFile
from discovery.feed.embedded import EmbeddedFeed
from discovery.localkafka.cluster import LocalKafka
from tests.support.faults import refused_port
from tests.support.helpers import eventually

pytestmark = pytest.mark.kafka


def test_given_a_dead_list_when_the_file_names_living_brokers_then_they_are_found(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    path = tmp_path / "list"
    with refused_port() as nobody:
        path.write_text(nobody)
        feed = EmbeddedFeed(
            bootstrap=(), interest=Interest(topics=(TopicName(topic_name),)), bootstrap_file=BootstrapFile(path)
        )
        feed.start()
        try:
            eventually(lambda: "0 of 1 address alive" in feed.view().sentence, 20, "the dead list")
            path.write_text(kafka_cluster.bootstrap_servers.replace(",", "\n"))
            eventually(lambda: len(feed.view().partitions) == 2, 30, "the partitions")
            assert feed.view().state is LoopState.FRESH
            assert nobody not in {str(address) for address in feed.view().addresses}
            path.write_text("not an address")
            eventually(lambda: feed.view().age_seconds < 1, 10, "a loop that goes on")
            assert len(feed.view().partitions) == 2
        finally:
            feed.stop()


def test_given_no_list_when_the_file_cannot_be_read_then_the_start_fails_with_one_line(tmp_path: Path) -> None:
    interest = Interest(topics=(TopicName("t"),))
    feed = EmbeddedFeed(bootstrap=(), interest=interest, bootstrap_file=BootstrapFile(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"bootstrapServersFile: .*nothing cannot be read"):
        feed.start()
