"""Fixtures of every test, and the checks: a test leaves no thread behind, a session no keeper and no broker."""

import threading
from collections.abc import Iterator

import pytest

from tests import leftovers
from tests.kafka_fixtures import kafka_cluster, kafka_factory, topic_name
from tests.support import eventually

__all__ = ["kafka_cluster", "kafka_factory", "topic_name"]


def pytest_configure(config: pytest.Config) -> None:
    """Watch for processes that this session leaves behind."""
    config.pluginmanager.register(leftovers)


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a non-daemon thread; `leftovers` looks for processes when the session ends."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: not _strangers(before), 5, f"the end of threads left behind ({_strangers(before)})")


def _strangers(before: set[threading.Thread]) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.is_alive() and not t.daemon and t not in before]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seed of the random order where it is needed: below the failures."""
    if terminalreporter.stats.get("failed"):
        seed = config.getoption("randomly_seed", None)
        terminalreporter.write_line(f"random order: repeat it with --randomly-seed={seed}")
