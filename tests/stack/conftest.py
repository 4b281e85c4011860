"""Keeps what a run of a whole stack came to in build/tried; copies that are committed lie in deploy/tried."""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.results import commit

_SEEN = defaultdict[str, dict[str, dict[str, object]]](dict)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended, and how long it took: a skip, or an end before or after the test itself, counts too."""
    path, _, test = report.nodeid.partition("::")
    if path.startswith("tests/stack/") and (report.when == "call" or report.outcome != "passed"):
        _SEEN[Path(path).stem.removeprefix("test_")][test] = {
            "outcome": report.outcome, "seconds": round(report.duration)
        }  # fmt: skip


def pytest_sessionfinish() -> None:
    """Write a file for each module."""
    for stack, tests in _SEEN.items():
        file = Path("build/tried", f"{stack}.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        seen = {"commit": commit(), "cores": os.cpu_count(), "tests": dict(sorted(tests.items()))}
        file.write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")
