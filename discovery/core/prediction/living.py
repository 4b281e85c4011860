"""Which addresses answer for one cluster, and which broker does: from what probes of them showed. Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from discovery.core.answers import ProbeOutcome
from discovery.core.model import BrokerAddress, BrokerId, ClusterId, Verdict
from discovery.core.verdict import conclude


def living(
    outcomes: Collection[ProbeOutcome], home: ClusterId
) -> tuple[dict[BrokerAddress, BrokerId | None], frozenset[BrokerAddress]]:
    """Tell the living addresses of a cluster from those that are no use.

    An address that no broker advertises, a CNAME or an IP address, belongs to the broker at whose advertised address
    the same host and port accepted. One that only accepted a connection is known no other way.

    Args:
        outcomes: One per address.
        home: The cluster in question.

    Returns:
        The living with the broker that answers there (None: not known), and those that are no use; an address in
        neither could not be judged.

    Runs: anywhere (pure).
    """
    asked = [one for one in outcomes if one.failure is None and not one.tcp_only]
    peers = [one for one in asked if conclude(one, pin=home, snapshot=None)[0] is Verdict.ALIVE]
    answering = [one for one in peers if not _is_removed(one, peers)]
    advertised = {broker.address: broker.broker_id for one in answering for broker in one.brokers}
    ids = _by_endpoint(answering, advertised)
    alive = {one.address: advertised.get(one.address, ids.get(one.endpoint)) for one in answering}
    alive |= {one.address: ids[one.endpoint] for one in outcomes if one.tcp_only and one.endpoint in ids}
    return alive, frozenset(one.address for one in outcomes if not one.tcp_only and one.address not in alive)


def _by_endpoint(
    answering: Collection[ProbeOutcome], advertised: Mapping[BrokerAddress, BrokerId]
) -> dict[tuple[str, int] | None, BrokerId]:
    """Return the broker behind each host and port; none where several share one, as behind a router by SNI."""
    found: defaultdict[tuple[str, int] | None, set[BrokerId]] = defaultdict(set)
    for one in answering:
        if one.endpoint is not None and one.address in advertised:
            found[one.endpoint].add(advertised[one.address])
    return {endpoint: next(iter(ids)) for endpoint, ids in found.items() if len(ids) == 1}


def _is_removed(one: ProbeOutcome, peers: Collection[ProbeOutcome]) -> bool:
    """Tell whether it names itself while no peer lists it: removed, and not aware of it."""
    itself = next((broker.broker_id for broker in one.brokers if broker.address == one.address), None)
    lists = [{broker.broker_id for broker in peer.brokers} for peer in peers if peer is not one]
    return itself is not None and bool(lists) and not any(itself in ids for ids in lists)
