"""Runs a command that cannot outlive its starter: `python -I tied.py STARTER_PID COMMAND...`. Standard library only.

Linux ends it with the starter's thread (PR_SET_PDEATHSIG survives the exec); elsewhere it is only run.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def death_with_parent() -> Callable[[], None] | None:
    """Return what a child must call to be killed with the thread that started it; None where Linux is not."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(starter_pid: int, command: list[str]) -> None:
    """Become the command; end at once where the starter is gone already."""
    tie = death_with_parent()
    if tie:
        tie()
    if os.getppid() == starter_pid:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
