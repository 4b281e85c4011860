"""The systems that are compared: how each is started, and where it tells what went wrong."""

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.harness import NATIVE, OURS
from benchmarks.peers.flink import job_command
from benchmarks.peers.program import Place, System, helper
from benchmarks.peers.reported import NOTHING, java_cause, short, spark_cause
from discovery.spark.progress.reports import line, read_reports
from tests.support.ports import free_port


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

    def reported(self, since: float) -> str:
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

    def reported(self, since: float) -> str:
        """Return the exception it last died of, else the source's sentence."""
        died = super().reported(since)
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
        self._port = free_port()
        folder = self.place.folder
        checkpoints = folder / "checkpoints"
        arguments = [self.source, servers, self.place.topic, self.place.rows, checkpoints, self._port]
        return [*job_command(), *map(str, arguments), _newest(checkpoints)]

    def restarts(self, since: float) -> int:
        """Count the failures Flink tells of: it restarts after each, too quickly for its status to be asked."""
        return len(self._failures(since))

    def reported(self, since: float) -> str:
        """Return the last failure as Flink's own API tells it: the innermost cause."""
        failures = self._failures(since)
        return java_cause(str(failures[-1]["stacktrace"])) if failures else NOTHING

    def _failures(self, since: float) -> list[dict[str, Any]]:
        jobs = self.program.events("job")
        if not jobs:
            return []
        history = self._ask(f"/jobs/{jobs[-1][1]}/exceptions?maxExceptions=1000")["exceptionHistory"]["entries"]
        recent = [dict(one) for one in history if one["timestamp"] / 1000 > since]
        return sorted(recent, key=lambda one: int(one["timestamp"]))

    def _ask(self, path: str) -> dict[str, Any]:
        # A busy machine, not Kafka, keeps this one waiting: no answer at all is no cell, rather than a false one.
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=60) as answer:
            return dict(json.load(answer))


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
