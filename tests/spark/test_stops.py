"""A job that is stopped: at any moment a clean end, and the next start goes on exactly."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from discovery.spark.sink import hooks
from tests.support.helpers import eventually
from tests.support.spark.jobs import ENVIRONMENT, JOB_SECONDS, SUBMIT, Topics, topics, unexpected
from tests.support.spark.stopping_driver import BEGUN

__all__ = ["topics"]
pytestmark = pytest.mark.spark
ROUNDS = 6


def terminate(pid: int) -> None:
    """Signal one process, as an orchestrator does."""
    os.kill(pid, signal.SIGTERM)


def interrupt(pid: int) -> None:
    """Signal its whole process group, as a terminal does on Ctrl-C."""
    os.killpg(pid, signal.SIGINT)


@pytest.mark.timeout(600)
def test_given_a_batch_in_flight_when_its_query_is_stopped_again_and_again_then_nothing_is_on_stderr(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tests.support.spark.stopping_driver", str(tmp_path), str(ROUNDS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=JOB_SECONDS, check=False)
    assert ended.stderr.partition(BEGUN)[2] == ""
    assert ended.stdout.splitlines() == [f"round {number}: None" for number in range(ROUNDS)]
    assert ended.returncode == 0


@pytest.mark.kafka
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("program", "stop", "code"),
    [
        pytest.param(sys.executable, terminate, 0, id="driver"),
        pytest.param(sys.executable, interrupt, 0, id="driver-ctrl-c"),
        pytest.param(SUBMIT, terminate, 143, id="JVM", marks=pytest.mark.long),
        pytest.param(SUBMIT, interrupt, 130, id="JVM-ctrl-c", marks=pytest.mark.long),
    ],
)
def test_given_an_open_transaction_when_the_job_is_stopped_then_its_end_is_clean_and_nothing_is_lost(
    topics: Topics, program: str, stop: Callable[[int], None], code: int
) -> None:
    armed, log = topics.folder / "hooks", topics.folder / "job.log"
    armed.mkdir()
    (armed / "step6.sent@0").write_text("hold")
    topics.put("a", "b", "c")
    command = [program, "spark_jobs/copy_topic.py", *topics.arguments()]
    with log.open("wb") as output:
        job = subprocess.Popen(
            command,
            env={**ENVIRONMENT, hooks.VARIABLE: str(armed)},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        eventually(lambda: job.poll() is not None or list(armed.glob("*.held.*")), JOB_SECONDS, "the transaction")
        before = log.read_text()
        stop(job.pid)
        assert job.wait(JOB_SECONDS) == code
    finally:
        job.kill()
        job.wait()
    assert unexpected(log.read_text().removeprefix(before)) == []
    assert subprocess.run(command, env=ENVIRONMENT, timeout=JOB_SECONDS, check=False).returncode == 0
    assert sorted(topics.found()) == ["a", "b", "c"]


@pytest.mark.timeout(120)
def test_given_a_job_that_waits_for_a_broker_before_spark_starts_when_stopped_then_it_ends_at_once(
    tmp_path: Path,
) -> None:
    command = [
        sys.executable, "spark_jobs/copy_topic.py", "--bootstrap-servers", "127.0.0.1:1", "--topic", "a",
        "--output-topic", "b", "--checkpoint", str(tmp_path / "ck"), "--create-topics",
        "--sink-option", f"stateDir={tmp_path}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        assert job.stdout is not None
        assert any("the sink cannot start yet" in line for line in job.stdout)
        job.send_signal(signal.SIGTERM)
        rest = job.stdout.read()
        assert (job.wait(60), "Traceback" in rest) == (0, False), rest
