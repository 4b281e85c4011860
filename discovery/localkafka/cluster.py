"""A real KRaft cluster on this machine: one controller and N brokers, each a JVM of its own.

The JVMs belong to a keeper process (`keeper.py`); `launch.py` starts them, `handle.py` speaks to them. This module
decides when a cluster begins and ends.
"""

import secrets
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from discovery.config.java import java_command
from discovery.core.errors import StateError
from discovery.localkafka import launch
from discovery.localkafka.archive import class_archive
from discovery.localkafka.handle import ClusterHandle
from discovery.localkafka.jars.download import kafka_jars
from discovery.localkafka.keeper.client import KeeperClient, end_keeper, socket_path_for, start_keeper
from discovery.localkafka.launch import BrokerStartError, Progress
from discovery.localkafka.layout import CONTROLLER, ClusterFolder, held, writable
from discovery.localkafka.properties import ClusterSettings, kafka_uuid, port_names
from discovery.localkafka.record import ClusterRecord

__all__ = ["BrokerStartError", "ClusterSettings", "LocalKafka"]

_DETACHED: list["subprocess.Popen[bytes]"] = []


class LocalKafka(ClusterHandle):
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
        super().__init__(
            ClusterRecord(
                cluster_id=kafka_uuid(), settings=settings or ClusterSettings(), admin_password=secrets.token_hex(12)
            )
        )
        self._wanted_folder = folder
        self._trained = trained
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self, *, deadline_seconds: float = 180.0, on_progress: Progress | None = None) -> Self:
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
            members = self._members()
            launch.format_controller(members, deadline)
            for name in (CONTROLLER, *map(str, self.broker_ids)):
                launch.spawn(members, name)
            self._record = launch.await_ready(members, self.broker_ids, deadline, on_progress).record
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill everything and delete the folder; a second call does nothing. Blocks about 1 s."""
        client, keeper = self._client, self._keeper
        self._client = self._keeper = None
        if client is not None:
            end_keeper(client, keeper)
        if self._folder is not None:
            self._folder.delete()

    def detach(self) -> None:
        """Let the cluster live on after this process; end it with `attach(folder).stop()`."""
        self._members().client.detach()
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
        cluster._members().children()  # proves that the keeper answers
        return cluster

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def _prepare(self) -> None:
        with writable(self._wanted_folder):
            folder = ClusterFolder(self._wanted_folder or Path(tempfile.mkdtemp(prefix="kafka-discovery-")))
            # A temporary folder is ours alone by its name; a chosen one needs a lock.
            with held(folder.lock() if self._wanted_folder else None) as locks:
                folder.prepare()
                self._folder = folder
                self._start_keeper(folder, locks)
            folder.write_all(self._record)

    def _start_keeper(self, folder: ClusterFolder, locks: Sequence[int]) -> None:
        names = [CONTROLLER, *(port for b in self.broker_ids for port in port_names(self.settings, b))]
        with launch.reserved(len(names)) as reservations:
            ports = {name: r.port for name, r in zip(names, reservations, strict=True)}
            self._record = replace(self._record, ports=ports, socket_path=socket_path_for(folder.path))
            self._client = KeeperClient(self._record.socket_path)
            inherited = [*locks, *(r.lock_descriptor for r in reservations)]
            self._keeper = start_keeper(folder.path, self._record.socket_path, inherited=inherited)


def _train(archive: Path) -> None:
    """Run one broker and end it well, so that its JVM writes the archive."""
    plain = ClusterSettings(brokers=1)
    options = (*plain.jvm_options, f"-XX:ArchiveClassesAtExit={archive}")
    with LocalKafka(replace(plain, jvm_options=options), trained=False) as cluster:
        cluster.terminate([1])


def _no_training(_: Path) -> None:
    raise StateError("an attached handle does not train")
