"""A snapshot as bytes and back: one JSON line that names its schema and carries a checksum of its payload."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from discovery.core.errors import StateError
from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    PartitionMetadata,
    Snapshot,
    Tombstone,
    TopicId,
    TopicMetadata,
    TopicName,
)

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a start gets back: the last view and every address that ever led to this cluster."""

    snapshot: Snapshot
    known_addresses: frozenset[BrokerAddress] = frozenset()


def encode(saved: Saved) -> bytes:
    """Return the file's content; equal values give equal bytes.

    Runs: anywhere (pure).
    """
    snapshot = saved.snapshot
    payload = json.dumps(
        {
            "generation": snapshot.generation,
            "cluster_id": snapshot.cluster_id,
            "confirmed_wall": snapshot.confirmed_wall,
            "brokers": [asdict(b) for b in snapshot.brokers],
            "topics": [asdict(t, dict_factory=_written) for t in snapshot.topics.values()],
            "tombstones": [asdict(t, dict_factory=_written) for t in snapshot.tombstones.values()],
            "known_addresses": sorted(map(str, saved.known_addresses)),
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    return json.dumps({"schema": SCHEMA, "sha256": _digest(payload), "payload": payload}).encode() + b"\n"


def decode(content: bytes) -> Saved:
    """Read a file's content.

    Raises:
        StateError: it is cut, damaged, of another schema, or not ours; says which.

    Runs: anywhere (pure, total over bytes).
    """
    try:
        outer = json.loads(content)
        schema, digest, payload = outer["schema"], outer["sha256"], outer["payload"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateError(f"it is cut or damaged: {type(error).__name__}") from error
    if schema != SCHEMA:
        raise StateError(f"it has schema {schema!r}, this version reads {SCHEMA}")
    if not isinstance(payload, str) or digest != _digest(payload):
        raise StateError("its checksum does not fit its content")
    try:
        return _saved(json.loads(payload))
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"its content is not a snapshot: {error}") from error


def _written(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Leave out what the first versions would refuse the file for; the next answer gives it."""
    return {name: value for name, value in fields if name != "is_listed"}


def _digest(payload: str) -> str:
    return hashlib.sha256(payload.encode()).hexdigest()


def _saved(raw: dict[str, Any]) -> Saved:
    topics = [_topic(t) for t in raw["topics"]]
    tombstones = [Tombstone(topic=_topic(t["topic"]), since_wall=t["since_wall"]) for t in raw["tombstones"]]
    snapshot = Snapshot(
        generation=Generation(raw["generation"]),
        cluster_id=ClusterId(raw["cluster_id"]),
        confirmed_wall=raw["confirmed_wall"],
        brokers=tuple(_broker(b) for b in raw["brokers"]),
        topics={t.name: t for t in topics},
        tombstones={t.topic.name: t for t in tombstones},
    )
    return Saved(
        snapshot=snapshot, known_addresses=frozenset(BrokerAddress.parse(text) for text in raw["known_addresses"])
    )


def _broker(raw: dict[str, Any]) -> Broker:
    return Broker(broker_id=BrokerId(raw["broker_id"]), address=BrokerAddress(**raw["address"]), rack=raw["rack"])


def _topic(raw: dict[str, Any]) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(**{**p, "replicas": tuple(p["replicas"]), "in_sync": tuple(p["in_sync"])})
        for p in raw["partitions"]
    )
    topic_id = None if raw["topic_id"] is None else TopicId(raw["topic_id"])
    return TopicMetadata(name=TopicName(raw["name"]), topic_id=topic_id, partitions=partitions)
