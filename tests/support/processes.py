"""How a process that a benchmark started ends. Imports nothing, so that a load generator may use it."""

import subprocess
from typing import Any


def wait_or_kill(process: "subprocess.Popen[Any]", seconds: float) -> None:
    """Wait until a process that was asked to end did; kill it after these seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
