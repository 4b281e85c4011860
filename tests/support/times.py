"""A pytest plugin that keeps how long each test took: `build/test-times.json`, for whoever makes `make test` faster.

By test: seconds of its set-up (with clusters and sessions that it was the first to ask for), of the test, and of what
comes after. Suites run side by side, so the file is merged under a lock. `python -m tests.support.times` shows it.
"""

import fcntl
import json
from collections import defaultdict
from pathlib import Path

import pytest

FILE = Path("build/test-times.json")
PHASES = ("setup", "call", "teardown")
Times = dict[str, list[float]]
_SEEN = defaultdict[str, list[float]](lambda: [0.0] * len(PHASES))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note one phase of a test."""
    _SEEN[report.nodeid][PHASES.index(report.when)] = round(report.duration, 2)


def pytest_sessionfinish() -> None:
    """Add this session's times to those of others."""
    FILE.parent.mkdir(exist_ok=True)
    with FILE.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        times = read(file.read())
        file.truncate(0)
        json.dump(dict(sorted({**times, **_SEEN}.items())), file, indent=0)


def read(text: str) -> Times:
    """Read what was kept, without modules that are gone; nothing, where a session was killed while it wrote."""
    try:
        kept: Times = json.loads(text)
    except ValueError:
        return {}
    return {test: times for test, times in kept.items() if Path(test.partition("::")[0]).exists()}


def by_module(times: Times) -> Times:
    """Add up the tests of each module, the dearest first."""
    sums = defaultdict[str, list[float]](lambda: [0.0] * len(PHASES))
    for test, spent in times.items():
        module = test.partition("::")[0]
        sums[module] = [round(a + b, 2) for a, b in zip(sums[module], spent, strict=True)]
    return dict(sorted(sums.items(), key=lambda item: -sum(item[1])))


def main() -> None:
    """Print the dearest modules and tests."""
    times = read(FILE.read_text(encoding="utf-8"))
    dearest = dict(sorted(times.items(), key=lambda item: -sum(item[1])))
    for title, rows in (("module", by_module(times)), ("test", dearest)):
        print(f"{'setup':>8}{'call':>8}{'after':>8}  {title}")  # noqa: T201 - the program's output
        for name, spent in list(rows.items())[:40]:
            print("".join(f"{seconds:8.1f}" for seconds in spent) + f"  {name}")  # noqa: T201


if __name__ == "__main__":
    main()
