"""The systems that are compared: how each is started, and where it tells what went wrong."""

import json
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.harness import NATIVE, OURS
from benchmarks.peers.flink import job_command
from benchmarks.peers.program import Place, System, helper
from benchmarks.peers.told import NOTHING, java_cause, short, spark_cause
from spark_jobs.progress.reports import line, read_reports


class Native(System):
    """Spark's own source, started again by whoever runs it a second after its death."""

    name = "native"
    source = NATIVE

    def command(self, servers: str) -> list[str]:
        """Run the Spark job with the options."""
        options = [f"{name}={value}" for name, value in self.options(servers).items()]
        folder = self.place.folder
        paths = [str(self.place.rows), str(folder / "checkpoint")]
        return [sys.executable, "-m", "benchmarks.peers.spark_job", self.source, self.place.topic, *paths, *options]

    def options(self, servers: str) -> dict[str, str]:
        """Name the list."""
        return {"kafka.bootstrap.servers": servers}

    def restarts(self, since: float) -> int:
        """Count the deaths of its query."""
        return sum(at > since for at, _ in self.program.events("died"))

    def told(self, since: float) -> str:
        """Return the exception it last died of."""
        died = [text for at, text in self.program.events("died") if at > since]
        return spark_cause(died[-1]) if died else NOTHING


class Endpoint(Native):
    """Spark's own source behind the local bootstrap endpoint, which knows the list and outlives the job."""

    name = "endpoint"
    _address = ""

    def options(self, servers: str) -> dict[str, str]:
        """Name the endpoint; it is started with the first list."""
        if not self._address:
            state = str(self.place.folder / "endpoint-state")
            arguments = ("endpoint", "--bootstrap", servers, "--port", "0", "--state-dir", state)
            self._address = self.stack.enter_context(helper(self.place, "endpoint", *arguments))["endpoint"]
        return {"kafka.bootstrap.servers": self._address}


class Ours(Native):
    """Our source with a loop of its own."""

    name = "ours"
    source = OURS

    def options(self, servers: str) -> dict[str, str]:
        """Name the source, so that batches may be cut, and keep its state beside the checkpoint."""
        return {"kafka.bootstrap.servers": servers, "sourceId": "peers", "stateDir": str(self._state)}

    @property
    def _state(self) -> Path:
        return self.place.folder / "state"

    def told(self, since: float) -> str:
        """Return the exception it last died of, else the source's sentence."""
        died = super().told(since)
        sentences = [line(report) for report in read_reports(self._state)]
        return died if died != NOTHING else short(" / ".join(sentences))


class Sidecar(Ours):
    """Our source following a service, which knows the list and outlives the job."""

    name = "sidecar"
    _url = ""

    def options(self, servers: str) -> dict[str, str]:
        """Name the service; it is started with the first list."""
        if not self._url:
            state = str(self.place.folder / "service-state")
            arguments = ("serve", "--bootstrap", servers, "--port", "0", "--probe-port", "0", "--state-dir", state)
            self._url = self.stack.enter_context(helper(self.place, "service", *arguments, "--no-endpoint"))["api"]
        return {**super().options(servers), "discoveryUrl": self._url}


class Flink(System):
    """Flink's KafkaSource; restored from its last checkpoint when it is started again."""

    name = "flink"
    source = "kafka"
    _port = 0

    def command(self, servers: str) -> list[str]:
        """Run the job on a mini-cluster of its own."""
        self._port = _free_port()
        folder = self.place.folder
        checkpoints = folder / "checkpoints"
        arguments = [self.source, servers, self.place.topic, self.place.rows, checkpoints, self._port]
        return [*job_command(), *map(str, arguments), _newest(checkpoints)]

    def restarts(self, since: float) -> int:
        """Count how often the job went down, by its status."""
        return sum(at > since and status == "RESTARTING" for at, status in self.program.events("status"))

    def told(self, since: float) -> str:
        """Return the last failure as Flink's own API tells it: the innermost cause."""
        jobs = self.program.events("job")
        found = self._ask(f"/jobs/{jobs[-1][1]}/exceptions") if jobs else {}
        entries = [e for e in found.get("exceptionHistory", {}).get("entries", []) if e["timestamp"] / 1000 > since]
        if not entries:
            return NOTHING
        last = max(entries, key=lambda entry: int(entry["timestamp"]))
        return java_cause(str(last["stacktrace"]))

    def _ask(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as answer:
                return dict(json.load(answer))
        except (urllib.error.URLError, OSError, ValueError):
            return {}


class DynamicFlink(Flink):
    """Flink's DynamicKafkaSource over its single-cluster metadata service."""

    name = "flink_dynamic"
    source = "dynamic"


SYSTEMS: dict[str, type[System]] = {one.name: one for one in (Native, Flink, DynamicFlink, Ours, Sidecar, Endpoint)}


def make(name: str, place: Place) -> System:
    """Return a system, not started."""
    return SYSTEMS[name](place)


def _newest(checkpoints: Path) -> str:
    done = [path.parent for path in checkpoints.glob("*/chk-*/_metadata")]
    return f"file://{max(done, key=lambda path: path.stat().st_mtime)}" if done else ""


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
