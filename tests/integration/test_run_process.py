"""`kafka-discovery run` around small programs, with no Kafka anywhere: what is restarted, what is not, how it ends."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.helpers import eventually

_MAIN = "from discovery.cli.app import main; main()"
_SECONDS = 90.0
COUNTING = """
import pathlib, sys, time
runs = pathlib.Path({folder!r}) / "runs"
number = len(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text("x" * number)
{body}
"""


def command(folder: Path, body: str, *options: str, arguments: tuple[str, ...] = ()) -> list[str]:
    script = folder / "job.py"
    script.write_text(COUNTING.format(folder=str(folder), body=body))
    fixed = ["--state-dir", str(folder / "state"), "--report", str(folder / "report.json"), "--delay", "0.01"]
    return [sys.executable, "-c", _MAIN, "run", *fixed, *options, "--", sys.executable, str(script), *arguments]


def finished(
    folder: Path, body: str, *options: str, arguments: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any], str]:
    line = command(folder, body, *options, arguments=arguments)
    done = subprocess.run(line, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert "BUG in" not in done.stderr
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return done.returncode, report, done.stderr


def started(folder: Path) -> int:
    return len((folder / "runs").read_text()) if (folder / "runs").exists() else 0


def test_given_a_job_that_met_a_dead_list_when_it_is_started_again_then_it_finishes(tmp_path: Path) -> None:
    body = 'if number < 3: sys.exit("TimeoutException: Timed out waiting for a node assignment. Call: describeTopics")'
    code, report, said = finished(tmp_path, body)
    assert (code, report["outcome"], report["runs"], report["failures"]) == (0, "finished", 3, 2), said
    assert "dead list: TimeoutException" in said


@pytest.mark.parametrize(
    ("last_words", "expected"),
    [
        ("SaslAuthenticationException: Authentication failed", 5),
        ("ZeroDivisionError: division by zero", 1),
    ],
)
def test_given_a_failure_that_a_restart_cannot_help_when_it_comes_then_there_is_none(
    tmp_path: Path, last_words: str, expected: int
) -> None:
    code, report, _ = finished(tmp_path, f"sys.exit({last_words!r})")
    assert (code, report["outcome"], started(tmp_path)) == (expected, "failed for good", 1)


def test_given_a_job_that_always_dies_of_its_list_when_the_budget_is_spent_then_it_ends_with_three(
    tmp_path: Path,
) -> None:
    body = 'sys.exit("No resolvable bootstrap urls given in bootstrap.servers")'
    code, report, said = finished(tmp_path, body, "--restart", "fixed", "--restarts", "2")
    assert (code, report["outcome"], started(tmp_path)) == (3, "out of restarts", 3), said
    assert "the budget of 2 restarts is used up" in said


def test_given_a_list_on_which_nobody_lives_when_started_then_the_job_is_spared_the_attempt(tmp_path: Path) -> None:
    options = ("--restart", "fixed", "--restarts", "1", "--vet-timeout", "2")
    arguments = ("--bootstrap-servers", "127.0.0.1:1")
    code, report, said = finished(tmp_path, "", *options, arguments=arguments)
    assert (code, report["runs"], started(tmp_path)) == (3, 2, 0), said
    assert "127.0.0.1:1: refused" in said


def test_given_a_running_job_when_run_is_asked_to_end_then_the_job_hears_it_and_nothing_is_left(tmp_path: Path) -> None:
    line = command(tmp_path, "time.sleep(600)")
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        eventually(lambda: started(tmp_path), 60, "the job's start")
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM
    assert json.loads((tmp_path / "report.json").read_text())["outcome"] == "stopped"


def test_given_run_still_waits_for_a_broker_when_it_is_asked_to_end_then_it_does_so_at_once(tmp_path: Path) -> None:
    line = command(tmp_path, "", "--vet-timeout", "600", "--verbose", arguments=("--brokers", "127.0.0.1:1"))
    with subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert any("refused" in said for said in running.stderr)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
    assert (running.returncode, started(tmp_path)) == (128 + signal.SIGTERM, 0)


def test_given_no_such_program_when_run_then_one_line_says_so(tmp_path: Path) -> None:
    line = [sys.executable, "-c", _MAIN, "run", "--state-dir", str(tmp_path), "--", "no-such-program"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "no-such-program: cannot be run: No such file" in done.stderr
