"""The short version of `make soak-source`, in a process of its own: it needs a Spark that nobody else uses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 45
ROOT = Path(__file__).parents[2]


@pytest.mark.kafka
@pytest.mark.spark
def test_given_leaders_that_move_all_the_time_when_a_query_reads_on_then_its_processes_do_not_grow(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", str(SECONDS)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    seen = json.loads((tmp_path / "build/bench/soak.json").read_text())
    assert seen["alive"]
    assert seen["leader_moves"] >= 2
    assert seen["peak"]["runner_mib"] > 0
    assert seen["peak"]["worker_mib"] > 0
    growth = seen["growth"]
    assert growth["runner_threads"] < 15, seen
    assert growth["worker_threads"] < 15, seen
    assert growth["runner_files"] < 25, seen
    assert growth["worker_files"] < 25, seen
    assert growth["runner_mib"] < 25, seen
    assert growth["worker_mib"] < 60, seen
