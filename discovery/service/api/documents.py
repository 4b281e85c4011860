"""What the API says, as plain values made from one moment of one loop."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from discovery.core.model import BrokerAddress, TopicMetadata, TopicName, TopicPartition, Verdict
from discovery.core.state import AddressState
from discovery.core.verdict import WRONG
from discovery.feed.base import AddressReport, FeedView
from discovery.feed.wire import report_document
from discovery.service.api.models import Condition
from discovery.service.cluster import Cluster, Shown
from discovery.service.consumers import Consumer

CONDITIONS: tuple[Condition, ...] = get_args(Condition)
_UNASKED = AddressState()


def condition(verdict: Verdict | None) -> Condition:
    """Return in one word how clients should treat an address.

    Runs: anywhere (pure).
    """
    if verdict is None:
        return "unasked"
    if verdict is Verdict.ALIVE:
        return "healthy"
    return "rejected" if verdict in WRONG else "quarantined"


def snapshot_document(cluster: Cluster, shown: Shown) -> dict[str, Any]:
    """Return the agreed view: changes only with the generation, so it can be kept by it."""
    snapshot = shown.decision.state.snapshot if shown.decision else None
    return {
        "cluster": cluster.name,
        "epoch": cluster.epoch,
        "generation": shown.view.generation,
        "cluster_id": snapshot.cluster_id if snapshot else None,
        "brokers": [
            {"broker_id": b.broker_id, "address": str(b.address), "rack": b.rack}
            for b in (snapshot.brokers if snapshot else ())
        ],
        "topics": {t.name: _topic(t) for t in (snapshot.topics.values() if snapshot else ())},
        "gone": sorted(snapshot.tombstones) if snapshot else [],
    }


def brokers_document(cluster: Cluster, shown: Shown) -> dict[str, Any]:
    """Return every address with what is thought of it, and what that means for partitions."""
    return {
        "cluster": cluster.name,
        "generation": shown.view.generation,
        "bootstrap": [str(address) for address in shown.view.bootstrap],
        "brokers": [_address(cluster, shown, address, report) for address, report in shown.view.addresses.items()],
    }


def topic_document(cluster: Cluster, shown: Shown, name: TopicName) -> dict[str, Any] | None:
    """Return one topic with offsets and parked partitions, or None where nobody knows it."""
    snapshot = shown.decision.state.snapshot if shown.decision else None
    tomb = snapshot.tombstones.get(name) if snapshot else None
    topic = snapshot.topics.get(name) if snapshot else None
    if snapshot is None or (topic is None and tomb is None):
        return None
    rows = {tp.partition: one for tp, one in shown.view.partitions.items() if tp.topic == name}
    known = topic or (tomb.topic if tomb else None)
    return {
        "cluster": cluster.name,
        "generation": shown.view.generation,
        "topic": name,
        "topic_id": known.topic_id if known else None,
        "gone": topic is None,
        "partitions": [
            {
                **plain,
                "leader": str(one.leader) if one and one.leader else None,
                "start_offset": one.start_offset if one else None,
                "high_watermark": one.high_watermark if one else None,
                "last_stable_offset": one.last_stable_offset if one else None,
                "parked_reason": one.parked_reason if one else None,
                "parked_since_wall": one.parked_since_wall if one else None,
            }
            for plain in (_topic(known)["partitions"] if known else [])
            for one in (rows.get(plain["partition"]),)
        ],
    }


def status_document(cluster: Cluster, shown: Shown | None, consumers: Sequence[Consumer]) -> dict[str, Any]:
    """Return how a cluster is doing, in numbers and one sentence."""
    view = shown.view if shown else None
    vitals = cluster.vitals()
    counted = Counter(condition(report.verdict) for report in view.addresses.values()) if view else Counter[str]()
    return {
        "cluster": cluster.name,
        "cluster_id": view.cluster_id if view else None,
        "epoch": cluster.epoch,
        "generation": view.generation if view else 0,
        "state": view.state.value if view else "cold",
        "sentence": view.sentence if view else "cold: the loop was not started yet",
        "fatal": view.fatal if view else None,
        "age_seconds": age_of(view),
        "brokers": {name: counted[name] for name in CONDITIONS},
        "topics": len({tp.topic for tp in view.partitions}) if view else 0,
        "partitions": len(view.partitions) if view else 0,
        "parked": sum(one.parked_reason is not None for one in view.partitions.values()) if view else 0,
        "missing_topics": list(view.missing_topics) if view else [],
        "consumers": len(consumers),
        "fallen_back": [consumer.id for consumer in consumers if consumer.fallback],
        "loop": {
            "idle_seconds": vitals.idle_seconds,
            "stuck_calls": vitals.stuck_calls,
            "clients_built": vitals.clients_built,
            "bugs": vitals.bugs,
            "state_write_failures": vitals.state_write_failures,
        },
    }


def consumer_document(consumer: Consumer, view: FeedView | None, *, now: float) -> dict[str, Any]:
    """Return a consumer with its lag, and the addresses in its own list that will not serve it."""
    lags = lags_of(consumer, view)
    return {
        "id": consumer.id,
        "instance": consumer.instance,
        "cluster": consumer.cluster,
        "kind": consumer.kind,
        "acked_generation": consumer.acked_generation,
        "behind": consumer.is_behind(view.generation if view else 0),
        "fallback": consumer.fallback,
        "heard_seconds_ago": round(now - consumer.heard_at, 3),
        "bootstrap_servers": [str(address) for address in consumer.bootstrap_servers],
        "bad_bootstrap_servers": bad_addresses(consumer, view),
        "lag": sum(lags.values()) if lags else None,
        "lags": {str(tp): lag for tp, lag in lags.items()},
        "parked": {str(tp): reason for tp, reason in consumer.parked.items()},
    }


def lags_of(consumer: Consumer, view: FeedView | None) -> dict[TopicPartition, int]:
    """Return how many records a consumer is behind, by the partitions whose end is known; O(partitions)."""
    ends = view.partitions if view else {}
    return {
        tp: max(0, end - position)
        for tp, position in consumer.positions.items()
        if (one := ends.get(tp)) is not None
        and (end := one.last_stable_offset if consumer.committed_only else one.high_watermark) is not None
    }


def bad_addresses(consumer: Consumer, view: FeedView | None) -> dict[str, str]:
    """Return which addresses of a consumer's own list are not alive, and why: who still lists a removed broker?"""
    if view is None or not view.generation:
        return {}
    known = view.addresses
    return {str(a): _why(known.get(a)) for a in consumer.bootstrap_servers if a not in known or _is_bad(known[a])}


