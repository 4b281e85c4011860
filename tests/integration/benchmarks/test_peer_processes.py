"""Processes that the bench of peers starts: one that ends at once, one that does not end when asked."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers.program import Place, helper
from tests.support.processes import wait_or_kill


def test_given_a_helper_that_ends_at_once_when_started_then_its_last_words_are_reported(tmp_path: Path) -> None:
    place = Place(folder=tmp_path, topic="t")
    with (
        pytest.raises(AssertionError, match=r"endpoint ended: (.|\n)*--port"),
        helper(place, "endpoint", "endpoint", "--port", "no"),
    ):
        pass


def test_given_a_process_that_does_not_end_when_asked_then_it_is_killed() -> None:
    deaf = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    wait_or_kill(deaf, 0.1)
    assert deaf.returncode == -9
