"""How Spark's Python processes start: from the installed PySpark, and again where one was too slow for Spark."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import numbered, produce
from tests.support.sink import committed_values
from tests.support.spark.slow_python import slow_python

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
_JOB_SECONDS = 240
_SUPERVISED = """
import json, sys
from pyspark.sql import SparkSession
from discovery.spark.supervise import run_query

servers, topic, folder = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "1").getOrCreate())
rows = []

def build(bootstrap):
    frame = (spark.readStream.format("kafka-discovery").options(**bootstrap.kafka_options)
             .option("subscribe", topic).option("startingOffsets", "earliest").load())
    writer = frame.selectExpr("cast(value as string) v").writeStream
    writer = writer.foreachBatch(lambda batch, _: rows.extend(row.v for row in batch.collect()))
    return writer.trigger(availableNow=True).option("checkpointLocation", f"{folder}/checkpoint").start()

report = run_query(build, servers)
spark.stop()
print(json.dumps({**report.document(), "rows": sorted(rows)}))
"""


def test_given_a_session_when_workers_run_then_they_import_the_installed_package_and_no_zip(
    spark: SparkSession,
) -> None:
    def where(_: int) -> str:
        import pyspark as imported  # noqa: PLC0415 - in the worker

        return str(imported.__file__)

    assert spark.sparkContext.parallelize([0], 1).map(where).collect() == [pyspark.__file__]


def run(folder: Path, python: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYSPARK_PYTHON": str(python), "XDG_STATE_HOME": str(folder / "state")}
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=_JOB_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done


def test_given_a_reader_too_slow_for_spark_when_a_job_starts_then_one_line_says_so_and_every_record_comes(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    target = f"{topic_name}-out"
    for topic in (topic_name, target):
        kafka_cluster.create_topic(topic, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(5))
    python, starts = slow_python(tmp_path)
    done = run(
        tmp_path, python, "spark_jobs/copy_topic.py", "--bootstrap-servers", kafka_cluster.bootstrap_servers,
        "--topic", topic_name, "--output-topic", target, "--checkpoint", str(tmp_path / "checkpoint"),
        "--sink-id", target, "--available-now",
    )  # fmt: skip
    assert starts.read_text().split() == ["slow", "quick"]
    (line,) = [line for line in done.stderr.splitlines() if "did not call back" in line]
    assert "no batch had begun, so the query is started again (start 2 of 5)" in line
    assert [str(value) for value in committed_values(kafka_cluster.bootstrap_servers, target)] == numbered(5)


@pytest.mark.long
def test_given_a_reader_too_slow_for_spark_when_a_supervised_query_starts_then_it_is_restarted_as_a_slow_start(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(5))
    python, starts = slow_python(tmp_path)
    done = run(
        tmp_path, python, "-c", _SUPERVISED, kafka_cluster.bootstrap_servers, topic_name, str(tmp_path)
    )  # fmt: skip
    report = json.loads(done.stdout.splitlines()[-1])
    assert starts.read_text().split() == ["slow", "quick"]
    assert (report["outcome"], report["rows"]) == ("finished", sorted(numbered(5)))
    first, second = report["attempts"]
    assert (first["finding"]["failure"], second["finding"]) == ("slow start", None)
