"""A driver that gets a tenth of a core still reads: slowly, but its start does not fail for being slow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from discovery.doctor.processor import processor_here
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.launch.python import worker_python
from tests.support.helpers import numbered, produce
from tests.support.processor import limited
from tests.support.sink import committed_values

_JOB_SECONDS = 1500
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(_JOB_SECONDS + 120)]
_SHARE = "from discovery.doctor.processor import processor_here; print(processor_here().share)"


def test_given_a_driver_with_a_tenth_of_a_core_when_a_job_runs_then_every_record_comes(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    target = f"{topic_name}-out"
    for topic in (topic_name, target):
        kafka_cluster.create_topic(topic, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(5))
    environment = {**os.environ, "PYSPARK_PYTHON": worker_python(), "XDG_STATE_HOME": str(tmp_path / "state")}
    job = [
        sys.executable, "spark_jobs/copy_topic.py", "--bootstrap-servers", kafka_cluster.bootstrap_servers,
        "--topic", topic_name, "--output-topic", target, "--checkpoint", str(tmp_path / "checkpoint"),
        "--sink-id", target, "--available-now", "--source-option", "startupTimeout=1200s",
    ]  # fmt: skip
    with limited(0.1) as words:
        share = subprocess.run(
            [*words, sys.executable, "-c", _SHARE], capture_output=True, text=True, timeout=120, check=True
        )
        assert float(share.stdout) <= 0.1 < processor_here().share, "what the doctor would say"
        done = subprocess.run(
            [*words, *job], env=environment, capture_output=True, text=True, timeout=_JOB_SECONDS, check=False
        )
    print(done.stderr[-6000:])  # noqa: T201 - how often it started
    assert done.returncode == 0, done.stderr[-4000:]
    assert [str(value) for value in committed_values(kafka_cluster.bootstrap_servers, target)] == numbered(5)
