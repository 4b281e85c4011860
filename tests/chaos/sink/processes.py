"""Task attempts and commits of a sink as processes of their own, which can be killed, stopped and go on as zombies.

A fork server imports everything once, so that an attempt costs a fork and not an interpreter's start.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from discovery.spark.sink import hooks
from discovery.spark.sink.lanes import Attempt
from discovery.spark.sink.ledger import SinkLedger
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.writer import LaneReport, LaneWriter, confirm
from tests.chaos.sink.mutants import MUTANTS
from tests.support.sink import batches

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.chaos.sink.processes"])
_CHILD_POLL_SECONDS = 0.02
_COMMIT_SECONDS = 30.0


class Child:
    """One process and what it said at its end; `end` kills it."""

    def __init__(self, act: Any, folder: Path, mutant: str, *arguments: Any) -> None:
        ours, theirs = _CONTEXT.Pipe(duplex=False)
        self._ours = ours
        self._process = _CONTEXT.Process(target=_run, args=(theirs, act, str(folder), mutant, *arguments), daemon=True)
        self._process.start()
        theirs.close()
        self._answer: Any = None

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def over(self) -> bool:
        """Tell whether it answered or died."""
        if self._answer is None and self._ours.poll():
            with contextlib.suppress(EOFError):
                self._answer = self._ours.recv()
        return self._answer is not None or not self._process.is_alive()

    def answer(self) -> Any:
        """Return what it said, an exception for one it raised, None where it died without a word."""
        return self._answer

    def stopped(self) -> bool:
        """Tell whether a SIGSTOP holds it."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def resume(self) -> None:
        """Let a stopped one go on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def end(self, *, patience_seconds: float = 0.0) -> None:
        """Wait for the end for so long, then kill."""
        deadline = time.monotonic() + patience_seconds
        while not self.over() and time.monotonic() < deadline:
            time.sleep(_CHILD_POLL_SECONDS)
        self._process.kill()
        self._process.join(10)
        self._ours.close()


def start_attempt(plan: SinkPlan, attempt: Attempt, values: Sequence[str], folder: Path, mutant: str = "") -> Child:
    """Begin one task attempt of our writer, or of a broken one."""
    return Child(_attempt, folder, mutant, plan, attempt, list(values))


def start_confirm(plan: SinkPlan, reports: Sequence[LaneReport], folder: Path, mutant: str = "") -> Child:
    """Begin the driver's part of a batch."""
    return Child(_confirm, folder, mutant, plan, list(reports))


def _run(answers: Connection, act: Any, folder: str, mutant: str, *arguments: Any) -> None:
    os.environ[hooks.VARIABLE] = folder
    if mutant:
        MUTANTS[mutant].break_()
    try:
        answers.send(act(*arguments))
    except Exception as error:  # noqa: BLE001 - whoever waits gets it
        answers.send(error)


def _attempt(plan: SinkPlan, attempt: Attempt, values: Sequence[str]) -> LaneReport:
    rows: Iterator[Any] = batches(values, size=2)
    return LaneWriter(plan, attempt, SinkLedger(plan)).write(rows)


def _confirm(plan: SinkPlan, reports: Sequence[LaneReport]) -> bool:
    confirm(plan, SinkLedger(plan), reports, timeout_seconds=_COMMIT_SECONDS)
    return True
