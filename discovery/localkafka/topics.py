"""Topics of a running cluster: create, grow, delete, move off brokers."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from discovery.core.errors import KafkaUnreachableError
from discovery.core.prediction.reassignment import plan_reassignment, to_json
from discovery.localkafka import properties
from discovery.localkafka.admin import Admin, wait_until
from discovery.localkafka.launch import run_tool
from discovery.localkafka.members import Members


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """Operations on the topics of one cluster, through its living brokers; `LocalKafka` documents each."""

    members: Members

    def create(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, str],
        assignment: Sequence[Sequence[int]] | None,
        deadline_seconds: float,
    ) -> None:
        """Create a topic and wait until all partitions are led and in sync."""
        self.members.admin().create_topic(
            name, partitions=partitions, replication_factor=replication_factor, config=config,
            assignment=assignment, deadline_seconds=deadline_seconds,
        )  # fmt: skip

    def add_partitions(self, topic: str, total: int, *, await_leaders: bool, deadline_seconds: float) -> None:
        """Grow a topic to `total` partitions."""
        admin = self.members.admin()
        admin.add_partitions(topic, total, deadline_seconds=deadline_seconds)
        if await_leaders:
            admin.await_leaders(topic, total, deadline_seconds=deadline_seconds)

    def delete(self, topic: str, *, deadline_seconds: float) -> None:
        """Delete a topic and wait until it is no longer listed."""
        self.members.admin().delete_topic(topic, deadline_seconds=deadline_seconds)

    def reassign_off(self, ids: Collection[int], *, deadline_seconds: float) -> None:
        """Move all replicas off these brokers and wait until it is done."""
        settings, deadline = self.members.settings, time.monotonic() + deadline_seconds
        for broker_id in ids:
            settings.process_name(broker_id)
        admin, leaving = self.members.admin(), set(ids)
        racks = {broker_id: settings.rack_of(broker_id) for broker_id in settings.broker_ids}
        living = self.members.living_ids()
        changes = plan_reassignment(_placement(admin), leaving=leaving, living=living, racks=racks)
        if not changes:
            return
        self._execute(to_json(changes), deadline)
        wait_until(
            lambda: _is_off(admin, leaving),
            deadline_seconds=max(1.0, deadline - time.monotonic()),
            otherwise=lambda: f"replicas are still on brokers {sorted(leaving)}",
        )

    def _execute(self, plan: str, deadline: float) -> None:
        files, members = self.members.files, self.members
        file, client = files.config("reassignment.json"), files.config("client.properties")
        files.write_private(file, plan)
        files.write_private(client, properties.render(members.record.java_client_options))
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
