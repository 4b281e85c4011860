"""A service as a process of its own, as operators run it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.helpers import eventually
from tests.support.ports import service_ports

_STARTING_SECONDS = 60.0
_STARTING = ("the service is starting", "the loop was not started yet", "the loop has shown nothing yet")
_MAIN = "from discovery.cli.app import main; main()"


class ServiceProcess:
    """`kafka-discovery serve` with free ports; ends with the block, however it ends."""

    def __init__(
        self,
        *arguments: str,
        log: Path,
        program: Sequence[str] = ("-c", _MAIN, "serve"),
        token: str = "",
    ) -> None:
        self.log = log
        self.login = {"Authorization": f"Bearer {token}"} if token else {}
        self._command = [sys.executable, *program, *arguments]
        self.api = self.probes = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Start and wait until both listeners answer."""
        with self.log.open("a") as errors:
            self.process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.PIPE,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(30)
        assert line, f"the service did not start: {self.log.read_text()[-2000:]}"
        seen = json.loads(line)
        self.api, self.probes = seen["api"], seen["probes"]
        return self

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process is not None
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def say(self, line: str) -> None:
        """Write a line to its standard input and wait for the answer."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == "done"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """End it; return its exit code and the seconds it took."""
        assert self.process is not None
        began = time.monotonic()
        self.send(number)
        return self.process.wait(30), time.monotonic() - began

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask the API; a service whose loops are only being started is asked again."""
        until = time.monotonic() + _STARTING_SECONDS
        while True:
            answer = httpx.get(self.api + path, headers={**self.login, **headers}, timeout=30, trust_env=False)
            starting = answer.status_code == 503 and any(words in answer.text for words in _STARTING)
            if not starting or time.monotonic() > until:
                return answer
            time.sleep(0.05)

    def probe(self, path: str) -> httpx.Response:
        """Ask the probe listener."""
        return httpx.get(self.probes + path, timeout=30, trust_env=False)

    def json(self, path: str) -> Any:
        """Ask the API for JSON."""
        return self.get(path).json()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.end()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """End it by force where it still runs, and release its pipes."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
                self.process.kill()
            self.process.wait(30)
            for stream in (self.process.stdout, self.process.stdin):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


def serve_arguments(bootstrap: str, state_dir: Path, *more: str) -> tuple[str, ...]:
    """Return the arguments of a service on free ports."""
    return ("--bootstrap", bootstrap, "--state-dir", str(state_dir), *service_ports(), "--json", *more)


@contextlib.contextmanager
def serving(bootstrap: str, folder: Path, *more: str) -> Iterator[ServiceProcess]:
    """Run a service on a bootstrap list; its log may not hold a report of a bug."""
    with ServiceProcess(*serve_arguments(bootstrap, folder / "state", *more), log=folder / "service.log") as service:
        yield service
    written = service.log.read_text()
    assert "BUG in" not in written, written[-4000:]


def wait_for(service: ServiceProcess, path: str, status: int, deadline_seconds: float = 30) -> None:
    """Wait until a probe answers with this status."""
    eventually(lambda: service.probe(path).status_code == status, deadline_seconds, f"{path} with {status}")
