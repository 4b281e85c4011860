"""A real KRaft cluster on this machine: one controller and N brokers, each a JVM of its own.

The JVMs belong to a keeper process (`keeper.py`); this module tells it what to start and to signal.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from discovery.core.errors import ConfigError, DiscoveryError, KafkaUnreachableError, StateError
from discovery.localkafka import properties
from discovery.localkafka.admin import Admin, wait_until
from discovery.localkafka.archive import class_archive
from discovery.localkafka.jars import kafka_jars
from discovery.localkafka.java import java_command
from discovery.localkafka.keeper_client import ChildProcess, KeeperClient, socket_path_for, start_keeper
from discovery.localkafka.layout import CONTROLLER, ClusterFolder, ClusterRecord, held
from discovery.localkafka.ports import Reservation, reserve_ports
from discovery.localkafka.properties import ClusterSettings
from discovery.localkafka.reassign import plan_reassignment, to_json

_DETACHED: list["subprocess.Popen[bytes]"] = []
_PORT_ATTEMPTS = 3
_PORT_TAKEN = ("Address already in use", "Socket server failed to bind")


class BrokerStartError(DiscoveryError):
    """A JVM of the local cluster ended when it should run; carries the last lines of its log."""


class LocalKafka:
    """Owns a cluster from `start` to `stop`; also a context manager. The constructor does no I/O.

    `start` ties the cluster to this process: it ends when this process does, however that ends.
    Methods may be called from any thread, one at a time.
    """

    def __init__(
        self, settings: ClusterSettings | None = None, *, folder: Path | None = None, trained: bool = True
    ) -> None:
        """Remember what to start.

        Args:
            settings: Kind of cluster; three brokers by default.
            folder: Where data and logs go; it is deleted at the end. None: a new temporary folder.
            trained: Start JVMs from the class archive (`archive.py`), made on the first start.
        """
        self._record = ClusterRecord(
            cluster_id=properties.kafka_uuid(),
            settings=settings or ClusterSettings(),
            admin_password=secrets.token_hex(12),
        )
        self._wanted_folder = folder
        self._trained = trained
        self._archive: Path | None = None
        self._folder: ClusterFolder | None = None
        self._client: KeeperClient | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self, *, deadline_seconds: float = 180.0, on_progress: Callable[[int, int], None] | None = None) -> Self:
        """Start everything and wait until all brokers are registered and answer.

        Args:
            deadline_seconds: For the start itself; a first download of jars is not counted.
            on_progress: Gets (brokers that answer, brokers wanted) about every 0.3 s.

        Raises:
            ConfigError: Java missing or too old.
            BrokerStartError: a JVM ended; carries its last words.
            KafkaUnreachableError: not all brokers answered in time.
            StateError: already started.

        Runs: any thread; blocks 8-15 s for 3 brokers, up to `deadline_seconds`.
        """
        if self._client is not None:
            raise StateError("this local cluster is started already; make a new LocalKafka")
        java_command()
        kafka_jars()
        if self._trained:
            self._archive = class_archive(_train)
        deadline = time.monotonic() + deadline_seconds
        try:
            self._prepare()
            self._format_controller(deadline)
            self._spawn(CONTROLLER)
            for broker_id in self.broker_ids:
                self._spawn(str(broker_id))
            self._await_ready(self.broker_ids, deadline, on_progress)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill everything and delete the folder; a second call does nothing. Blocks about 1 s."""
        client, keeper = self._client, self._keeper
        self._client = self._keeper = None
        if client is not None:
            with contextlib.suppress(StateError):
                client.stop()
        if keeper is not None:
            if keeper.stdin:
                keeper.stdin.close()  # also ends a keeper that did not answer
            try:
                keeper.wait(30)
            except subprocess.TimeoutExpired:
                keeper.kill()
                keeper.wait()
        elif client is not None:
            self._await_keeper_gone(client)
        if self._folder is not None:
            self._folder.delete()

    def detach(self) -> None:
        """Let the cluster live on after this process; end it with `attach(folder).stop()`."""
        self._keeper_client().detach()
        if self._keeper:
            _DETACHED.append(self._keeper)  # else Python warns that it is still running, as it should be
        self._keeper = None

    @property
    def is_detached(self) -> bool:
        """Tell whether the cluster runs and does not depend on this process."""
        return self._client is not None and self._keeper is None

    def wait_ended(self, *, timeout_seconds: float) -> bool:
        """Wait until somebody else ended the cluster this process started; False after the timeout."""
        if self._keeper is None:
            raise StateError("this process did not start the local cluster")
        try:
            self._keeper.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @classmethod
    def attach(cls, folder: Path) -> Self:
        """Return a handle on a running cluster that another process started.

        Raises:
            StateError: nothing runs there.
        """
        found = ClusterFolder(folder)
        cluster = cls(folder=folder)
        cluster._record, cluster._folder = found.load(), found
        cluster._client = KeeperClient(cluster._record.socket_path)
        cluster._archive = class_archive(_no_training)
        cluster._children()  # proves that the keeper answers
        return cluster

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

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
        if not self.settings.sasl_users:
            return {}
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": properties.ADMIN_USER,
            "sasl.password": self._record.admin_password,
        }

    def address(self, broker_id: int) -> str:
        """Return `host:port` of a broker; stays the same over kill and restart."""
        return self._record.address(self._name(broker_id))

    def is_alive(self, broker_id: int) -> bool:
        """Tell whether the broker's process exists (a paused one does)."""
        child = self._children().get(self._name(broker_id))
        return child is not None and child.exit_code is None

    def is_paused(self, broker_id: int) -> bool:
        """Tell whether the broker's process is frozen."""
        child = self._children().get(self._name(broker_id))
        return child is not None and child.paused

    def process_ids(self) -> dict[str, int]:
        """Return the living processes: `controller` and broker ids as text, to process id."""
        return {name: child.pid for name, child in self._children().items() if child.exit_code is None}

    def living_ids(self) -> tuple[int, ...]:
        """Return the brokers that run and are not paused."""
        children = self._children()
        return tuple(
            b for b in self.broker_ids
            if (c := children.get(str(b))) is not None and c.exit_code is None and not c.paused
        )  # fmt: skip

    # -- faults -------------------------------------------------------------------------------------------------

    def kill(self, ids: Collection[int]) -> None:
        """SIGKILL brokers, all at once; returns when they are gone."""
        self._signal(ids, signal.SIGKILL)

    def terminate(self, ids: Collection[int], *, deadline_seconds: float = 60.0) -> None:
        """SIGTERM brokers: a controlled shutdown, which hands leaders over first; waits for their end."""
        self._signal(ids, signal.SIGTERM)
        wait_until(
            lambda: not any(map(self.is_alive, ids)),
            deadline_seconds=deadline_seconds,
            otherwise=lambda: f"brokers {sorted(ids)} did not shut down",
        )

    def pause(self, ids: Collection[int]) -> None:
        """SIGSTOP brokers: they keep their connections and answer nothing."""
        self._signal(ids, signal.SIGSTOP)

    def resume(self, ids: Collection[int]) -> None:
        """SIGCONT brokers."""
        self._signal(ids, signal.SIGCONT)

    def restart(self, ids: Collection[int], *, deadline_seconds: float = 90.0) -> None:
        """Start brokers again on their addresses and data, killing those that still run; waits until they answer.

        Raises:
            BrokerStartError: one did not start (for example, its port was taken meanwhile).
            KafkaUnreachableError: not in time.
        """
        self.kill(ids)
        for broker_id in ids:
            self._spawn(str(broker_id))
        self._await_ready(ids, time.monotonic() + deadline_seconds, None, may_move=False)

    def wait_registered(self, ids: Collection[int], *, registered: bool = True, deadline_seconds: float = 60.0) -> None:
        """Wait until metadata lists all (or, with `registered=False`, none) of these brokers."""
        wanted = set(ids)
        admin = self._admin()

        def reached() -> bool:
            listed = admin.registered()
            return bool(listed) and (wanted <= listed if registered else not wanted & listed)

        wait_until(
            reached,
            deadline_seconds=deadline_seconds,
            otherwise=lambda: f"brokers {sorted(wanted)} are {'not all' if registered else 'still'} registered",
        )

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
        self._admin().create_topic(
            name, partitions=partitions, replication_factor=replication_factor, config=config or {},
            assignment=assignment, deadline_seconds=deadline_seconds,
        )  # fmt: skip

    def add_partitions(
        self, topic: str, total: int, *, await_leaders: bool = True, deadline_seconds: float = 30.0
    ) -> None:
        """Grow a topic to `total` partitions; `await_leaders=False` returns as soon as the cluster accepted it."""
        admin = self._admin()
        admin.add_partitions(topic, total, deadline_seconds=deadline_seconds)
        if await_leaders:
            admin.await_leaders(topic, total, deadline_seconds=deadline_seconds)

    def delete_topic(self, topic: str, *, deadline_seconds: float = 30.0) -> None:
        """Delete a topic and wait until it is no longer listed."""
        self._admin().delete_topic(topic, deadline_seconds=deadline_seconds)

    def reassign_off(self, ids: Collection[int], *, deadline_seconds: float = 120.0) -> None:
        """Move all replicas, internal topics included, off these brokers and wait until it is done.

        Raises:
            ConfigError: too few brokers would remain. KafkaUnreachableError: not in time.

        Runs: any thread; blocks some seconds (Kafka's own tool runs in a JVM) up to `deadline_seconds`.
        """
        for broker_id in ids:
            self._name(broker_id)
        deadline = time.monotonic() + deadline_seconds
        admin, leaving = self._admin(), set(ids)
        racks = {broker_id: self.settings.rack_of(broker_id) for broker_id in self.broker_ids}
        changes = plan_reassignment(_placement(admin), leaving=leaving, living=self.living_ids(), racks=racks)
        if not changes:
            return
        self._run_reassignment(to_json(changes), deadline)
        wait_until(
            lambda: _is_off(admin, leaving),
            deadline_seconds=max(1.0, deadline - time.monotonic()),
            otherwise=lambda: f"replicas are still on brokers {sorted(leaving)}",
        )

    # -- inside -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        folder = ClusterFolder(self._wanted_folder or Path(tempfile.mkdtemp(prefix="kafka-discovery-")))
        # A temporary folder is ours alone by its name; a chosen one needs a lock.
        with held(folder.lock() if self._wanted_folder else None) as locks:
            folder.prepare()
            self._folder = folder
            self._start_keeper(folder, locks)
        folder.write_controller(self._record)
        for broker_id in self.broker_ids:
            folder.write_broker(self._record, broker_id)
        folder.save(self._record)

    def _start_keeper(self, folder: ClusterFolder, locks: Sequence[int]) -> None:
        names = [CONTROLLER, *map(str, self.broker_ids)]
        with _reserved(len(names)) as reservations:
            ports = {name: r.port for name, r in zip(names, reservations, strict=True)}
            self._record = replace(self._record, ports=ports, socket_path=socket_path_for(folder.path))
            self._client = KeeperClient(self._record.socket_path)
            inherited = [*locks, *(r.lock_descriptor for r in reservations)]
            self._keeper = start_keeper(folder.path, self._record.socket_path, inherited=inherited)

    def _format_controller(self, deadline: float) -> None:
        config = str(self._files().config(f"{CONTROLLER}.properties"))
        arguments = ["kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", config, "--standalone"]
        self._run_tool("format", arguments, deadline)

    def _run_reassignment(self, plan: str, deadline: float) -> None:
        files = self._files()
        file, client = files.config("reassignment.json"), files.config("client.properties")
        files.write_private(file, plan)
        files.write_private(client, properties.render(self._java_client_options()))
        arguments = ["org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server"]
        arguments += [",".join(map(self.address, self.living_ids())), "--command-config", str(client)]
        self._run_tool("reassign", [*arguments, "--reassignment-json-file", str(file), "--execute"], deadline)

    def _java_client_options(self) -> dict[str, str]:
        if not self.settings.sasl_users:
            return {}
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        login = f'{module} required username="{properties.ADMIN_USER}" password="{self._record.admin_password}";'
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}

    def _run_tool(self, name: str, arguments: Sequence[str], deadline: float) -> None:
        # A child of the keeper like the brokers, so that it cannot outlive us either.
        self._keeper_client().spawn(name, self._java(arguments), self._files().log(name))
        wait_until(
            lambda: self._children()[name].exit_code is not None,
            deadline_seconds=max(1.0, deadline - time.monotonic()),
            otherwise=lambda: f"Kafka's {name} tool did not end",
        )
        if self._children()[name].exit_code != 0:
            raise BrokerStartError(f"Kafka's {name} tool failed: {_last_words(self._files().log(name))}")

    def _spawn(self, name: str) -> None:
        command = self._java(["kafka.Kafka", str(self._files().config(f"{name}.properties"))])
        self._keeper_client().spawn(name, command, self._files().log(name))

    def _java(self, arguments: Sequence[str]) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={self._files().config('log4j2.properties')}"
        jars = os.pathsep.join(map(str, kafka_jars()))
        shared = [f"-XX:SharedArchiveFile={self._archive}"] if self._archive else []
        return [java_command(), *self.settings.jvm_options, *shared, log4j, "-cp", jars, *arguments]

    def _await_ready(
        self,
        ids: Collection[int],
        deadline: float,
        on_progress: Callable[[int, int], None] | None,
        *,
        may_move: bool = True,
    ) -> None:
        attempts = _PORT_ATTEMPTS if may_move else 0
        waiting = set(ids)
        while waiting:
            attempts -= self._revive(waiting, attempts)
            waiting -= {b for b in waiting if _answers(self.address(b), b, self.client_options)}
            if on_progress:
                on_progress(len(ids) - len(waiting), len(ids))
            if waiting and time.monotonic() > deadline:
                raise KafkaUnreachableError(f"brokers {sorted(waiting)} did not answer; logs are in {self.folder}/logs")
        self.wait_registered(ids, deadline_seconds=max(1.0, deadline - time.monotonic()))

    def _revive(self, waiting: Collection[int], attempts: int) -> int:
        """Look for JVMs that ended; move brokers that met a taken port. Returns how many were moved."""
        children = self._children()
        ended = [name for name in (CONTROLLER, *map(str, waiting)) if children[name].exit_code is not None]
        for name in ended:
            log = self._files().log(name)
            if name == CONTROLLER or attempts <= 0 or not _met_taken_port(log):
                raise BrokerStartError(self._why_ended(name, log))
            with _reserved(1) as (reservation,):
                self._record = replace(self._record, ports={**self._record.ports, name: reservation.port})
            self._files().write_broker(self._record, int(name))
            self._files().save(self._record)
            log.unlink()
            self._spawn(name)
        return len(ended)

    def _why_ended(self, name: str, log: Path) -> str:
        who = name if name == CONTROLLER else f"broker {name}"
        if _met_taken_port(log):
            return (
                f"{who}: port {self._record.ports[name]} is taken by another program; stop that program and try again"
            )
        return f"{who} ended while starting: {_last_words(log)}"

    def _signal(self, ids: Collection[int], number: int) -> None:
        self._keeper_client().signal([self._name(broker_id) for broker_id in ids], number)

    def _name(self, broker_id: int) -> str:
        if broker_id not in self.settings.broker_ids:
            raise ConfigError(f"broker {broker_id} does not exist here; choose from 1..{self.settings.brokers}")
        return str(broker_id)

    def _admin(self) -> Admin:
        living = self.living_ids()
        if not living:
            raise KafkaUnreachableError("no broker of the local cluster runs; restart one first")
        return Admin(",".join(map(self.address, living)), self.client_options)

    def _children(self) -> dict[str, ChildProcess]:
        return self._keeper_client().children()

    def _keeper_client(self) -> KeeperClient:
        if self._client is None:
            raise StateError("the local cluster is not started")
        return self._client

    def _await_keeper_gone(self, client: KeeperClient) -> None:
        wait_until(
            lambda: not Path(client.socket_path).exists(),
            deadline_seconds=30,
            otherwise=lambda: "the keeper did not end",
        )

    def _files(self) -> ClusterFolder:
        if self._folder is None:
            raise StateError("the local cluster is not started")
        return self._folder


