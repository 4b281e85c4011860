"""The sink under faults, on real brokers: every hook once with SIGKILL and once with SIGSTOP, and a few seeds."""

from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.exactly_once.chaos import line, run_seeds
from tests.exactly_once.engine import COMMIT_POINTS, TASK_POINTS, Fault, Plan, play

pytestmark = pytest.mark.kafka
BATCHES = ((("a:1", "a:2", "a:3", "a:4"), ("b:1",)), (("a:5", "a:6"), ("b:2", "b:3", "b:4")))


def at_every_point(action: str) -> Plan:
    """Task points alternate between two lanes; a commit point needs a batch to itself, since the driver dies there."""
    points = [*TASK_POINTS, *COMMIT_POINTS]
    faults = tuple(
        Fault(batch=number % 2, point=point, lane=number // 2 % 2, action=action) for number, point in enumerate(points)
    )
    return Plan(seed=0, lanes=2, batches=BATCHES * 1, faults=faults)


def test_given_seeds_of_faults_when_played_then_nothing_is_lost_repeated_or_torn(
    kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    results = run_seeds(kafka_cluster, range(1, 5), tmp_path, at_once=2)
    assert all(result.sound for result in results), "\n".join(map(line, results))


@pytest.mark.parametrize("action", ["kill", "stop"])
def test_given_a_fault_at_every_point_when_played_then_nothing_is_lost_repeated_or_torn(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path, action: str
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=2, replication_factor=3)
    assert play(kafka_cluster, topic_name, at_every_point(action), tmp_path) == ()
