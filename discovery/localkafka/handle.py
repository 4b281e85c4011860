"""The handle on a cluster: its facts, the faults to inject, its topics. Who starts and ends it: `cluster.py`."""

import signal
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from discovery.core.errors import StateError
from discovery.localkafka import launch
from discovery.localkafka.admin import wait_until
from discovery.localkafka.keeper.client import KeeperClient
from discovery.localkafka.layout import ClusterFolder
from discovery.localkafka.members import Members
from discovery.localkafka.properties import ClusterSettings, port_name, render
from discovery.localkafka.reassign import reassign_off
from discovery.localkafka.record import ClusterRecord


class ClusterHandle:
    """Speaks to the processes of one cluster. The constructor does no I/O.

    Methods may be called from any thread, one at a time; those that need a running cluster raise StateError
    without one.
    """

    def __init__(self, record: ClusterRecord) -> None:
        """Remember the cluster; where it runs is known once it is started."""
        self._record = record
        self._archive: Path | None = None
        self._folder: ClusterFolder | None = None
        self._client: KeeperClient | None = None

    # -- facts --------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Data, configuration and logs (`logs/<broker id>.log`)."""
        return self._files().path

    @property
    def settings(self) -> ClusterSettings:
        """What kind of cluster it is."""
        return self._record.settings

    @property
    def cluster_id(self) -> str:
        """Kafka's id of the cluster; random, known before the start."""
        return self._record.cluster_id

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """All ids, 1..n, dead ones too."""
        return self.settings.broker_ids

    @property
    def bootstrap_servers(self) -> str:
        """All addresses, dead ones too, comma-separated."""
        return ",".join(self.address(broker_id) for broker_id in self.broker_ids)

    @property
    def client_options(self) -> dict[str, str]:
        """What an administrator's client needs besides the addresses, as librdkafka spells it; empty without SASL."""
        return self._record.client_options

    def address(self, broker_id: int, *, listener: str | None = None) -> str:
        """Return `host:port` of a broker, or of one more listener of it; stays the same over kill and restart."""
        name = self.settings.process_name(broker_id)
        return self._record.address(name if listener is None else port_name(broker_id, listener))

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return all addresses of one more listener, comma-separated."""
        return ",".join(self.address(broker_id, listener=listener) for broker_id in self.broker_ids)

    def is_alive(self, broker_id: int) -> bool:
        """Tell whether the broker's process exists (a paused one does)."""
        return self._members().is_alive(broker_id)

    def is_paused(self, broker_id: int) -> bool:
        """Tell whether the broker's process is frozen."""
        return self._members().is_paused(broker_id)

    def process_ids(self) -> dict[str, int]:
        """Return the living processes: `controller` and broker ids as text, to process id."""
        return {name: child.pid for name, child in self._members().children().items() if child.exit_code is None}

    def living_ids(self) -> tuple[int, ...]:
        """Return the brokers that run and are not paused."""
        return self._members().living_ids()

    # -- faults -------------------------------------------------------------------------------------------------

    def kill(self, ids: Collection[int]) -> None:
        """SIGKILL brokers, all at once; returns when they are gone."""
        self._members().signal(ids, signal.SIGKILL)

    def terminate(self, ids: Collection[int], *, deadline_seconds: float = 60.0) -> None:
        """SIGTERM brokers: a controlled shutdown, which hands leaders over first; waits for their end."""
        self._members().signal(ids, signal.SIGTERM)
        wait_until(
            lambda: not any(map(self.is_alive, ids)),
            deadline_seconds=deadline_seconds,
            otherwise=lambda: f"brokers {sorted(ids)} did not shut down",
        )

    def pause(self, ids: Collection[int]) -> None:
        """SIGSTOP brokers: they keep their connections and answer nothing."""
        self._members().signal(ids, signal.SIGSTOP)

    def resume(self, ids: Collection[int]) -> None:
        """SIGCONT brokers."""
        self._members().signal(ids, signal.SIGCONT)

    def restart(self, ids: Collection[int], *, deadline_seconds: float = 90.0) -> None:
        """Start brokers again on their addresses and data, killing those that still run; waits until they answer.

        Raises:
            BrokerStartError: one did not start (for example, its port was taken meanwhile).
            KafkaUnreachableError: not in time.
        """
        self.kill(ids)
        members = self._members()
        for broker_id in ids:
            launch.spawn(members, str(broker_id))
        launch.await_ready(members, ids, time.monotonic() + deadline_seconds, None, may_move=False)

    def heal(self) -> None:
        """Undo what faults did: resume frozen brokers, restart dead ones, wait until metadata lists all.

        Raises:
            BrokerStartError: one did not start. KafkaUnreachableError: not in time.

        Runs: any thread; blocks a moment where all is well, about 5-15 s where brokers are dead.
        """
        self.resume([one for one in self.broker_ids if self.is_paused(one)])
        dead = [one for one in self.broker_ids if not self.is_alive(one)]
        if dead:
            self.restart(dead)
        self.wait_registered(self.broker_ids)

    def wait_registered(self, ids: Collection[int], *, registered: bool = True, deadline_seconds: float = 60.0) -> None:
        """Wait until metadata lists all (or, with `registered=False`, none) of these brokers."""
        launch.await_registered(self._members(), ids, registered=registered, deadline_seconds=deadline_seconds)

    def log_requests(self, *, deadline_seconds: float = 60.0) -> None:
        """Let every broker write one line per request into its log (`logs/<broker id>.log`), until it restarts.

        Raises:
            BrokerStartError: Kafka's own tool failed. KafkaUnreachableError: not in time.

        Runs: any thread; blocks about 2 s per broker (a JVM each).
        """
        members, deadline = self._members(), time.monotonic() + deadline_seconds
        client = members.files.config("client.properties")
        members.files.write_private(client, render(members.record.java_client_options))
        for broker_id in self.broker_ids:
            arguments = ["kafka.admin.ConfigCommand", "--bootstrap-server", self.address(broker_id)]
            arguments += ["--command-config", str(client), "--entity-type", "broker-loggers"]
            arguments += ["--entity-name", str(broker_id), "--alter", "--add-config", "kafka.request.logger=DEBUG"]
            launch.run_tool(members, "configs", arguments, deadline)

    # -- topics -------------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        deadline_seconds: float = 30.0,
    ) -> None:
        """Create a topic and wait until all partitions are led and in sync.

        Args:
            name: The topic.
            partitions: Without `assignment`.
            replication_factor: Without `assignment`.
            config: Topic configuration.
            assignment: Replica ids per partition, the leader first; replaces the two counts.
            deadline_seconds: For creation and for the leaders, each.

        Raises:
            TopicError: refused. KafkaUnreachableError: not in time.
        """
        self._members().admin().create_topic(
            name, partitions=partitions, replication_factor=replication_factor, config=config or {},
            assignment=assignment, deadline_seconds=deadline_seconds,
        )  # fmt: skip

    def add_partitions(
        self, topic: str, total: int, *, await_leaders: bool = True, deadline_seconds: float = 30.0
    ) -> None:
        """Grow a topic to `total` partitions; `await_leaders=False` returns as soon as the cluster accepted it."""
        admin = self._members().admin()
        admin.add_partitions(topic, total, deadline_seconds=deadline_seconds)
        if await_leaders:
            admin.await_leaders(topic, total, deadline_seconds=deadline_seconds)

    def delete_topic(self, topic: str, *, deadline_seconds: float = 30.0) -> None:
        """Delete a topic and wait until it is no longer listed."""
        self._members().admin().delete_topic(topic, deadline_seconds=deadline_seconds)

    def reassign_off(self, ids: Collection[int], *, deadline_seconds: float = 120.0) -> None:
        """Move all replicas, internal topics included, off these brokers and wait until it is done.

        Raises:
            ConfigError: too few brokers would remain. KafkaUnreachableError: not in time.

        Runs: any thread; blocks some seconds (Kafka's own tool runs in a JVM) up to `deadline_seconds`.
        """
        reassign_off(self._members(), ids, deadline_seconds=deadline_seconds)

    # -- inside -------------------------------------------------------------------------------------------------

    def _members(self) -> Members:
        # Built each time: a broker's port may have moved, and the cluster may have ended.
        files = self._files()
        if self._client is None:
            raise StateError("the local cluster is not started")
        return Members(record=self._record, files=files, client=self._client, archive=self._archive)

    def _files(self) -> ClusterFolder:
        if self._folder is None:
            raise StateError("the local cluster is not started")
        return self._folder
