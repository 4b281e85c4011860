"""Fixtures of every test, and the checks: a test leaves no thread behind, a session no keeper and no broker, and none
is skipped that could run."""

import logging
import os
import signal
import threading
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from discovery.config.logs import bound
from discovery.core.errors import BUG_PHRASE
from discovery.loop.supervisor import THREAD_NAME as LOOP_THREAD
from tests.support import leftovers, skips, times
from tests.support.helpers import eventually
from tests.support.kafka_fixtures import kafka_cluster, kafka_factory, topic_name

# No test has a deadline: a full machine is no defect. `make test-long` asks for the second profile.
settings.register_profile("quick", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("exhaustive", max_examples=5_000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

__all__ = ["kafka_cluster", "kafka_factory", "topic_name"]


def pytest_configure(config: pytest.Config) -> None:
    """Watch what this session skips, how long it takes, and which processes it leaves behind."""
    for plugin in (leftovers, skips, times):
        config.pluginmanager.register(plugin)
    # A shell starts background jobs with SIGINT ignored, and what tests start and interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a non-daemon thread or a loop; `leftovers` looks for processes when the session ends."""
    before = set(threading.enumerate())
    yield
    eventually(lambda: not _strangers(before), 5, f"the end of threads left behind ({_strangers(before)})")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Undo what a command, or a loop on this thread, did to the logs of this process: later tests read them."""
    loggers = [logging.getLogger(name) for name in ("discovery", "kafka_discovery")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    with bound():
        yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def _strangers(before: set[threading.Thread]) -> list[threading.Thread]:
    return [
        t for t in threading.enumerate() if t.is_alive() and t not in before and (not t.daemon or t.name == LOOP_THREAD)
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test in whose output, or Spark's, the phrase for unexpected errors stands."""
    report = yield
    if report.passed and BUG_PHRASE in report.capstderr + report.caplog and "expects_bug" not in item.keywords:
        report.outcome = "failed"
        report.longrepr = f"the output holds {BUG_PHRASE!r}:\n{report.capstderr[-4000:]}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seed of the random order where it is needed: below the failures."""
    if terminalreporter.stats.get("failed"):
        seed = config.getoption("randomly_seed", None)
        terminalreporter.write_line(f"random order: repeat it with --randomly-seed={seed}")
