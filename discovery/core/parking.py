"""Why a partition must not be planned now."""

from discovery.core.model import PartitionMetadata, Verdict
from discovery.core.state import State

_UNLISTED = (
    "the brokers do not list it any more; if its topic was recreated with fewer partitions, stop the query and drop "
    "the saved view: kafka-discovery state reset"
)
"""A lagging broker leaves out new partitions for a moment; only another topic id would prove that they are gone."""


def parked_reason(partition: PartitionMetadata, state: State, *, end_known: bool, unanswered: str | None) -> str | None:
    """Return one sentence, or None for a partition that can be read.

    Args:
        partition: From the snapshot.
        state: For the leader's address and verdict.
        end_known: Whether an end offset was ever reported for it.
        unanswered: Why its last offsets question stayed unanswered, or None.

    Runs: anywhere (pure).
    """
    if partition.leader_id is None:
        return "it has no leader" if partition.is_listed else _UNLISTED
    leader = state.snapshot.broker(partition.leader_id) if state.snapshot else None
    if leader is None:
        return f"its leader, broker {partition.leader_id}, is not listed"
    known = state.addresses.get(leader.address)
    name = f"its leader, broker {leader.broker_id} at {leader.address},"
    # Too slow for the vetting's limits is not dead: what it answered stands.
    slow = known is not None and known.verdict is Verdict.SILENT and state.agenda.answers_slowly(leader.broker_id)
    if known is not None and known.verdict is not None and not known.alive and not slow:
        return f"{name} is {known.verdict.value.replace('_', ' ')}"
    if unanswered is not None:
        return f"{name} does not report its end offset: {unanswered}"
    if not end_known:
        return f"{name} has not reported its end offset yet"
    return None
