"""Runs a module or a file as a main program that cannot outlive its parent: `-m discovery.demo.tether MODULE|FILE ...`.

The parent holds the other end of our stdin. When it is gone, however it went, the pipe closes: we get SIGTERM, and
SIGKILL if that was not enough. Works wherever Python does, without process groups or a watchdog.
"""

import os
import runpy
import signal
import sys
import threading
import time

_GRACE_SECONDS = 20.0


def main() -> None:
    """Watch stdin on a daemon thread and become the module."""
    threading.Thread(target=_end_with_parent, name="tether", daemon=True).start()
    sys.argv = sys.argv[1:]
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
