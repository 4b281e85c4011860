"""What the process that owns a local cluster does with its children."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from discovery.localkafka.keeper.process import Keeper
from tests.support.helpers import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows another process's threads")

THREADS = 16
BUSY = f"""
import hashlib, threading
def work():
    while True: hashlib.sha256(bytes(1_000_000))
for _ in range({THREADS - 1}): threading.Thread(target=work).start()
"""


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """A keeper with a child that has something to do."""
    one = Keeper(tmp_path, die_with_parent=None)
    one.spawn("busy", [sys.executable, "-c", BUSY], str(tmp_path / "log"))
    yield one
    one.kill_all()


def states(pid: int) -> set[str]:
    """The states of a process's threads, as the kernel writes them."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return {task.read_text().rpartition(")")[2].split()[0] for task in tasks}


def test_given_a_busy_child_when_it_is_stopped_then_every_thread_stands_still_and_goes_on_when_asked(
    keeper: Keeper,
) -> None:
    pid = keeper.children["busy"].pid
    eventually(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) == THREADS, 10, "work")
    for _ in range(50):
        keeper.signal(["busy"], signal.SIGSTOP)
        assert states(pid) == {"T"}
        assert keeper.paused == {"busy"}
        keeper.signal(["busy"], signal.SIGCONT)
        assert states(pid) != {"T"}
        assert not keeper.paused


def test_given_a_child_that_ends_as_it_is_stopped_when_asked_then_its_end_is_known_and_the_others_are_paused(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.spawn("doomed", ["sleep", "60"], str(tmp_path / "log"))
    doomed = keeper.children["doomed"]

    def end(_: int) -> None:
        doomed.kill()
        doomed.wait()

    monkeypatch.setattr(doomed, "send_signal", end)
    monkeypatch.setattr(doomed, "kill", lambda: os.kill(doomed.pid, signal.SIGKILL))
    seen = keeper.signal(["doomed", "busy"], signal.SIGSTOP)["processes"]
    assert seen["doomed"]["exit_code"] == -signal.SIGKILL
    assert "busy" in keeper.paused
    assert states(keeper.children["busy"].pid) == {"T"}
