"""What came of a supervised job: its runs, what was set and why, and the last word."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from discovery.core.plural import counted
from discovery.spark.supervise.classify import Failure, Finding


class Outcome(Enum):
    """How it ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    """By the user."""
    FATAL = "failed for good"
    EXHAUSTED = "out of restarts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run."""

    began_wall: float
    seconds: float
    servers: str
    exit_code: int | None = None
    finding: Finding | None = None
    """None: it did not fail."""
    started: bool = True
    """False: no broker lived, so it was not even started."""


_SLOW_STARTS = 5


def worth_a_restart(attempts: Sequence[Attempt]) -> bool:
    """Tell whether the failure of the last run may be gone in the next.

    Args:
        attempts: All runs, 1..n; the last one failed. After five slow starts in a row it is not the machine that is
            busy: the interpreter that Spark starts lacks something.

    Runs: anywhere (pure).
    """
    findings = [attempt.finding for attempt in attempts[-_SLOW_STARTS:]]
    slow = [one is not None and one.failure is Failure.SLOW_START for one in findings]
    if len(slow) == _SLOW_STARTS and all(slow):
        return False
    return findings[-1] is not None and findings[-1].restartable


EXIT_CODES = {
    Failure.DEAD_LIST: 3,
    Failure.LEADERLESS: 3,
    Failure.AUTHENTICATION: 5,
    Failure.WRONG_CLUSTER: 6,
    Failure.DATA_LOSS: 7,
}
"""Of `kafka-discovery run`; the others pass on the job's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything, in order."""

    outcome: Outcome
    attempts: tuple[Attempt, ...]
    reason: str = ""

    @property
    def last(self) -> Finding | None:
        """Why the last run failed, if it did."""
        return self.attempts[-1].finding if self.attempts else None

    @property
    def failures(self) -> int:
        """How many runs failed."""
        return sum(attempt.finding is not None for attempt in self.attempts)

    @property
    def exit_code(self) -> int:
        """What a shell shall see."""
        own = self.attempts[-1].exit_code if self.attempts else None
        if self.outcome in {Outcome.FINISHED, Outcome.STOPPED} or self.last is None:
            return 0 if self.outcome is Outcome.FINISHED else (128 - own if own and own < 0 else own or 0)
        return EXIT_CODES.get(self.last.failure) or (128 - own if own and own < 0 else own or 1)

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "outcome": self.outcome.value,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "runs": len(self.attempts),
            "failures": self.failures,
            "attempts": [_attempt(attempt) for attempt in self.attempts],
        }

    def lines(self) -> Sequence[str]:
        """Return it for people."""
        head = f"{self.outcome.value}: {counted(len(self.attempts), 'run')}, {self.failures} failed" + (
            f"; {self.reason}" if self.reason else ""
        )
        reported = [
            f"  run {number}: {attempt.seconds:.0f} s, {attempt.finding.failure.value}: {attempt.finding.evidence}"
            for number, attempt in enumerate(self.attempts, start=1)
            if attempt.finding is not None
        ]
        remedy = [f"  {self.last.remedy}"] if self.last is not None else []
        return [head, *reported, *remedy]


def _attempt(attempt: Attempt) -> dict[str, Any]:
    made = asdict(attempt)
    if attempt.finding is not None:
        made["finding"] = {**made["finding"], "failure": attempt.finding.failure.value}
    return made
