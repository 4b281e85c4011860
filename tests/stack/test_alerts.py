"""Every alert fires and resolves for real, and its runbook is walked through once it was delivered.

The service, Prometheus, Alertmanager and the brokers are real; the rules are those of production with minutes shortened
to seconds. Prints a table: alert, fault, seconds until it was delivered, seconds until its end was.
"""

import contextlib
import datetime as dt
import json
import os
import re
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import pytest
import trustme

from deploy.generate import tried_table
from deploy.source.alerts import ALERTS
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import PLAIN_LOGIN, ClusterSettings
from tests.stack.monitoring import EXTERNAL, Heard, monitoring
from tests.support.helpers import eventually
from tests.support.ports import service_ports
from tests.support.results import commit
from tests.support.runbooks import SHOWS, found, run, sh_blocks, variables
from tests.support.service import ServiceProcess

pytestmark = [pytest.mark.kafka, pytest.mark.expects_bug, pytest.mark.timeout(1500)]
_DEADLINE_SECONDS = 120.0
_OLD_LIST = (1, 4, 5)
"""What the service is configured with: two of the three are removed."""
_CONNECTIONS = 40


@dataclass
class Scene:
    """Everything that is up."""

    kafka: LocalKafka
    other: LocalKafka
    """Another cluster of one broker; it also has a listener with logins."""
    folder: Path
    disk: Path
    """A file system of 256 KB with the state folder in it."""
    service: ServiceProcess
    heard: Heard
    rows: list[tuple[str, str, float, float]] = field(default_factory=list)

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    def configure(self, *more: str, login: str = "right", broken: str = "") -> None:
        """Write the configuration; the service takes it in by itself within seconds."""
        _configure(self.config, self.kafka, self.other, more, login=login, broken=broken)


def _configure(
    file: Path, kafka: LocalKafka, other: LocalKafka, more: Sequence[str] = (), *, login: str, broken: str = ""
) -> None:
    listed = [*(kafka.address(b) for b in _OLD_LIST), *more]
    jaas = f'{PLAIN_LOGIN} required username=\\"reader\\" password=\\"{login}\\";'
    text = f"""{broken}
silence_seconds = 600
[api]
waiters_max = 20
connections_max = {_CONNECTIONS}
[loop]
quarantine_cap_seconds = 2
vet_interval_seconds = 2
staleness_seconds = 15
[clusters.main]
bootstrap_servers = {json.dumps(listed)}
[clusters.secure]
bootstrap_servers = "{other.address(1, listener="LOGIN")}"
[clusters.secure.client]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "PLAIN"
"sasl.jaas.config" = "{jaas}"
"ssl.truststore.type" = "PEM"
"ssl.truststore.location" = "{file.parent}/authority.pem"
"""
    _write(file, text)


def _write(file: Path, text: str) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def _authority(file: Path, *, days: float) -> None:
    """Write a certificate that expires then; the service takes it in by itself within seconds."""
    leaf = trustme.CA().issue_cert("b", not_after=dt.datetime.now(dt.UTC) + dt.timedelta(days=days))
    _write(file, leaf.cert_chain_pems[0].bytes().decode())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{PLAIN_LOGIN} required user_reader="right";',
    }
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(_small_disk(tmp_path / "disk"))
        kafka = stack.enter_context(LocalKafka(ClusterSettings(brokers=5)))
        other = stack.enter_context(LocalKafka(ClusterSettings(brokers=1, listeners={"LOGIN": login})))
        kafka.create_topic("events", 5, 3)
        _authority(tmp_path / "authority.pem", days=90)
        _configure(tmp_path / "config.toml", kafka, other, login="right")
        arguments = ("--config", str(tmp_path / "config.toml"), "--state-dir", str(disk / "state"), "--json")
        program = ("-m", "tests.stack.serve_with_faults", "serve")
        service = stack.enter_context(
            ServiceProcess(*arguments, *service_ports(), log=tmp_path / "service.log", program=program)
        )
        heard = stack.enter_context(monitoring(service.probes.removeprefix("http://"), tmp_path))
        made = Scene(kafka, other, tmp_path, disk, service, heard)
        eventually(
            lambda: all(_state(service, c) == "fresh" for c in ("main", "secure")), 60, "a view of both clusters"
        )
        yield made


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """Mount a file system that can be filled: only root may."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here, so no disk can be filled: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _state(service: ServiceProcess, cluster: str) -> str:
    return str(service.json(f"/v1/clusters/{cluster}/status").get("state"))


@dataclass
class Fault:
    """What is done, which alerts it must fire, and how it is undone."""

    name: str
    alerts: tuple[str, ...]
    begin: Callable[[], object]
    end: Callable[[], object]
    runbooks: bool = True
    """Whether the service can answer the runbook's commands while the fault lasts; else they say that it does not."""


