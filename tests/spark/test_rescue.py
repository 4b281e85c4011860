"""`kafka-discovery run`: jobs that do not change, on Spark's own source, through the loss of every listed broker."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.jars import native_connector_jars
from tests.support import eventually, produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

JOB = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "{servers}")
    .option("subscribe", "{topic}")
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    frame.selectExpr("CAST(value AS STRING)")
    .writeStream.format("text")
    .option("path", "{folder}/rows")
    .option("checkpointLocation", "{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
"""
_RUN_SECONDS = 200.0
_MAIN = "from discovery.cli import main; main()"


def submitted(script: Path, folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Run a job under supervision to its end; return the report and what was said."""
    report = folder / "report.json"
    submit = Path(sys.executable).parent / "spark-submit"
    command = [
        sys.executable, "-c", _MAIN, "run", "--state-dir", str(folder / "state"), "--report", str(report), *options,
        "--", str(submit), "--master", "local[2]", "--driver-memory", "512m",
        "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
        "--jars", ",".join(map(str, native_connector_jars())), str(script),
    ]  # fmt: skip
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False, env=environment)
    assert report.exists(), done.stderr[-4000:]
    found: dict[str, Any] = json.loads(report.read_text())
    assert found["exit_code"] == done.returncode, done.stderr[-4000:]
    return found, done.stderr


def rows(folder: Path) -> list[str]:
    return sorted(line for file in (folder / "rows").glob("*.txt") for line in file.read_text().split())


def test_given_a_job_with_its_list_in_its_code_when_all_of_it_dies_then_under_run_no_start_fails(
    breakable: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    doomed = (1, 2)
    breakable.create_topic(topic_name, 3, replication_factor=3)
    script = tmp_path / "job.py"
    listed = ",".join(breakable.address(broker) for broker in doomed)
    script.write_text(JOB.format(servers=listed, topic=topic_name, folder=tmp_path))
    produce(breakable.bootstrap_servers, topic_name, "a", "b")
    report, said = submitted(script, tmp_path)
    assert (report["outcome"], report["failures"]) == ("finished", 0), said[-4000:]
    assert "kafka.metadata.recovery.strategy=rebootstrap" in " ".join(report["set"]), report["set"]
    breakable.kill(doomed)
    living = ",".join(breakable.address(broker) for broker in (3, 4, 5, 6))
    eventually(lambda: _led_by_the_living(living, topic_name, doomed), 60, "new leaders")
    produce(living, topic_name, "c")
    report, said = submitted(script, tmp_path)
    assert (report["outcome"], report["failures"], report["runs"]) == ("finished", 0, 1), said[-4000:]
    assert rows(tmp_path) == ["a", "b", "c"]
    assert f"was {listed}" in " ".join(report["set"])


def _led_by_the_living(servers: str, topic: str, dead: tuple[int, ...]) -> bool:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - the test's own look

    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    found = client.list_topics(topic, timeout=10).topics[topic].partitions.values()
    return all(one.leader not in (*dead, -1) for one in found)
