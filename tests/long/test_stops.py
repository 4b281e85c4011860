"""Twenty stops of a running job, at whatever moment they fall: each ends cleanly, and nothing is lost.

Five more are signals to the JVM of spark-submit instead of the driver's Python; a JVM that is signalled ends with 143.
"""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.support.checkpoint import committed
from tests.support.helpers import eventually, produce
from tests.support.spark.jobs import ENVIRONMENT, JOB_SECONDS, SUBMIT, event, unexpected

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
STOPS, EVENTS = 25, 20_000


@pytest.mark.timeout(1800)
def test_given_a_busy_job_when_it_is_stopped_twenty_times_then_each_end_is_clean_and_the_count_exact(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=2)
    produce(kafka_cluster.bootstrap_servers, topic_name, *[event(f"u{i % 7}", event_id=str(i)) for i in range(EVENTS)])
    checkpoint, moments = tmp_path / "ck", random.Random(1)
    arguments = [
        "spark_jobs/dau.py", "--bootstrap-servers", kafka_cluster.bootstrap_servers,
        "--topic", topic_name, "--output", f"sqlite:///{tmp_path}/dau.db", "--checkpoint", str(checkpoint),
        "--state-dir", str(tmp_path / "state"),
    ]  # fmt: skip
    for number in range(STOPS):
        enough, log = committed(checkpoint) + 1, tmp_path / f"job-{number}.log"
        program, code = (SUBMIT, 143) if number % 5 == 4 else (sys.executable, 0)
        with log.open("wb") as output:
            busy = [program, *arguments, "--max-offsets-per-trigger", "50", "--trigger-interval", "0s"]
            job = subprocess.Popen(busy, env=ENVIRONMENT, stdout=output, stderr=output)
        try:
            eventually(lambda: job.poll() is not None or committed(checkpoint) >= enough, JOB_SECONDS, "a batch")  # noqa: B023
            time.sleep(moments.random())
            before = log.read_text()
            job.send_signal(signal.SIGTERM)
            assert job.wait(JOB_SECONDS) == code, f"stop {number}: {log.read_text()}"
        finally:
            job.kill()
            job.wait()
        assert unexpected(log.read_text().removeprefix(before)) == [], f"stop {number}"
    last = [sys.executable, *arguments, "--available-now"]
    assert subprocess.run(last, timeout=JOB_SECONDS, check=False).returncode == 0
    with closing(sqlite3.connect(tmp_path / "dau.db")) as connection:
        assert connection.execute("SELECT sum(events) FROM daily_users").fetchone() == (EVENTS,)
