"""What is published works: the built wheel, installed without extras: the service, the endpoint, the command line."""

from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.support import wheel

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
SPARK_PACKAGES = {"pyspark", "py4j", "pyarrow", "numba", "llvmlite", "numpy"}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with our wheel in it, and what its core needs."""
    return wheel.install(tmp_path_factory.mktemp("wheel"), "", "sidecar.txt")


def test_given_the_wheel_alone_when_asked_then_the_command_answers(core: Path, tmp_path: Path) -> None:
    answer = wheel.run(core, tmp_path, "kafka-discovery", "--help").stdout
    assert {"serve", "healthcheck", "endpoint", "run"} <= set(answer.split())


def test_given_the_wheel_alone_when_looked_at_then_its_needs_are_met_and_neither_spark_nor_a_tool_of_ours_is_there(
    core: Path, tmp_path: Path
) -> None:
    assert "No broken requirements found" in wheel.pip(core, tmp_path, "check")
    names = wheel.names(core)
    assert {"kafka-discovery", "confluent-kafka"} <= names
    assert not ({"pytest", "mypy", "ruff", "build"} | SPARK_PACKAGES) & names, "only what the wheel asks for"


def test_given_the_wheel_when_its_metadata_is_read_then_an_index_would_take_it_and_extras_hold_what_is_spark(
    core: Path,
) -> None:
    (found,) = metadata.distributions(path=[str(next(core.glob("lib/*/site-packages")))], name="kafka-discovery")
    fields = Parser().parsestr(found.read_text("METADATA") or "")
    assert fields["Description-Content-Type"] == "text/markdown"
    assert fields.get_payload(), "the page of the package"
    assert (fields["License-Expression"], fields["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert fields.get_all("Provides-Extra") == ["spark", "all"]
    needs = [need for need in fields.get_all("Requires-Dist", []) if not need.startswith("kafka-discovery[")]
    assert {need.partition(";")[0].rstrip("<>=.,0123456789") for need in needs if "extra ==" in need} == {
        "numba", "pyarrow", "pyspark",
    }  # fmt: skip


def test_given_the_wheel_alone_when_brokers_are_asked_for_then_the_vetted_list_is_printed(
    core: Path, tmp_path: Path, kafka_cluster: LocalKafka
) -> None:
    listed = f"127.0.0.1:1,{kafka_cluster.bootstrap_servers}"
    done = wheel.run(core, tmp_path, "kafka-discovery", "bootstrap", "--bootstrap", listed, "--timeout", "60")
    assert set(done.stdout.strip().split(",")) == set(kafka_cluster.bootstrap_servers.split(","))
    supervised = ("kafka-discovery", "run", "--inject", "list", "--restarts", "0", "--", "echo", listed)
    assert "127.0.0.1:1," not in wheel.run(core, tmp_path, *supervised).stdout


@pytest.mark.parametrize(
    "command",
    [
        ("demo",),
        ("local-kafka", "up", "--brokers", "1"),
        ("sink", "status", "--bootstrap", "127.0.0.1:1", "--sink", "orders"),
    ],
)
def test_given_the_wheel_alone_when_a_command_needs_more_then_one_line_names_the_extra(
    core: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = wheel.run(core, tmp_path, "kafka-discovery", *command, "--json", code=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("kafka-discovery: ")
    assert line.endswith("pip install 'kafka-discovery[spark]'")


@pytest.mark.parametrize("job", ["dau", "ip_visits", "copy_topic"])
def test_given_the_wheel_alone_when_a_ready_job_starts_then_one_line_names_the_extra(
    core: Path, tmp_path: Path, job: str
) -> None:
    file = wheel.run(core, tmp_path, "kafka-discovery", "jobs", job).stdout.strip()
    done = wheel.run(core, tmp_path, "python", file, "--help", code=2)
    assert done.stderr == f"{job}: pyspark is not installed; pip install 'kafka-discovery[spark]'\n"
