"""Jobs that do not change: the program and the commands of spark-native.md; those of README.md and java-clients.md."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.jars.download import native_connector_jars
from discovery.spark.launch.python import worker_python
from discovery.spark.supervise import Report, run_query
from tests.support.endpoint import CONSUMER, properties_file, tool_command
from tests.support.helpers import produce
from tests.support.spark.native import DOOMED, dead_list
from tests.support.spark.standalone import standalone

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PAGE = Path(__file__).parents[2] / "docs/how-to/spark-native.md"
LISTED = "b1:9092,b2:9092,b3:9092"
_RUN_SECONDS = 250.0
WRITING = """
servers = "{servers}"
spark.createDataFrame([("d",)], ["value"]).write.format("kafka").options(
    **{{"kafka.bootstrap.servers": servers, "topic": "{topic}"}}
).save()
writer = spark.readStream.text("/data/events").writeStream.option("kafka.bootstrap.servers", servers)
writer = writer.option("topic", "{topic}").option("checkpointLocation", "/data/checkpoint-2").trigger(availableNow=True)
writer.start(format="kafka").awaitTermination()
"""
"""Ways to write that the page promises to protect, too."""


def block(language: str, beginning: str) -> str:
    """Return the page's code block of this language that begins so."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return next(text for text in blocks if text.startswith(beginning))


@pytest.fixture(name="dead_list")
def _dead_list(breakable: LocalKafka, topic_name: str, tmp_path: Path) -> str:
    """A list of two brokers that were met alive, and then died; their topic has records and living leaders."""
    breakable.create_topic(topic_name, 3, replication_factor=3)
    produce(breakable.bootstrap_servers, topic_name, "a", "b", "c")
    return dead_list(breakable, topic_name, tmp_path / "state")


def records(cluster: LocalKafka, topic: str) -> int:
    """Count what a topic holds."""
    living = ",".join(cluster.address(broker) for broker in cluster.broker_ids if broker not in DOOMED)
    consumer = Consumer({"bootstrap.servers": living, "group.id": "counting", "log_level": 0})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=20) for number in range(3)]
        return sum(high - low for low, high in ends)
    finally:
        consumer.close()


def _read_by_a_tool(program: str, listed: str, topic: str, folder: Path) -> None:
    """Let one of Kafka's own tools, which knows nothing of us, read the topic through the same dead list."""
    config = properties_file(folder / "tool.properties", {"bootstrap.servers": listed, "client.id": "tool"})
    arguments = ["--topic", topic, "--from-beginning", "--max-messages", "7", "--bootstrap-server", listed]
    tool = tool_command(CONSUMER, [*arguments, "--consumer.config", config])
    options = ["--state-dir", str(folder / "state"), "--report", str(folder / "tool.json"), "--restarts", "0"]
    command = [program, "run", *options, "--", *tool]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False)
    assert (done.returncode, len(done.stdout.split())) == (0, 7), done.stderr[-4000:]
    assert f"properties file bootstrap.servers of {config}: 127.0.0.1:" in done.stderr


def _run_as_on_the_page(job: str, folder: Path, *, master: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """Run the page's command with this job; return its report."""
    (folder / "job.py").write_text(job.replace("/data/", f"{folder}/"))
    words = block("sh", "kafka-discovery run").split()
    assert words[:4] == ["kafka-discovery", "run", "--", "spark-submit"]
    assert (words[4], words[-1]) == ("--packages", "job.py")
    report_file, programs = folder / "report.json", Path(sys.executable).parent
    command = [
        str(programs / words[0]), words[1], "--state-dir", str(folder / "state"), "--report", str(report_file),
        words[2], str(programs / words[3]), "--master", master, "--driver-memory", "512m", *more,
        "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
        # The same jars as those of `--packages`, which would ask a repository.
        "--jars", ",".join(map(str, native_connector_jars())), str(folder / words[-1]),
    ]  # fmt: skip
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": worker_python()},
    )
    assert report_file.exists(), done.stderr[-4000:]
    report: dict[str, Any] = json.loads(report_file.read_text())
    seen = (done.returncode, report["outcome"], report["runs"], report["failures"])
    assert seen == (0, "finished", 1, 0), done.stderr[-4000:]
    assert sorted("".join(file.read_text() for file in (folder / "events").glob("*.txt")).split()) == ["a", "b", "c"]
    return report


def _job(dead_list: str, topic: str) -> str:
    page = block("python", "# job.py").replace(LISTED, dead_list)
    return page.replace('"subscribe", "events"', f'"subscribe", "{topic}"')


def test_given_the_job_of_the_page_when_all_it_lists_is_dead_then_run_lets_its_first_start_succeed(
    dead_list: str, breakable: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    job = _job(dead_list, topic_name) + WRITING.format(servers=dead_list, topic=topic_name)
    report = _run_as_on_the_page(job, tmp_path, master="local[2]")
    assert records(breakable, topic_name) == 3 + 1 + 3
    _read_by_a_tool(str(Path(sys.executable).parent / "kafka-discovery"), dead_list, topic_name, tmp_path)
    assert any(line.startswith("kafka.bootstrap.servers=127.0.0.1:") for line in report["set"]), report["set"]
    assert any("metadata.recovery.strategy=rebootstrap" in line for line in report["set"]), report["set"]


@pytest.mark.long
def test_given_a_standalone_cluster_when_all_that_the_job_lists_is_dead_then_its_executors_get_the_living_brokers(
    dead_list: str, breakable: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    executors = ["--conf", "spark.executor.memory=512m", "--conf", "spark.cores.max=1"]
    with standalone(tmp_path, workers=1) as master:
        report = _run_as_on_the_page(_job(dead_list, topic_name), tmp_path, master=master, more=executors)
    given = [line for line in report["set"] if line.startswith("kafka.bootstrap.servers=")]
    living = [breakable.address(broker) for broker in breakable.broker_ids if broker not in DOOMED]
    assert given
    assert all(address in line for line in given for address in living), given


def test_given_the_program_of_the_page_when_all_it_lists_is_dead_then_run_query_lets_it_succeed_here_and_elsewhere(
    spark: SparkSession, breakable: LocalKafka, dead_list: str, topic_name: str, tmp_path: Path
) -> None:
    page = block("python", "# notebook.py").replace(LISTED, dead_list)
    page = page.replace('"subscribe", "events"', f'"subscribe", "{topic_name}"')
    servers: dict[str, set[str]] = {}
    for place in ("", ", local=False"):
        program = page.replace("/data/", f"{tmp_path}/{len(place)}-")
        program = program.replace(f'"{dead_list}")', f'"{dead_list}", state_dir=state_dir{place})')
        names: dict[str, Any] = {"spark": spark, "state_dir": tmp_path / "state"}
        exec(compile(program, str(PAGE), "exec"), names)  # noqa: S102 - the page's own words
        report: Report = names["report"]
        assert (report.outcome.value, report.failures) == ("finished", 0), report.document()
        servers[place] = set(report.attempts[0].servers.split(","))
        assert run_query is names["run_query"]
    living = {breakable.address(broker) for broker in breakable.broker_ids if broker not in DOOMED}
    assert servers[", local=False"] == living
    assert len(servers[""]) == 1
    assert servers[""].isdisjoint(living), "the endpoint's address was expected"
