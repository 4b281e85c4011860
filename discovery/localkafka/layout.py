"""The folder of one local cluster: who may use it, what is written where, what it remembers."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from discovery.core.errors import ConfigError, StateError
from discovery.localkafka import properties
from discovery.localkafka.keeper.client import read_children
from discovery.localkafka.keeper.process import MARKER_FILE, PROCESSES_FILE
from discovery.localkafka.keeper.processes import ProcessIdentity, is_running, send_signal
from discovery.localkafka.record import ClusterRecord

CLUSTER_FILE = "cluster.json"
CONTROLLER = "controller"
_END_SECONDS = 10.0


class ClusterFolder:
    """Paths and files of one cluster. The constructor does no I/O."""

    def __init__(self, path: Path) -> None:
        """Remember the folder."""
        self.path = path

    def data(self, name: str) -> Path:
        """Where a process keeps its data."""
        return self.path / "data" / name

    def log(self, name: str) -> Path:
        """What a process wrote to standard output and error."""
        return self.path / "logs" / f"{name}.log"

    def config(self, name: str) -> Path:
        """What a process was configured with."""
        return self.path / "config" / name

    def lock(self) -> int:
        """Take the folder for one cluster; held until every copy of the returned descriptor is closed.

        The lock file stands beside the folder, which is deleted when a cluster ends.

        Raises:
            StateError: a cluster is up there.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.parent / f".{self.path.name}.lock"
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StateError(
                f"a local cluster named {self.path.name!r} is up or starting; "
                "use it, end it with `local-kafka down`, or choose another --name"
            ) from None
        return descriptor

    def prepare(self) -> None:
        """Make the folder ready for a new cluster; what a crash left there is ended and deleted first.

        Raises:
            ConfigError: the folder holds files that are not ours.
        """
        self.sweep()
        if self.path.is_dir() and any(self.path.iterdir()):
            raise ConfigError(f"{self.path} holds other files and would be deleted at the end; choose an empty folder")
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / MARKER_FILE).touch()
        for inner in ("logs", "data", "config"):
            (self.path / inner).mkdir()
        self.config("log4j2.properties").write_text(properties.LOG4J)

    def sweep(self) -> list[ProcessIdentity]:
        """Kill what a crashed keeper left running and delete the folder; for holders of the lock only.

        Only processes whose id *and* start time were recorded here are touched.
        """
        ended = [identity for identity in self._recorded_processes() if send_signal(identity, signal.SIGKILL)]
        deadline = time.monotonic() + _END_SECONDS
        while any(map(is_running, ended)) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.delete()
        return ended

    def delete(self) -> None:
        """Delete the folder if it is marked as ours."""
        if (self.path / MARKER_FILE).is_file():
            shutil.rmtree(self.path, ignore_errors=True)

    def write_all(self, record: ClusterRecord) -> None:
        """Write the configuration of every process, then what other processes need."""
        self.write_controller(record)
        for broker_id in record.settings.broker_ids:
            self.write_broker(record, broker_id)
        self.save(record)

    def write_controller(self, record: ClusterRecord) -> None:
        """Write the controller's configuration."""
        wanted = properties.controller_properties(
            record.settings, port=record.ports[CONTROLLER], data=str(self.data(CONTROLLER))
        )
        self._write_properties(CONTROLLER, wanted)

    def write_broker(self, record: ClusterRecord, broker_id: int) -> None:
        """Write a broker's configuration, and format its data folder if it is new."""
        name = str(broker_id)
        wanted = properties.broker_properties(
            record.settings,
            broker_id,
            port=record.ports[name],
            controller_port=record.ports[CONTROLLER],
            data=str(self.data(name)),
            admin_password=record.admin_password,
            listener_ports={
                listener: record.ports[properties.port_name(broker_id, listener)]
                for listener in record.settings.listeners
            },
        )
        self._write_properties(name, wanted)
        meta = self.data(name) / "meta.properties"
        if not meta.exists():
            meta.parent.mkdir(exist_ok=True)
            meta.write_text(properties.meta_properties(cluster_id=record.cluster_id, broker_id=broker_id))

    def write_private(self, file: Path, text: str) -> None:
        """Write a file that only this user may read, whole or not at all."""
        scratch = file.with_name(f"{file.name}.tmp")
        scratch.touch(mode=0o600)
        scratch.write_text(text)
        scratch.replace(file)

    def save(self, record: ClusterRecord) -> None:
        """Remember the cluster for other processes."""
        self.write_private(self.path / CLUSTER_FILE, record.to_json())

    def load(self) -> ClusterRecord:
        """Return what was saved.

        Raises:
            StateError: nothing was, or it cannot be read.
        """
        try:
            return ClusterRecord.from_json((self.path / CLUSTER_FILE).read_text())
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"no local cluster named {self.path.name!r} is up; start one with `kafka-discovery local-kafka up`"
            ) from error

    def _write_properties(self, name: str, wanted: Mapping[str, str]) -> None:
        self.write_private(self.config(f"{name}.properties"), properties.render(wanted))

    def _recorded_processes(self) -> list[ProcessIdentity]:
        try:
            saved = json.loads((self.path / PROCESSES_FILE).read_text())
            children = read_children(saved).values()
            keeper = ProcessIdentity(**saved["keeper"])
        except (OSError, ValueError, KeyError, TypeError):
            return []  # nothing readable was recorded: then nothing may be touched
        return [keeper, *(child.identity for child in children if child.identity)]


@contextlib.contextmanager
def held(descriptor: int | None) -> Iterator[tuple[int, ...]]:
    """Close this process's copy of a lock at the end of the block; a keeper's copy lives on."""
    try:
        yield () if descriptor is None else (descriptor,)
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextlib.contextmanager
def writable(folder: Path | None) -> Iterator[None]:
    """Turn what a disk refuses into one line that names the folder (None: a temporary one) and the remedy."""
    try:
        yield
    except OSError as error:
        where, variable = (folder, "XDG_STATE_HOME") if folder else ("the temporary folder", "TMPDIR")
        raise StateError(
            f"the cluster's files cannot be written to {where}: {error.strerror or error}; "
            f"free some space there, or set {variable} to a folder you may write"
        ) from error
