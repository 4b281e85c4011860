"""How often and when a failed job is started again. Pure: times in, a decision out."""

from collections.abc import Sequence
from dataclasses import dataclass

from discovery.core.plural import counted

_JITTER = 0.5
"""Share of a delay that is left to chance: jobs that died together must not come back together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDelay:
    """At most `restarts` in all, each after the same delay."""

    restarts: int = 10
    delay_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Delays that double up to a cap; a run that lasted `healthy_seconds` makes everything before it forgotten."""

    restarts: int | None = 20
    """In a row; None: no limit."""
    first_seconds: float = 1.0
    cap_seconds: float = 60.0
    healthy_seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """At most `failures` within `per_seconds`; older ones do not count."""

    failures: int = 5
    per_seconds: float = 600.0
    delay_seconds: float = 5.0


Budget = FixedDelay | Exponential | FailureRate


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run that failed; times are monotonic seconds."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again after this."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not; the sentence says why."""

    reason: str


def decide(budget: Budget, failed: Sequence[Run], *, fraction: float) -> Restart | GiveUp:
    """Say whether there is another run.

    Args:
        budget: The user's policy.
        failed: All failed runs so far, 1..n, in order.
        fraction: Chance, in [0, 1).

    Raises:
        ValueError: no run failed, or the fraction is out of range.

    Runs: anywhere (pure).
    """
    if not failed or not 0 <= fraction < 1:
        raise ValueError(f"need a failed run and a fraction in [0, 1): {len(failed)=}, {fraction=}")
    match budget:
        case FixedDelay():
            if len(failed) > budget.restarts:
                return GiveUp(f"the budget of {counted(budget.restarts, 'restart')} is used up")
            return Restart(_jittered(budget.delay_seconds, fraction))
        case Exponential():
            row = _row(failed, budget.healthy_seconds)
            if budget.restarts is not None and row > budget.restarts:
                return GiveUp(f"the budget of {counted(budget.restarts, 'restart')} in a row is used up")
            delay = min(budget.cap_seconds, budget.first_seconds * 2.0 ** min(row - 1, 60))
            return Restart(_jittered(delay, fraction))
        case FailureRate():
            now = failed[-1].ended
            recent = sum(run.ended > now - budget.per_seconds for run in failed)
            if recent > budget.failures:
                return GiveUp(
                    f"{counted(recent, 'failure')} within {budget.per_seconds:g} s; at most {budget.failures}"
                )
            return Restart(_jittered(budget.delay_seconds, fraction))


def _row(failed: Sequence[Run], healthy_seconds: float) -> int:
    """Count the failures since the last run that lasted; such a run's own failure is the first of a new row."""
    row = 0
    for run in reversed(failed):
        row += 1
        if run.ended - run.began >= healthy_seconds:
            break
    return row


def _jittered(delay_seconds: float, fraction: float) -> float:
    return delay_seconds * (1 - _JITTER + _JITTER * fraction)
