"""A job as a user runs it, killed at the worst moments: `make kill-job`, apart from `make test` for its length."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from spark_jobs.sink import hooks
from tests.spark.test_sink_jobs import JOB_SECONDS, Topics, topics, visit
from tests.support import eventually

__all__ = ["topics"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.timeout(600)
def test_given_a_worker_and_the_driver_killed_around_the_commit_when_started_again_then_totals_are_exact(
    topics: Topics,
) -> None:
    armed = topics.folder / "hooks"
    armed.mkdir()
    (armed / "step6.sent@0").write_text("kill")  # a worker, with an open transaction
    (armed / "commit.after").write_text("hold")  # the driver, between the commit and Spark's own record of it
    topics.put(*[visit("10.0.0.1")] * 3, *[visit("10.0.0.2")] * 2)
    command = [sys.executable, "-m", "spark_jobs.jobs.ip_visits", *topics.arguments()]
    log = topics.folder / "job.log"
    with log.open("ab") as output:
        killed = subprocess.Popen(
            command, env={**os.environ, hooks.VARIABLE: str(armed)}, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
        try:
            reached = lambda: killed.poll() is not None or list(armed.glob("commit.after.held.*"))  # noqa: E731
            eventually(reached, JOB_SECONDS, "the end of the first batch")
            assert killed.poll() is None, log.read_text(errors="replace")[-3000:]
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait(60)
            for held in armed.glob("*.held.*"):
                held.unlink()
        assert not (armed / "step6.sent@0").exists(), "no worker was killed"
        assert not (topics.checkpoint / "commits" / "0").exists()
        again = subprocess.run(command, stdout=output, stderr=output, timeout=JOB_SECONDS, check=False)
    assert again.returncode == 0, log.read_text(errors="replace")[-3000:]
    totals = Counter((found["ip"], found["visits"]) for found in map(json.loads, topics.found()))
    assert totals == {("10.0.0.1", 3): 1, ("10.0.0.2", 2): 1}