def play(scene: Scene, *faults: Fault) -> None:
    """Begin the faults, wait until their alerts are delivered, walk through the runbooks, undo, wait for the end."""
    began = time.monotonic()
    for fault in faults:
        fault.begin()
    named = [(alert, fault.name) for fault in faults for alert in fault.alerts]
    for alert, name in named:
        eventually(partial(scene.heard.fired, alert, began), _DEADLINE_SECONDS, f"{alert} after {name}")
    for alert, _ in named:
        walk_through(scene, alert)
    seconds = {alert: (scene.heard.fired(alert, began) or began) - began for alert, _ in named}
    ended = time.monotonic()
    for fault in faults:
        fault.end()
    for alert, name in named:
        eventually(partial(scene.heard.is_over, alert), _DEADLINE_SECONDS, f"the end of {alert} after {name}")
        over = max(0.0, max(scene.heard.resolved[alert].values()) - ended)  # some end by themselves
        scene.rows.append((alert, name, seconds[alert], over))


def walk_through(scene: Scene, alert: str) -> None:
    """Run every block of the alert's page in deploy/runbooks as it stands; they must show the fault."""
    known = {
        "API": f"{scene.service.api}",
        "PROBES": scene.service.probes,
        "CLUSTER": "secure" if alert == "DiscoveryAuthFailing" else "main",
        "CONFIG": str(scene.config),
        "STATE_DIR": str(scene.disk / "state"),
        "BOOTSTRAP": ",".join(scene.kafka.address(b) for b in _OLD_LIST),
        "LOG": str(scene.service.log),
        "PID": str(scene.service.pid),
        "TMPDIR": str(scene.folder),
    }
    reported = ""
    for block in sh_blocks(alert):
        reported += run(block, variables(**known))
        _COMMANDS.append(block.place)
    assert found(SHOWS[alert], reported), f"the runbook of {alert} does not show the fault:\n{reported[-4000:]}"


_COMMANDS: list[str] = []


class Silent(list[socket.socket]):
    """Connections that say nothing."""

    def open(self, api: str, count: int) -> None:
        """Open so many more."""
        host, _, port = api.removeprefix("http://").partition(":")
        self += [socket.create_connection((host, int(port)), timeout=30) for _ in range(count)]

    def close(self) -> None:
        """Close all."""
        while self:
            self.pop().close()


def _leave_descriptors(pid: int, count: int) -> None:
    """Lower a process's limit of open files to so many more than it has open."""
    wanted = len(list(Path(f"/proc/{pid}/fd").iterdir())) + count
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (wanted, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))


def _fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 512)


class Follower(threading.Thread):
    """A consumer that reports every second and applies nothing until asked to."""

    def __init__(self, api: str) -> None:
        super().__init__()
        self.api, self.acked, self.stopped = api, 0, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(1.0):
            body = {"instance": "test", "cluster": "main", "acked_generation": self.acked}
            with contextlib.suppress(httpx.HTTPError):
                httpx.put(f"{self.api}/v1/consumers/dau", json=body, timeout=5, trust_env=False)


