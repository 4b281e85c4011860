"""The jobs as users run them, killed at the worst moments: `make kill-job`."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from discovery.spark.sink import hooks
from tests.support.helpers import eventually
from tests.support.spark.jobs import JOB_SECONDS, NOW, Topics, topics, visit

__all__ = ["topics"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A job, what it is given, and what must be in its target, each record once."""

    more: Sequence[str] = ()
    given: Sequence[str]
    expected: Mapping[object, int]
    value: Callable[[str], object]
    """What counts of a record."""
    driver_point: str
    """Where the driver dies: a worker has committed, and Spark does not know."""


def event(number: int) -> str:
    said = {"event_id": str(number), "user_id": f"user {number % 2}", "ip": "10.0.0.1", "ts": NOW.isoformat()}
    return json.dumps(said)


def total(record: str) -> object:
    found = json.loads(record)
    return found.get("ip", found.get("user_id")), found.get("visits", found.get("events"))


JOBS = {
    "copy_topic": Killed(
        given=["a", "b", "c"],
        expected={"a": 1, "b": 1, "c": 1},
        value=str,
        driver_point="step6.after@0",
    ),
    "ip_visits": Killed(
        given=[visit("10.0.0.1")] * 3 + [visit("10.0.0.2")] * 2,
        expected={("10.0.0.1", 3): 1, ("10.0.0.2", 2): 1},
        value=total,
        driver_point="commit.after",
    ),
    "dau": Killed(
        more=("--output", "kafka"),
        given=[event(number) for number in range(5)],
        expected={("user 0", 3): 1, ("user 1", 2): 1},
        value=total,
        driver_point="commit.after",
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", JOBS)
def test_given_a_worker_and_the_driver_killed_around_the_commit_when_started_again_then_the_target_is_exact(
    topics: Topics, name: str
) -> None:
    job, armed = JOBS[name], topics.folder / "hooks"
    armed.mkdir()
    (armed / "step6.sent@0").write_text("kill")  # a worker, with an open transaction
    (armed / job.driver_point).write_text("hold")  # the driver, between the commit and Spark's own record of it
    topics.put(*job.given)
    command = [sys.executable, f"spark_jobs/{name}.py", *topics.arguments(*job.more)]
    log = topics.folder / "job.log"
    kill_where_held(command, armed, job.driver_point, log)
    assert not (armed / "step6.sent@0").exists(), "no worker was killed"
    assert batches(topics, "commits") < batches(topics, "offsets"), "Spark knew of the commit"
    with log.open("ab") as output:
        again = subprocess.run(command, stdout=output, stderr=output, timeout=JOB_SECONDS, check=False)
    assert again.returncode == 0, said(log)
    assert Counter(map(job.value, topics.found())) == job.expected


def batches(topics: Topics, log: str) -> int:
    """Return the last batch in one of Spark's logs; -1 where it has none."""
    return max((int(file.name) for file in (topics.checkpoint / log).glob("[0-9]*")), default=-1)


def kill_where_held(command: Sequence[str], armed: Path, point: str, log: Path) -> None:
    """Run the job until something in it is held, then kill all of it."""
    with log.open("ab") as output:
        killed = subprocess.Popen(
            command, env={**os.environ, hooks.VARIABLE: str(armed)}, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        reached = lambda: killed.poll() is not None or list(armed.glob(f"{point}.held.*"))  # noqa: E731
        eventually(reached, JOB_SECONDS, "the end of the first batch")
        assert killed.poll() is None, said(log)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(60)
        for held in armed.glob("*.held.*"):
            held.unlink()


def said(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]
