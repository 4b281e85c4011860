"""Plans where replicas go when brokers are to be emptied. Pure."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from discovery.core.errors import ConfigError
from discovery.core.plural import counted

Placement = Mapping[tuple[str, int], Sequence[int]]
"""Replica ids by topic and partition, the preferred leader first."""


def plan_reassignment(
    placement: Placement, *, leaving: Collection[int], living: Collection[int], racks: Mapping[int, str]
) -> dict[tuple[str, int], list[int]]:
    """Replace every replica on a leaving broker by the least loaded living one, in a rack of its own if possible.

    Returns:
        New replica lists of the partitions that must change; the others are absent.

    Raises:
        ConfigError: fewer brokers would remain than a partition has replicas.
    """
    remaining = sorted(set(living) - set(leaving))
    load = Counter(broker for replicas in placement.values() for broker in replicas)
    changed: dict[tuple[str, int], list[int]] = {}
    for (topic, partition), replicas in sorted(placement.items()):
        if not set(replicas) & set(leaving):
            continue
        if len(replicas) > len(remaining):
            raise ConfigError(
                f"cannot empty brokers {sorted(leaving)}: {topic}-{partition} has {counted(len(replicas), 'replica')} "
                f"and only {counted(len(remaining), 'broker')} would remain; name fewer brokers"
            )
        kept = list(replicas)
        for place, broker in enumerate(kept):
            if broker in leaving:
                others = [b for b in kept if b != broker and b not in leaving]
                kept[place] = _best(remaining, others, load, racks)
                load[kept[place]] += 1
        changed[topic, partition] = kept
    return changed


def to_json(changes: Mapping[tuple[str, int], Sequence[int]]) -> str:
    """Write the plan as Kafka's own reassignment tool reads it."""
    moves = [{"topic": t, "partition": p, "replicas": list(r)} for (t, p), r in changes.items()]
    return json.dumps({"version": 1, "partitions": moves})


def _best(remaining: Sequence[int], others: Sequence[int], load: Counter[int], racks: Mapping[int, str]) -> int:
    used = {racks.get(broker) for broker in others}
    free = [broker for broker in remaining if broker not in others]
    return min(free, key=lambda broker: (racks.get(broker) in used, load[broker], broker))
