"""From what happened at one address to what we conclude about it."""

from discovery.core.answers import ProbeOutcome
from discovery.core.model import ClusterId, Snapshot, Verdict

DEAD = frozenset({Verdict.REFUSED, Verdict.SILENT, Verdict.UNRESOLVABLE})
"""Nobody there now: quarantined, comes back by itself."""
WRONG = frozenset({Verdict.NOT_KAFKA, Verdict.FOREIGN_CLUSTER})
"""Somebody else lives there: rejected until it proves the right cluster."""
AUTH_REJECTED = frozenset({Verdict.AUTH_FAILED, Verdict.TLS_FAILED})
"""A broker that will not have us: asked slowly, never hammered."""


def conclude(outcome: ProbeOutcome, *, pin: ClusterId | None, snapshot: Snapshot | None) -> tuple[Verdict, str]:
    """Judge one full probe.

    An address that is not among the brokers it names is still ALIVE if the cluster is right: load balancers and
    bootstrap names look so. One that names *itself* while the agreed view does not is STALE: a removed broker
    keeps answering from its old image.

    Args:
        outcome: A full probe, not one that only connected.
        pin: The right cluster, or None while it is not agreed: then any cluster id passes for now.
        snapshot: The agreed view, for the contradiction.

    Returns:
        The verdict and one line of detail.

    Raises:
        ValueError: the probe was `tcp_only`, which proves nothing.

    Runs: anywhere (pure).
    """
    if outcome.failure is not None:
        return outcome.failure, outcome.detail or outcome.failure.value
    if outcome.tcp_only:
        raise ValueError(f"{outcome.address} only accepted a connection; that is no answer")
    if not outcome.brokers:
        return Verdict.STALE, "answered with an empty broker list"
    if outcome.cluster_id is None:
        return Verdict.STALE, "answered without a cluster id"
    if pin is not None and outcome.cluster_id != pin:
        return Verdict.FOREIGN_CLUSTER, f"belongs to cluster {outcome.cluster_id}, not to {pin}"
    itself = next((b for b in outcome.brokers if b.address == outcome.address), None)
    if snapshot is not None and itself is not None and snapshot.broker(itself.broker_id) is None:
        return Verdict.STALE, f"names itself as broker {itself.broker_id}, which its peers no longer list"
    return Verdict.ALIVE, ""
