import json

import pytest

from discovery.localkafka import show
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.folders import DEFAULT_NAME
from discovery.localkafka.properties import ClusterSettings
from discovery.localkafka.record import ClusterRecord


@pytest.fixture
def cluster() -> LocalKafka:
    """Two brokers that were given ports; the steps are written without asking them."""
    made = LocalKafka(ClusterSettings(brokers=2))
    made._record = ClusterRecord(cluster_id="c", settings=made.settings, ports={"1": 15001, "2": 15002})
    return made


def test_given_a_fresh_cluster_when_the_next_steps_are_shown_then_the_bootstrap_list_can_be_copied(
    cluster: LocalKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    show.next_steps(cluster, DEFAULT_NAME)
    lines = capsys.readouterr().out.splitlines()
    assert '    .option("kafka.bootstrap.servers", "127.0.0.1:15001,127.0.0.1:15002")' in lines
    assert any(line.startswith("  kafka-discovery local-kafka kill 2 ") for line in lines)


def test_given_a_named_cluster_when_the_next_steps_are_shown_then_each_command_names_it(
    cluster: LocalKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    show.next_steps(cluster, "mine")
    commands = [line for line in capsys.readouterr().out.splitlines() if "kafka-discovery local-kafka" in line]
    assert len(commands) >= 5
    assert all(" --name mine " in command for command in commands)


def test_given_a_result_when_shown_as_json_then_standard_output_is_json_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show.result({"emptied": [1, 2]}, "brokers [1, 2] hold nothing any more", as_json=True)
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"emptied": [1, 2]}
    assert captured.err == ""


def test_given_a_result_when_shown_to_a_person_then_it_is_one_sentence_beside_the_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show.result({"emptied": [1, 2]}, "brokers [1, 2] hold nothing any more", as_json=False)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "brokers [1, 2] hold nothing any more\n"
