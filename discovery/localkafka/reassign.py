"""Moves replicas of a running cluster off brokers, with Kafka's own tool."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from discovery.core.errors import KafkaUnreachableError
from discovery.core.prediction.reassignment import plan_reassignment, to_json
from discovery.localkafka import properties
from discovery.localkafka.admin import wait_until
from discovery.localkafka.launch import run_tool
from discovery.localkafka.members import Members

_TRIES = 12
"""A new client hears of the other brokers first, and about half of them then ask another one."""
Partitions = Mapping[tuple[str, int], Any]
"""What one broker's metadata says of each (topic, partition)."""


def reassign_off(members: Members, ids: Collection[int], *, deadline_seconds: float) -> None:
    """Move all replicas off these brokers and wait until it is done; `ClusterHandle.reassign_off` documents it."""
    settings, deadline = members.settings, time.monotonic() + deadline_seconds
    for broker_id in ids:
        settings.process_name(broker_id)
    leaving = set(ids)

    def answers() -> list[Partitions | None]:
        # Brokers learn of topics and moves in their own time, so one broker's word is not the cluster's.
        return [_partitions(members, broker_id) for broker_id in members.living_ids()]

    racks = {broker_id: settings.rack_of(broker_id) for broker_id in settings.broker_ids}
    changes = plan_reassignment(_placement(answers()), leaving=leaving, living=members.living_ids(), racks=racks)
    if not changes:
        return
    _execute(members, to_json(changes), deadline)
    wait_until(
        lambda: _are_off(answers(), leaving),
        deadline_seconds=max(1.0, deadline - time.monotonic()),
        otherwise=lambda: f"replicas are still on brokers {sorted(leaving)}",
    )


def _execute(members: Members, plan: str, deadline: float) -> None:
    file, client = members.files.config("reassignment.json"), members.files.config("client.properties")
    members.files.write_private(file, plan)
    members.files.write_private(client, properties.render(members.record.java_client_options))
    arguments = ["org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server"]
    arguments += [",".join(map(members.address, members.living_ids())), "--command-config", str(client)]
    run_tool(members, "reassign", [*arguments, "--reassignment-json-file", str(file), "--execute"], deadline)


def _partitions(members: Members, broker_id: int) -> Partitions | None:
    """Ask this very broker; None: it does not answer."""
    for _ in range(_TRIES):
        # A client asks whichever broker it is connected to, so each try is a new one that knows this address alone.
        found: Any = members.admin([broker_id]).metadata()
        if found is None:
            return None
        if found.orig_broker_id in {broker_id, -1}:
            return {(topic.topic, p.id): p for topic in found.topics.values() for p in topic.partitions.values()}
    return None


def _placement(answers: Sequence[Partitions | None]) -> dict[tuple[str, int], list[int]]:
    known = [answer for answer in answers if answer is not None]
    if not known:
        raise KafkaUnreachableError("no broker of the local cluster answers")
    return {key: list(p.replicas) for answer in known for key, p in answer.items()}


def _are_off(answers: Sequence[Partitions | None], leaving: Collection[int]) -> bool:
    known = [answer for answer in answers if answer is not None]
    return len(known) == len(answers) > 0 and all(
        answer.keys() == known[0].keys()  # else one of them does not know of a topic yet
        and all(not set(leaving) & {p.leader, *p.replicas, *p.isrs} and p.leader >= 0 for p in answer.values())
        for answer in known
    )
