"""The service of a demo whose jobs follow one: its process, and what the jobs said of it."""

import json
import time
from pathlib import Path

from discovery.demo.processes import Child, ProcessError

_LISTENING_SECONDS = 60.0
_POLL_SECONDS = 0.05


class Sidecar:
    """`kafka-discovery serve` on ports of its own choice. The constructor does no I/O."""

    def __init__(self, folder: Path) -> None:
        """Keep state and log below this folder."""
        self._folder = folder / "service"
        self.child: Child | None = None
        self.url = ""
        self.pid = 0

    def start(self, bootstrap_servers: str) -> None:
        """Start it and wait until it listens.

        Raises:
            ProcessError: it ended, or does not listen in time.

        Runs: main thread; blocks a second or two.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        arguments = ["serve", "--bootstrap", bootstrap_servers, "--state-dir", str(self._folder / "state")]
        arguments += ["--port", "0", "--probe-port", "0", "--json"]
        log = self._folder / "service.log"
        self.child = Child("discovery.cli.app", arguments, name="service", log=log).start()
        deadline = time.monotonic() + _LISTENING_SECONDS
        while not (reported := _reported(log)):
            self.child.check()
            if time.monotonic() > deadline:
                raise ProcessError(f"the service did not listen within {_LISTENING_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)
        self.url, self.pid = str(reported["api"]), int(str(reported["pid"]))

    def close(self) -> None:
        """End it; safe to call twice."""
        if self.child is not None:
            self.child.stop(timeout_seconds=5.0)


def embedded_loop_starts(job_log: Path) -> int:
    """Return how often the jobs of a log began to look for themselves.

    Runs: anywhere; reads the log.
    """
    return job_log.read_text(errors="replace").count("embedded_loop_begins") if job_log.exists() else 0


def follows(job_log: Path) -> bool:
    """Tell whether a job showed the service's view at all.

    Runs: anywhere; reads the log.
    """
    text = job_log.read_text(errors="replace") if job_log.exists() else ""
    return any("view_shown" in line and "of=service" in line for line in text.splitlines())


def _reported(log: Path) -> dict[str, object]:
    """Return the line that says where it listens, once it is there."""
    for line in log.read_text(errors="replace").splitlines():
        if '"probes"' in line:
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict) and {"api", "pid"} <= found.keys():
                return found
    return {}
