"""One plain sentence per cycle: the log line, the API field, the test oracle."""

from collections import defaultdict

from discovery.core.model import BrokerAddress, LoopState, Verdict
from discovery.core.plural import counted
from discovery.core.state import State

_SHOWN = 4


def describe(state: State) -> str:
    """Say what is known now, living things first; equal for equal knowledge, so that repeats can be folded.

    Runs: anywhere (pure).
    """
    parts = [_heading(state), *_troubles(state)]
    return "; ".join(parts)


def _heading(state: State) -> str:
    alive = sum(known.alive for known in state.addresses.values())
    living = f"{alive} of {counted(len(state.addresses), 'address', 'addresses')} alive"
    if state.snapshot is None:
        return f"{state.loop_state.value}: {living}, no view yet"
    topics = state.snapshot.topics
    partitions = sum(len(topic.partitions) for topic in topics.values())
    kept = "kept the last view of " if state.loop_state is not LoopState.FRESH else ""
    return (
        f"{state.loop_state.value}: {living}, {kept}{counted(len(state.snapshot.brokers), 'broker')}"
        f" and {counted(partitions, 'partition')} in {counted(len(topics), 'topic')}"
    )


def _troubles(state: State) -> list[str]:
    by_verdict: dict[Verdict, list[BrokerAddress]] = defaultdict(list)
    for address, known in state.addresses.items():
        if known.verdict is not None and not known.alive:
            by_verdict[known.verdict].append(address)
    troubles = [f"{v.value.replace('_', ' ')}: {_some(by_verdict[v])}" for v in Verdict if v in by_verdict]
    if state.snapshot is not None:
        leaderless = sum(p.leader_id is None for t in state.snapshot.topics.values() for p in t.partitions)
        troubles += [f"{counted(leaderless, 'partition')} without a leader"] * bool(leaderless)
    if state.complaint:
        troubles.append(f"metadata fails: {state.complaint}")
    if state.claim is not None:
        troubles.append(f"held back the loss of {counted(len(state.claim.gone), 'broker')} until it is confirmed")
    return troubles


def _some(addresses: list[BrokerAddress]) -> str:
    shown = ", ".join(map(str, sorted(addresses)[:_SHOWN]))
    more = len(addresses) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
