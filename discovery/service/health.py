"""Is the process alive, can it serve, has it started? From memory alone, each with its reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

from discovery.core.model import LoopState

LOOP_INTERVALS = 5
LEAST_SECONDS = 10.0
"""On a crowded machine a healthy loop may rest this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """What health needs to know of one cluster."""

    name: str
    idle_seconds: float | None
    interval_seconds: float
    generation: int
    state: LoopState
    age_seconds: float | None


@dataclass(frozen=True, slots=True)
class Check:
    """One named question and its answer, with the reason in words."""

    name: str
    ok: bool
    reason: str


def live(clusters: Sequence[ClusterHealth]) -> list[Check]:
    """Tell whether each loop turns; a loop that was never started is starting, not dead.

    Runs: anywhere (pure).
    """
    return [_turning(one) for one in clusters]


def ready(clusters: Sequence[ClusterHealth]) -> list[Check]:
    """Tell which clusters have a view to serve, fresh or not.

    Runs: anywhere (pure).
    """
    return [_usable(one) for one in clusters]


def _turning(one: ClusterHealth) -> Check:
    limit = max(LOOP_INTERVALS * one.interval_seconds, LEAST_SECONDS)
    if one.idle_seconds is None:
        return Check(f"loop {one.name}", ok=True, reason="the loop is being started")
    said = f"the loop turned {one.idle_seconds:.1f} s ago"
    return Check(f"loop {one.name}", ok=one.idle_seconds <= limit, reason=f"{said}; at most {limit:g} s are healthy")


def _usable(one: ClusterHealth) -> Check:
    if one.generation == 0:
        return Check(f"view {one.name}", ok=False, reason=f"{one.state.value}: no broker has answered yet")
    age = "never confirmed since the start" if one.age_seconds is None else f"confirmed {one.age_seconds:.1f} s ago"
    return Check(f"view {one.name}", ok=True, reason=f"{one.state.value}: generation {one.generation}, {age}")
