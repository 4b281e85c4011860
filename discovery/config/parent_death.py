"""Ends a process with its parent, however the parent ended. Standard library only.

There are two means, for neither does for all:

- `python -m discovery.config.parent_death MODULE|FILE ARGUMENT...` runs Python as a main program. The parent holds the
  other end of our stdin; when it is gone the pipe closes: we get SIGTERM, and SIGKILL if that was not enough. Works
  wherever Python does, and leaves time to end in order.
- `python -I parent_death.py PARENT_PID COMMAND...` becomes any other program, a JVM, which watches no pipe. Linux kills
  it with the parent's thread (PR_SET_PDEATHSIG survives the exec); elsewhere it is only run.
"""

import ctypes
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 20.0


def death_with_parent() -> Callable[[], None] | None:
    """Return what a child must call to be killed with the thread that started it; None where Linux is not."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run_python(module: str, arguments: list[str]) -> None:
    """Watch stdin on a daemon thread and become the module, or the file."""
    threading.Thread(target=_end_with_pipe, name="parent-death", daemon=True).start()
    sys.argv = [module, *arguments]
    if module.endswith(".py"):
        runpy.run_path(module, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def become(parent_pid: int, command: list[str]) -> None:
    """Become the command; end at once where the parent is gone already."""
    tie = death_with_parent()
    if tie:
        tie()
    if os.getppid() == parent_pid:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted


def _end_with_pipe() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    first, *rest = sys.argv[1:]
    if first.isdecimal():
        become(int(first), rest)
    else:
        run_python(first, rest)