def age_of(view: FeedView | None) -> float | None:
    """Return the age in seconds, or None where nothing was confirmed yet: JSON knows no infinity."""
    return None if view is None or view.age_seconds == float("inf") else round(view.age_seconds, 3)


def _is_bad(report: AddressReport) -> bool:
    return condition(report.verdict) in {"quarantined", "rejected"}


def _why(report: AddressReport | None) -> str:
    if report is None or report.verdict is None:
        return "removed from the cluster, or never known here"
    return f"{report.verdict.value}: {report.detail}" if report.detail else report.verdict.value


def _topic(topic: TopicMetadata) -> dict[str, Any]:
    return {
        "topic_id": topic.topic_id,
        "partitions": [
            {
                "partition": p.partition,
                "leader_id": p.leader_id,
                "replicas": list(p.replicas),
                "in_sync": list(p.in_sync),
            }
            for p in topic.partitions
        ],
    }


def _address(cluster: Cluster, shown: Shown, address: BrokerAddress, report: AddressReport) -> dict[str, Any]:
    state = shown.decision.state if shown.decision else None
    known = state.addresses.get(address, _UNASKED) if state else _UNASKED
    listed = state.snapshot.brokers if state and state.snapshot else ()
    broker = next((b for b in listed if b.address == address), None)
    led = sum(one.leader == address for one in shown.view.partitions.values())
    return {
        "address": str(address),
        "broker_id": broker.broker_id if broker else None,
        "rack": broker.rack if broker else None,
        "advertised": broker is not None,
        "condition": condition(report.verdict),
        **report_document(report),
        "failures": known.failures,
        "quarantined_until_wall": cluster.wall(known.quarantined_until),
        "leads_partitions": led,
    }
