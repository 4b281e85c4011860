"""The sink under a few seeds of faults, on real brokers; `make chaos-sink` plays a hundred, and every point in turn."""

from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.chaos.sink.chaos import line, run_seeds

pytestmark = pytest.mark.kafka


def test_given_seeds_of_faults_when_played_then_nothing_is_lost_repeated_or_torn(
    kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    results = run_seeds(kafka_cluster, range(1, 4), tmp_path, at_once=3)
    assert all(result.sound for result in results), "\n".join(map(line, results))
