"""The sink under a few seeds of faults, on real brokers; `make chaos-sink` plays a hundred, and every point in turn."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.chaos.sink import chaos
from tests.chaos.sink.chaos import line, run_seeds
from tests.chaos.sink.engine import Plan, at_every_point, play, play_mutant
from tests.chaos.sink.faults import Fault
from tests.chaos.sink.mutants import MUTANTS

pytestmark = pytest.mark.kafka


def test_given_seeds_of_faults_when_played_then_nothing_is_lost_repeated_or_torn(
    kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    results = run_seeds(kafka_cluster, range(1, 4), tmp_path, at_once=3)
    assert all(result.sound for result in results), "\n".join(map(line, results))


@pytest.mark.parametrize(
    "seed", [0, -3, pytest.param(-1, marks=pytest.mark.long), pytest.param(-2, marks=pytest.mark.long)]
)
def test_given_every_point_when_tasks_and_commits_fall_there_then_nothing_is_lost_repeated_or_torn(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path, seed: int
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=2, replication_factor=3)
    plan = at_every_point(seed)
    played = play(kafka_cluster, topic_name, plan, tmp_path)
    assert (played.findings, set(played.hits)) == ((), set(plan.faults))


def test_given_productions_way_to_produce_when_killed_in_mid_write_then_nothing_is_lost_repeated_or_torn(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=2, replication_factor=3)
    faults = (
        Fault(batch=0, point="step5.middle", action="kill"),
        Fault(batch=1, point="step6.sent", action="kill"),
        Fault(batch=2, point="step5.middle", action="stop"),
    )
    batches = tuple((tuple(f"k:{8 * batch + number}" for number in range(8)),) for batch in range(4))
    plan = Plan(seed=0, lanes=1, batches=batches, faults=faults, plain=True)
    played = play(kafka_cluster, topic_name, plan, tmp_path)
    assert (played.findings, set(played.hits)) == ((), set(faults))


@pytest.mark.parametrize("name", MUTANTS)
def test_given_a_broken_writer_when_its_fault_is_played_then_the_checks_find_it(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path, name: str
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=2, replication_factor=3)
    found = play_mutant(kafka_cluster, topic_name, name, tmp_path)
    assert MUTANTS[name].found_by in {finding.check for finding in found}, found


def test_given_a_broken_writer_when_the_command_of_chaos_plays_it_then_it_prints_the_finding_and_fails(
    kafka_cluster: LocalKafka, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chaos, "LocalKafka", lambda _: nullcontext(kafka_cluster))
    assert chaos.main(["--mutant", "no marker"]) == 1
    assert "C2 duplicate: " in capsys.readouterr().out


def test_given_our_writer_when_the_faults_of_all_broken_ones_are_played_then_nothing_is_found(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=2, replication_factor=3)
    assert play_mutant(kafka_cluster, topic_name, "", tmp_path) == ()
