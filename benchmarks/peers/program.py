"""One system as a process of its own, seen from outside: its rows, what it said, how often it started again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from benchmarks.peers.load import Load
from benchmarks.peers.rows import Row, parse_rows
from discovery.spark.launch.python import worker_python
from tests.support.helpers import eventually
from tests.support.processes import wait_or_kill

_START_SECONDS, _HELPER_SECONDS = 120.0, 60.0
_LEVEL_AGE_SECONDS = 3.0
_MAIN = "from discovery.cli.app import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a system runs, and what it reads."""

    folder: Path
    topic: str
    prefix: tuple[str, ...] = ()
    """Put before every command: another view of the names."""

    @property
    def rows(self) -> Path:
        """Where it appends rows."""
        return self.folder / "rows"


@dataclass(slots=True)
class Program:
    """A process and its events. An event is a line `milliseconds word rest` on its standard output."""

    place: Place
    name: str
    process: "subprocess.Popen[bytes] | None" = None
    extra: list[str] = field(default_factory=list)

    @property
    def said(self) -> Path:
        """Its standard output."""
        return self.place.folder / f"{self.name}.out"

    @property
    def log(self) -> Path:
        """Its standard error."""
        return self.place.folder / f"{self.name}.log"

    def start(self, command: Sequence[str]) -> None:
        """Start it; returns at once."""
        self.place.rows.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYSPARK_PYTHON": worker_python(), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as after an installation: nothing is compiled twice
        with self.said.open("ab") as out, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.place.prefix, *command], stdin=subprocess.PIPE, stdout=out, stderr=log,
                env=environment, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill -9 it with its children; a second call does nothing."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            if self.process.stdin:
                self.process.stdin.close()
            self.process = None

    def events(self, word: str) -> list[tuple[float, str]]:
        """Return when it said this word, and what followed."""
        lines = self.said.read_text(errors="replace").splitlines() if self.said.exists() else []
        found = [line.split(" ", 2) for line in lines]
        return [
            (int(f[0]) / 1000, f[2] if len(f) > 2 else "")  # noqa: PLR2004
            for f in found
            if len(f) > 1 and f[0].isdigit() and f[1] == word
        ]

    def wait_start(self, number: int) -> float:
        """Wait until it has started its query or job for the `number`th time; return when."""
        eventually(lambda: len(self.events("start")) >= number, _START_SECONDS, f"the start of {self.name}")
        return self.events("start")[number - 1][0]

    def arrived(self) -> list[Row]:
        """Return all rows of all its runs so far."""
        rows: list[Row] = []
        for path in sorted(self.place.rows.glob("rows-*")):
            with path.open() as lines:
                rows += parse_rows(lines)
        return rows


@contextlib.contextmanager
def helper(place: Place, name: str, *arguments: str) -> Iterator[dict[str, str]]:
    """Run `kafka-discovery ARGUMENTS --json` beside a system; yields the first line it prints.

    Raises:
        AssertionError: it printed none in a minute, or ended.
    """
    command = [*place.prefix, sys.executable, "-c", _MAIN, *arguments, "--json"]
    said, log = place.folder / f"{name}.out", place.folder / f"{name}.log"
    with said.open("wb") as out, log.open("ab") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
    try:
        ended_or_said = lambda: process.poll() is not None or b"\n" in said.read_bytes()  # noqa: E731
        eventually(ended_or_said, _HELPER_SECONDS, f"the first line of {name}")
        if process.poll() is not None:
            raise AssertionError(f"{name} ended: {log.read_text()[-2000:]}")
        yield dict(json.loads(said.read_text().partition("\n")[0]))
    finally:
        process.terminate()
        wait_or_kill(process, 20)


class System(ABC):
    """What is compared. Made for one cell; `start` may be called again after `kill`."""

    name = ""

    def __init__(self, place: Place) -> None:
        """Remember the place; does no I/O."""
        self.place = place
        self.program = Program(place=place, name="job")
        self.stack = contextlib.ExitStack()
        self.starts = 0

    def start(self, servers: str) -> None:
        """Start with this list; returns when the query or job is being started."""
        self.starts += 1
        before = len(self.program.events("start"))
        self.program.start(self.command(servers))
        self.since = self.program.wait_start(before + 1)

    @abstractmethod
    def command(self, servers: str) -> list[str]:
        """Return what to run."""

    @abstractmethod
    def restarts(self, since: float) -> int:
        """Count how often it started again by itself."""

    @abstractmethod
    def reported(self, since: float) -> str:
        """Return what was reported to a user: the first line of the last failure, or the source's sentence."""

    def kill(self) -> None:
        """End the job, not what runs beside it."""
        self.program.kill()

    def __enter__(self) -> Self:
        """Make the folder."""
        self.place.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self.kill()
        self.stack.close()


def wait_rows(system: System, partitions: int, seconds: float) -> None:
    """Wait until rows of so many partitions have come."""

    def come() -> bool:
        return len({row.partition for row in system.program.arrived()}) >= partitions

    eventually(come, seconds, f"rows of {partitions} partitions from {system.name}")


def wait_level(system: System, load: Load, seconds: float) -> None:
    """Wait until it has read all that was acknowledged three seconds ago; a busy machine may never come there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = now() - _LEVEL_AGE_SECONDS
        old = {row.key for row in load.acknowledged() if row.at < before}
        if not old - {row.key for row in system.program.arrived()}:
            return
        time.sleep(1.0)


def now() -> float:
    """Return seconds since the epoch: rows of all processes are stamped so."""
    return time.time()
