"""The sink under a few seeds of faults, on real brokers; `make chaos-sink` plays a hundred, and every point in turn."""

from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.chaos.sink.chaos import line, run_seeds
from tests.chaos.sink.engine import play_mutant
from tests.chaos.sink.mutants import MUTANTS

pytestmark = pytest.mark.kafka


def test_given_seeds_of_faults_when_played_then_nothing_is_lost_repeated_or_torn(
    kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    results = run_seeds(kafka_cluster, (1, 2, 3, 11), tmp_path, at_once=4)
    assert all(result.sound for result in results), "\n".join(map(line, results))


@pytest.mark.parametrize("name", MUTANTS)
def test_given_a_broken_writer_when_its_fault_is_played_then_the_checks_find_it(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path, name: str
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=2, replication_factor=3)
    found = play_mutant(kafka_cluster, topic_name, name, tmp_path)
    assert MUTANTS[name].found_by in {finding.check for finding in found}, found


def test_given_our_writer_when_the_faults_of_all_broken_ones_are_played_then_nothing_is_found(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=2, replication_factor=3)
    assert play_mutant(kafka_cluster, topic_name, "", tmp_path) == ()
