"""A pytest plugin: a session that leaves a keeper or a broker behind fails, names them, and ends them.

Whatever a session starts, however indirectly, inherits a mark in its environment; that is how its processes are
apart from those of other sessions and of the user. Linux only: elsewhere nobody can read another process's environment.
"""

import os
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from discovery.localkafka.keeper.processes import ProcessIdentity, identify, is_running, send_signal

MARK = "KAFKA_DISCOVERY_TEST_SESSION"
SETTLE_SECONDS = 15.0
"""A keeper whose starter is gone needs up to some seconds to end its brokers."""

_MAINS = {
    b"discovery.localkafka.keeper.process",
    b"kafka.Kafka",
    b"kafka.tools.StorageTool",
    b"org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}
_LEFT = pytest.StashKey[Mapping[ProcessIdentity, str]]()


def pytest_configure() -> None:
    """Mark this session."""
    os.environ[MARK] = uuid.uuid4().hex


@pytest.hookimpl(trylast=True)  # after the session's fixtures
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session where something it started still runs."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (left := running(os.environ[MARK])) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        session.config.stash[_LEFT] = left
        end(left)
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what was left."""
    for identity, what in config.stash.get(_LEFT, {}).items():
        line = f"FAILED: left behind by this session, now ended: process {identity.pid} ({identity.started}) {what}"
        terminalreporter.write_line(line, red=True)


def running(mark: str) -> dict[ProcessIdentity, str]:
    """Return the keepers and JVMs of local clusters that carry a session's mark, with what they are."""
    found: dict[ProcessIdentity, str] = {}
    for pid, arguments in carrying(mark):
        if _MAINS.intersection(arguments) and (identity := identify(pid)):
            found[identity] = b" ".join(arguments[-4:]).decode(errors="replace").strip()
    return found


def carrying(mark: str) -> Iterator[tuple[int, list[bytes]]]:
    """Yield all processes that carry a mark, whoever their parent is now, and how each was started."""
    wanted = f"{MARK}={mark}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name), arguments
        except OSError:
            continue  # it ended while we looked, or is another user's


def end(left: Mapping[ProcessIdentity, str]) -> None:
    """End exactly these processes: keepers may tidy up first."""
    for number, patience_seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        for identity in left:
            send_signal(identity, number)
        deadline = time.monotonic() + patience_seconds
        while any(map(is_running, left)) and time.monotonic() < deadline:
            time.sleep(0.05)
