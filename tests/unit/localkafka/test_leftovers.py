import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from discovery.localkafka.keeper.client import KeeperClient, end_keeper, socket_path_for, start_keeper
from discovery.localkafka.keeper.processes import identify
from tests.support.leftovers import MARK, end, running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows another process's environment")

ROOT = Path(__file__).parents[3]
CONFTEST = """
from tests.support import leftovers
leftovers.SETTLE_SECONDS = 0.3
def pytest_configure(config):
    config.pluginmanager.register(leftovers)
"""
FORGETFUL = """
from discovery.localkafka.keeper.client import KeeperClient, socket_path_for, start_keeper
KEPT = []
def test_forgets(tmp_path):
    path = socket_path_for(tmp_path)
    KEPT.append(start_keeper(tmp_path, path))
    print("keeper", KEPT[0].pid)
"""


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A real keeper without brokers, marked as another session's."""
    monkeypatch.setenv(MARK, "another session")
    path = socket_path_for(tmp_path)
    started = start_keeper(tmp_path, path)
    yield started
    end_keeper(KeeperClient(path), started)


def test_given_a_keeper_when_its_session_is_asked_for_then_it_is_listed_and_others_see_nothing(
    keeper: "subprocess.Popen[bytes]",
) -> None:
    found = running("another session")
    assert list(found) == [identify(keeper.pid)]
    assert "keeper.sock" in found[next(iter(found))]
    assert running("a third session") == {}


def test_given_a_leftover_when_ended_then_it_is_gone(keeper: "subprocess.Popen[bytes]") -> None:
    end(running("another session"))
    assert running("another session") == {}
    assert keeper.wait(5) != 0


def test_given_a_session_that_forgets_a_keeper_when_it_finishes_then_it_fails_and_names_it(tmp_path: Path) -> None:
    for name, text in (("conftest.py", CONFTEST), ("test_forgetful.py", FORGETFUL), ("pytest.ini", "[pytest]\n")):
        (tmp_path / name).write_text(text)
    seen = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    pid = re.search(r"keeper (\d+)", seen.stdout)
    assert pid, seen.stdout + seen.stderr
    assert seen.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"left behind by this session, now ended: process {pid.group(1)} " in seen.stdout
    assert identify(int(pid.group(1))) is None
