"""Moves replicas of a running cluster off brokers, with Kafka's own tool."""

import time
from collections.abc import Collection
from typing import Any

from discovery.core.errors import KafkaUnreachableError
from discovery.core.prediction.reassignment import plan_reassignment, to_json
from discovery.localkafka import properties
from discovery.localkafka.admin import Admin, wait_until
from discovery.localkafka.launch import run_tool
from discovery.localkafka.members import Members


def reassign_off(members: Members, ids: Collection[int], *, deadline_seconds: float) -> None:
    """Move all replicas off these brokers and wait until it is done; `ClusterHandle.reassign_off` documents it."""
    settings, deadline = members.settings, time.monotonic() + deadline_seconds
    for broker_id in ids:
        settings.process_name(broker_id)
    admin, leaving = members.admin(), set(ids)
    racks = {broker_id: settings.rack_of(broker_id) for broker_id in settings.broker_ids}
    changes = plan_reassignment(_placement(admin), leaving=leaving, living=members.living_ids(), racks=racks)
    if not changes:
        return
    _execute(members, to_json(changes), deadline)
    wait_until(
        lambda: _is_off(admin, leaving),
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


def _placement(admin: Admin) -> dict[tuple[str, int], list[int]]:
    found: Any = admin.metadata()
    if found is None:
        raise KafkaUnreachableError("no broker of the local cluster answers")
    return {
        (topic.topic, partition.id): list(partition.replicas)
        for topic in found.topics.values()
        for partition in topic.partitions.values()
    }


def _is_off(admin: Admin, leaving: Collection[int]) -> bool:
    found: Any = admin.metadata()
    return found is not None and all(
        not set(leaving) & {p.leader, *p.replicas, *p.isrs} and p.leader >= 0
        for topic in found.topics.values()
        for p in topic.partitions.values()
    )
