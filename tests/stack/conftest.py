"""Keeps what a run of a whole stack came to in build/tried; copies that are committed lie in deploy/tried."""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.results import commit

_SEEN = defaultdict[str, dict[str, dict[str, object]]](dict)
_NOTED = defaultdict[str, dict[str, object]](dict)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended, how long it took, and what it recorded: a skip, or a failure around it, counts too."""
    path, _, test = report.nodeid.partition("::")
    if path.startswith("tests/stack/") and (report.when == "call" or report.outcome != "passed"):
        stack = Path(path).stem.removeprefix("test_")
        _SEEN[stack][test] = {"outcome": report.outcome, "seconds": round(report.duration)}
        _NOTED[stack].update(report.user_properties)


def pytest_sessionfinish() -> None:
    """Write a file for each module."""
    for stack, tests in _SEEN.items():
        file = Path("build/tried", f"{stack}.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        seen = {
            "commit": commit(), "cores": os.cpu_count(), **_NOTED[stack], "tests": dict(sorted(tests.items()))
        }  # fmt: skip
        file.write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")