def test_given_each_fault_when_it_comes_and_goes_then_its_alerts_are_delivered_and_resolved(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    follower = Follower(scene.service.api)
    follower.start()
    try:
        _play_all(scene, follower)
    finally:
        follower.stopped.set()
        follower.join()
    took_seconds = time.monotonic() - began
    assert {row[0] for row in scene.rows} == {alert.name for alert in ALERTS}
    assert {labels["cluster"] for labels in scene.heard.labels.values()} == {EXTERNAL}
    assert {labels.get("kafka_cluster") for labels in scene.heard.labels.values()} == {"main", "secure", None}
    federated = scene.heard.federated("kafka_discovery_snapshot_generation")
    assert sorted((one["kafka_cluster"], one["cluster"]) for one in federated) == [
        ("main", EXTERNAL),
        ("secure", EXTERNAL),
    ]
    for name, annotations in scene.heard.annotations.items():
        assert (
            not re.search(r"no value|error|\{\{", " ".join(annotations.values()), re.IGNORECASE)
            or "error" in name.lower()
        ), annotations
    with capfd.disabled():
        note(scene, took_seconds)


def _play_all(scene: Scene, follower: Follower) -> None:
    service, kafka = scene.service, scene.kafka
    foreign = scene.other.address(1)

    def caught_up() -> None:
        follower.acked = service.json("/v1/clusters/main/status")["generation"] + 1_000

    def free() -> None:
        (scene.disk / "filler").unlink()

    play(
        scene,
        Fault("full disk", ("DiscoveryStateWriteFailing",), lambda: _fill(scene.disk), free),
        Fault("two of five brokers killed", ("DiscoveryShrinkBlocked", "DiscoveryBootstrapRedundancyLost"),
              lambda: kafka.kill([4, 5]), lambda: kafka.restart([4, 5])),
        Fault("a consumer that applies nothing", ("DiscoveryConsumerLagging",), lambda: None, caught_up),
    )  # fmt: skip
    play(
        scene,
        Fault("an address of another cluster listed", ("DiscoveryBootstrapBrokerRejected", "DiscoveryClusterMismatch"),
              lambda: scene.configure(foreign, login="wrong"), lambda: None),
        Fault("a wrong password", ("DiscoveryAuthFailing",), lambda: None, scene.configure),
        Fault("a certificate that expires in an hour", ("DiscoveryCertificateExpiring",),
              lambda: _authority(scene.folder / "authority.pem", days=1 / 24),
              lambda: _authority(scene.folder / "authority.pem", days=90)),
    )  # fmt: skip
    play(
        scene,
        # Not beside a change that is taken in: a loop that is replaced begins its counters again.
        Fault("an unexpected error", ("DiscoveryUnexpectedErrors",), lambda: service.say("fail"), lambda: None),
        Fault("a mistake in the configuration", ("DiscoveryConfigReloadFailed",),
              lambda: scene.configure(broken="no_such_setting = 1"), scene.configure),
    )  # fmt: skip
    _exhaust(scene)
    play(
        scene,
        Fault("all brokers frozen", ("DiscoveryFailsafeActive", "DiscoverySnapshotStale"),
              lambda: kafka.pause(kafka.broker_ids), lambda: kafka.resume(kafka.broker_ids)),
    )  # fmt: skip
    play(
        scene,
        Fault("the loop frozen", ("DiscoveryLoopStalled",), lambda: service.say("freeze"), lambda: service.say("thaw")),
    )
    play(
        scene,
        Fault("the process frozen", ("DiscoveryTargetMissing",), lambda: service.send(signal.SIGSTOP),
              lambda: service.send(signal.SIGCONT)),
    )  # fmt: skip


def _exhaust(scene: Scene) -> None:
    pid, silent = scene.service.pid, Silent()
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    play(
        scene,
        Fault("more silent connections than places", ("DiscoveryResourcesExhausted",),
              lambda: silent.open(scene.service.api, _CONNECTIONS + 5), silent.close),
    )  # fmt: skip
    play(
        scene,
        Fault("hardly a descriptor left", ("DiscoveryResourcesExhausted",), lambda: _leave_descriptors(pid, 3),
              lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, before)),
    )  # fmt: skip


def note(scene: Scene, seconds: float) -> None:
    """Write what was seen: `python -m deploy.generate` makes the table of the how-to from a committed copy."""
    rows = [
        {"alert": alert, "fault": fault, "fired_after_seconds": round(fired), "resolved_after_seconds": round(over)}
        for alert, fault, fired, over in scene.rows
    ]
    seen = {
        "commit": commit(),
        "cores": os.cpu_count(),
        "seconds": round(seconds),
        "runbook_blocks": len(_COMMANDS),
        "alerts": rows,
    }
    target = Path(os.environ.get("ALERTS_RESULT", "build/alerts.json"))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(seen, indent=2) + "\n", encoding="utf-8")
    print("\n\n" + tried_table(seen))  # noqa: T201 - what `make test-alerts` is asked for