def _train(archive: Path) -> None:
    """Run one broker and end it well, so that its JVM writes the archive."""
    plain = ClusterSettings(brokers=1)
    options = (*plain.jvm_options, f"-XX:ArchiveClassesAtExit={archive}")
    with LocalKafka(replace(plain, jvm_options=options), trained=False) as cluster:
        cluster.terminate([1])


def _no_training(_: Path) -> None:
    raise StateError("an attached handle does not train")


@contextlib.contextmanager
def _reserved(count: int) -> Iterator[tuple[Reservation, ...]]:
    reservations = reserve_ports(count)
    try:
        yield reservations
    finally:
        for reservation in reservations:
            reservation.release()  # the keeper holds its own copies by now


def _answers(address: str, broker_id: int, options: Mapping[str, str]) -> bool:
    # A broker opens its port only after the controller has unfenced it, so its own answer is the proof.
    found = Admin(address, options).metadata(timeout_seconds=0.3)
    return found is not None and broker_id in found.brokers


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


def _met_taken_port(log: Path) -> bool:
    text = log.read_text(errors="replace") if log.exists() else ""
    return any(sign in text for sign in _PORT_TAKEN)


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line] or lines[-3:]
    return " | ".join(line.strip() for line in telling[-3:])[:600] or "its log is empty"
