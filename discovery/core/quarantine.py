"""Who is quarantined until when, who is asked next, and the rule that never everybody is quarantined.

An address is quarantined after each failure (full jitter, doubling, capped); a wrong one, or one that rejects the
login, for the cap at once.
Two rules release the dead early, one question per cycle: while fewer than two addresses live, waiting is a luxury;
and where a leader of followed partitions listens, its return is awaited. While nobody lives, they are asked as often
as topics are; so are leaders that refuse connections, while somebody reads. One that an answer names as a
leader, as the last one did not, is asked at once.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from discovery.core.answers import ProbeOutcome
from discovery.core.backoff import fraction_of, full_jitter
from discovery.core.model import BrokerAddress, Verdict
from discovery.core.policy import Policy
from discovery.core.state import AddressState, State
from discovery.core.verdict import AUTH_REJECTED, DEAD, WRONG

_ENOUGH_ALIVE = 2
_MAY_RETURN = DEAD | {Verdict.STALE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Whom to ask now: `full` must prove themselves, `connect` only show that somebody listens."""

    full: tuple[BrokerAddress, ...] = ()
    connect: tuple[BrokerAddress, ...] = ()


def quarantine_seconds(address: BrokerAddress, verdict: Verdict, failures: int, *, salt: int, policy: Policy) -> float:
    """Return how long an address is quarantined after its `failures`-th failure in a row; in (0, cap].

    Runs: anywhere (pure).
    """
    if verdict in WRONG | AUTH_REJECTED:
        return policy.quarantine_cap_seconds
    fraction = fraction_of(salt, str(address), failures)
    return full_jitter(
        base_seconds=policy.quarantine_base_seconds,
        cap_seconds=policy.quarantine_cap_seconds,
        failures=failures,
        fraction=0.1 + 0.9 * fraction,  # never zero: the next cycle would hammer
    )


def judged(
    known: AddressState,
    outcome: ProbeOutcome,
    verdict: Verdict,
    detail: str,
    *,
    state: State,
    policy: Policy,
    now: float,
) -> AddressState:
    """Return an address's record after a verdict.

    Runs: anywhere (pure).
    """
    alive = verdict is Verdict.ALIVE
    failures = 0 if alive else known.failures + 1
    rest = 0.0 if alive else quarantine_seconds(outcome.address, verdict, failures, salt=state.salt, policy=policy)
    answered = outcome.failure is None
    return AddressState(
        verdict=verdict,
        detail=detail,
        since=known.since if known.verdict is verdict else now,
        failures=failures,
        quarantined_until=None if alive else now + rest,
        asked_at=now,
        proved_at=now if answered else known.proved_at,
        cluster_id=outcome.cluster_id if answered else known.cluster_id,
        listed=frozenset(b.broker_id for b in outcome.brokers) if answered else known.listed,
    )


def revived(known: AddressState, *, now: float) -> AddressState:
    """Return the record of an address whose broker just answered a request of the pooled client.

    Only the dead and the stale come back this way: one that belongs to another cluster may well answer.

    Runs: anywhere (pure).
    """
    if known.verdict not in _MAY_RETURN:
        return known
    return replace(known, verdict=Verdict.ALIVE, detail="", since=now, failures=0, quarantined_until=None, asked_at=now)


def awaited(
    addresses: Mapping[BrokerAddress, AddressState], leading: Collection[BrokerAddress]
) -> Mapping[BrokerAddress, AddressState]:
    """Return the addresses, with the dead among those that lead now and did not before due at once.

    Runs: anywhere (pure).
    """
    dead = {a: addresses[a] for a in leading if a in addresses and addresses[a].verdict in _MAY_RETURN}
    return {**addresses, **{a: replace(known, quarantined_until=None) for a, known in dead.items()}}


def due(state: State, *, policy: Policy, now: float, idle: bool = False) -> Due:
    """Choose whom to ask now; the caller leaves out those it is still asking. `idle`: nobody reads.

    Living brokers that lead nothing that is followed are knocked at as seldom as all are while nobody reads.

    Runs: anywhere (pure); O(addresses).
    """
    seldom_seconds = max(policy.interval_seconds, policy.idle_interval_seconds)
    alive = sum(known.alive for known in state.addresses.values())
    panic, leading = alive < _ENOUGH_ALIVE, state.leading
    often_seconds = min(policy.interval_seconds, policy.topics_interval_seconds)
    full: list[BrokerAddress] = []
    connect: list[BrokerAddress] = []
    for address, known in state.addresses.items():
        leads = address in leading
        awaited_soon = leads and not idle and known.verdict is Verdict.REFUSED  # all else costs more than a connection
        rest_seconds = often_seconds if awaited_soon or not alive else policy.interval_seconds
        if known.asked_at is None:
            full.append(address)
        elif _rests(known, released=panic or leads, seconds=rest_seconds, now=now):
            continue
        elif not known.alive or _proof_due(address, known, state, policy=policy, now=now):
            full.append(address)
        elif now - known.asked_at >= (seldom_seconds if idle or not leads else policy.interval_seconds):
            connect.append(address)
    return Due(full=tuple(full), connect=tuple(connect))


def _rests(known: AddressState, *, released: bool, seconds: float, now: float) -> bool:
    if known.quarantined_until is None or now >= known.quarantined_until:
        return False
    released = released and known.verdict in _MAY_RETURN
    return not (released and known.asked_at is not None and now - known.asked_at >= seconds)


def _proof_due(address: BrokerAddress, known: AddressState, state: State, *, policy: Policy, now: float) -> bool:
    if known.proved_at is None:
        return True
    if state.claim is not None and known.proved_at < state.claim.since:
        return True
    spread = 1 + 0.5 * fraction_of(state.salt, str(address), 0)  # so that not all prove themselves at once
    return now - known.proved_at >= policy.vet_interval_seconds * spread
