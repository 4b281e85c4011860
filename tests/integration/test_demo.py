"""The demo itself, small and short, as a user of README.md runs it: what it reports, and what it leaves behind."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from discovery.store.files import FileLock
from tests.support.demo import COMMAND, DEMO_SECONDS, assert_survived, run
from tests.support.helpers import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1500)]

CLEANUP_SECONDS = 60.0


@contextmanager
def running(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A demo in the background whose every process can be recognised by its temporary folder."""
    temporary, output = folder / "t", folder / "out.log"
    temporary.mkdir()
    with output.open("w") as out:
        demo = subprocess.Popen(
            [*COMMAND, "--output-dir", str(folder / "report"), *options],
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        try:
            yield demo, output
        finally:
            demo.terminate()
            try:
                demo.wait(CLEANUP_SECONDS)
            finally:
                demo.kill()
                demo.wait()


def wait_said(demo: subprocess.Popen[str], output: Path, text: str) -> None:
    """Wait until the demo has said it; fail with all that it said when it ends before."""
    eventually(lambda: text in output.read_text() or demo.poll() is not None, DEMO_SECONDS, text)
    assert text in output.read_text(), output.read_text()


def processes_of(folder: Path) -> list[str]:
    """Command lines that mention the folder; a process that ends while we look is none."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in line:
                found.append(line[:200])
    return found


def test_given_the_fast_demo_when_played_then_nothing_is_lost_or_doubled_and_all_is_measured(tmp_path: Path) -> None:
    assert_survived(tmp_path, run("--fast", "--output-dir", str(tmp_path)))


def test_given_a_demo_when_interrupted_then_it_ends_all_its_processes_and_files(tmp_path: Path) -> None:
    with running(tmp_path, "--fast") as (demo, output):
        wait_said(demo, output, "brokers are up")
        assert processes_of(tmp_path / "t")
        demo.send_signal(signal.SIGINT)
        assert demo.wait(CLEANUP_SECONDS) == 130
    assert "interrupted" in output.read_text()
    assert "Traceback" not in output.read_text()
    assert processes_of(tmp_path / "t") == []
    assert not any(re.match("kafka-discovery-(demo-)?[^p]", left.name) for left in (tmp_path / "t").iterdir())


@pytest.mark.long
def test_given_a_demo_when_killed_then_nothing_outlives_it(tmp_path: Path) -> None:
    with running(tmp_path, "--fast") as (demo, output):
        wait_said(demo, output, "The job runs")
        demo.kill()
        demo.wait()
        eventually(lambda: not processes_of(tmp_path / "t"), CLEANUP_SECONDS, "the end of all its processes")


@pytest.mark.long
def test_given_two_demos_with_reports_of_their_own_when_started_together_then_both_play(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    with ExitStack() as stack:
        demos = []
        for folder in folders:
            folder.mkdir()
            demos.append(stack.enter_context(running(folder, "--fast")))
        for demo, output in demos:
            wait_said(demo, output, "The job runs")
        for demo, _output in demos:
            demo.send_signal(signal.SIGINT)
        assert [demo.wait(CLEANUP_SECONDS) for demo, _output in demos] == [130, 130]
    assert [processes_of(folder / "t") for folder in folders] == [[], []]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--brokers", "4"], "--brokers 4: "),
        (["--brokers", "300"], "choose a multiple of 3 in 6..48"),
        (["--output-dir", "/dev/null/report"], "choose another --output-dir"),
    ],
)
def test_given_a_mistake_when_started_then_one_line_says_it(options: list[str], said: str) -> None:
    refused = run(*options)
    assert refused.returncode in {1, 2}
    assert said in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_given_a_home_that_cannot_be_written_when_started_then_one_line_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    refused = subprocess.run(
        [*COMMAND, "--fast", "--output-dir", str(tmp_path / "report")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**kept, "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)},
    )
    assert refused.returncode == 1
    (line,) = refused.stderr.strip().splitlines()
    assert f"cannot write the jars to {tmp_path}/home/.cache/kafka-discovery/jars" in line
    assert line.endswith("set XDG_CACHE_HOME to a folder you may write")


def test_given_another_demo_with_the_same_report_when_started_then_one_line_names_it(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / ".lock").acquire()
    try:
        refused = run("--fast", "--output-dir", str(tmp_path))
    finally:
        lock.release()
    assert refused.returncode == 1
    assert f"another demo is writing its report: {tmp_path}/.lock is held by process {os.getpid()}" in refused.stderr
    assert "choose another --output-dir" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("version", "said"),
    [("", "Java is missing"), ("11.0.22", "is too old: Kafka and Spark need Java 17")],
    ids=["none", "11"],
)
def test_given_no_java_or_an_old_one_when_started_then_one_line_says_so(
    tmp_path: Path, version: str, said: str
) -> None:
    if version:
        (tmp_path / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
        (tmp_path / "java").chmod(0o755)
    refused = subprocess.run(
        [*COMMAND, "--output-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": f"{tmp_path}:/bin" if version else str(tmp_path), "HOME": os.environ["HOME"]},
    )
    assert refused.returncode == 2
    assert said in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
