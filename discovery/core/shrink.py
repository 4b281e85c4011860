"""The brake on losing brokers: an answer may be partial, stale or a lie, and a lost list is a lost stream."""

from dataclasses import dataclass, replace

from discovery.core.model import BrokerId
from discovery.core.policy import Policy
from discovery.core.state import ShrinkClaim, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Braked:
    """What becomes of the brokers an answer does not name any more."""

    dropped: frozenset[BrokerId]
    """Leave the snapshot now."""
    claim: ShrinkClaim | None
    """Wait for more voices; None: nothing is waiting."""
    blocked: bool = False
    """True when this answer was held back for the first time."""


def brake(state: State, gone: frozenset[BrokerId], *, policy: Policy, now: float) -> Braked:
    """Let a small loss pass, hold a large one until it is confirmed.

    A loss is small while at most max(1, fraction) of the brokers left within one cycle's budget. A larger one needs
    `shrink_confirmations` answers, and probes of min(2, living) single brokers, taken after the claim, that name none
    of them.

    Args:
        state: Before the answer.
        gone: Brokers of the snapshot that the answer does not name.
        policy: Limits.
        now: Monotonic seconds.

    Returns:
        What to drop, and the claim to keep.

    Runs: anywhere (pure). Source: Eureka's and Envoy's ejection limits.
    """
    if not gone or state.snapshot is None:
        return Braked(dropped=frozenset(), claim=None)
    lately = sum(count for when, count in state.dropped if now - when < policy.api_timeout_seconds)
    allowed = max(1, int(policy.shrink_fraction * (len(state.snapshot.brokers) + lately)))
    if lately + len(gone) <= allowed:
        return Braked(dropped=gone, claim=None)
    old = state.claim
    if old is None or old.gone != gone:
        return Braked(dropped=frozenset(), claim=ShrinkClaim(gone=gone, since=now), blocked=True)
    claim = replace(old, confirmations=old.confirmations + 1)
    if claim.confirmations >= policy.shrink_confirmations and _voices(state, claim) >= _voices_needed(state):
        return Braked(dropped=gone, claim=None)
    return Braked(dropped=frozenset(), claim=claim)


def _voices_needed(state: State) -> int:
    return min(2, max(1, len(state.living)))


def _voices(state: State, claim: ShrinkClaim) -> int:
    """Count living addresses that proved themselves since the claim and name none of the lost brokers."""
    return sum(
        known.alive and known.proved_at is not None and known.proved_at >= claim.since and not known.listed & claim.gone
        for known in state.addresses.values()
    )
