"""A Docker engine of our own in a network namespace of its own, with stand-ins for images that cannot be pulled.

Images and layers stay in build/stack between runs; containers, networks and volumes do not.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from discovery.localkafka.jars.download import kafka_jars
from tests.support.debian_tools import find
from tests.support.helpers import eventually

CACHE = Path("build/stack").resolve()
_FILES = Path(__file__).parent / "standins"
_NAMESPACE = "kd-stack"
_SHARE = Path("/usr/share/prometheus")
"""Debian's binaries look for their templates there."""
_ROOTFS = "python3,python3-venv,python3-pip,ca-certificates,openjdk-17-jre-headless,busybox"
_NEEDED = ("ip", "nsenter", "iptables", "dockerd", "docker", "docker-compose", "mmdebstrap", "prometheus",
           "prometheus-alertmanager")  # fmt: skip


def missing() -> str | None:
    """Say what this machine lacks to run containers, or None."""
    lacking = [name for name in _NEEDED if find(name) is None]
    if lacking:
        packages = "docker.io docker-compose mmdebstrap iptables iproute2 prometheus prometheus-alertmanager"
        return f"no {', '.join(lacking)} here: apt-get install --no-install-recommends {packages}"
    if os.geteuid() != 0:
        return "only root may make a network namespace and run dockerd"
    tried = subprocess.run(["ip", "netns", "add", f"{_NAMESPACE}-try"], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", f"{_NAMESPACE}-try"], capture_output=True, check=False)
    return None if tried.returncode == 0 else f"no network namespace can be made here: {tried.stderr.strip()}"


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine."""

    socket: str
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """What its clients need."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**kept, "DOCKER_HOST": self.socket, "COMPOSE_HTTP_TIMEOUT": "300", "DOCKER_BUILDKIT": "0"}

    def run(self, *command: str, timeout: float = 300, more: Mapping[str, str] | None = None) -> str:
        """Run a client and return what it says; fail with its words."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**self.environment, **(more or {})},
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def inside(self, *command: str, timeout: float = 60) -> str:
        """Run a program in the engine's network, where published ports are."""
        return self.run("nsenter", f"--net=/run/netns/{_NAMESPACE}", *command, timeout=timeout)

    def get(self, address: str) -> str:
        """Ask an HTTP address in the engine's network."""
        code = "import sys,urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())"
        return self.inside(sys.executable, "-c", code, address)


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """Run an engine until the end of the block; skips the test where that is impossible."""
    if reason := missing():
        pytest.skip(reason)
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path("/tmp") / f"{_NAMESPACE}-{os.getpid()}"  # noqa: S108 - a socket's path must be short
    folder.mkdir(mode=0o700)
    subprocess.run(["ip", "netns", "delete", _NAMESPACE], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "add", _NAMESPACE], check=True)
    subprocess.run(["ip", "-n", _NAMESPACE, "link", "set", "lo", "up"], check=True)
    log, socket = CACHE / "dockerd.log", f"unix://{folder}/sock"
    with log.open("w") as out:
        daemon = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{_NAMESPACE}", "dockerd", "--data-root", str(CACHE / "docker"),
             "--exec-root", str(folder / "exec"), "-p", str(folder / "pid"), "-H", socket,
             "--default-ulimit", "nofile=1024:1024"],
            stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    started = Engine(socket, log)
    try:
        eventually(lambda: _answers(started, daemon), 90, "an answer of dockerd")
        yield started
    finally:
        daemon.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(60)
        daemon.kill()
        daemon.wait(30)
        subprocess.run(["ip", "netns", "delete", _NAMESPACE], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(started: Engine, daemon: "subprocess.Popen[bytes]") -> bool:
    assert daemon.poll() is None, f"dockerd ended: {started.log.read_text()[-2000:]}"
    asked = subprocess.run(["docker", "info"], env=started.environment, capture_output=True, timeout=30, check=False)
    return asked.returncode == 0


def build_standins(on: Engine) -> None:
    """Build what cannot be pulled, under the official names; what is there already stays."""
    _import_base(on)
    _build(on, "python:3.11-slim-bookworm", "python", {"wheels": _wheels()})
    _build(on, "eclipse-temurin:17-jre-jammy", "java", {})
    jars = kafka_jars()[0].parent
    scripts = {name: _FILES / name for name in ("kafka-run", "kafka-topics.sh")}
    _build(on, "apache/kafka:4.1.0", "kafka", {"jars": jars, **scripts})
    for image, program in (
        ("prom/prometheus:v2.53.2", "prometheus"),
        ("prom/alertmanager:v0.27.0", "prometheus-alertmanager"),
    ):
        found = find(program)
        assert found is not None
        _build(on, image, "prometheus", {"program": Path(found), "share": _SHARE})


def base_archive() -> Path:
    """Return Debian with Python and Java as one layer, made once."""
    archive = CACHE / "base.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = CACHE / "base.partial.tar"
        command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={_ROOTFS}", "bookworm"]
        subprocess.run([*command, str(partial)], check=True, timeout=600, capture_output=True)
        partial.rename(archive)
    return archive


def _import_base(on: Engine) -> None:
    if not on.run("docker", "images", "-q", "standin/base:latest").strip():
        on.run("docker", "import", str(base_archive()), "standin/base:latest")


def _wheels() -> Path:
    """Return a folder with every package of the images, downloaded once per set of requirements."""
    files = [Path("requirements") / name for name in ("run.txt", "sidecar.txt", "build.txt")]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    folder = CACHE / f"wheels-{digest}"
    if not folder.exists():
        partial = CACHE / f"wheels-{digest}.partial"
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(partial)]
        for file in files:
            subprocess.run([*pip, "--require-hashes", "-r", str(file)], check=True, timeout=900)
        # PySpark is a source package: pip builds it, and asks for these two.
        subprocess.run([*pip, "setuptools", "wheel", "packaging"], check=True, timeout=300)
        partial.rename(folder)
    return folder


def _build(on: Engine, image: str, dockerfile: str, content: Mapping[str, Path]) -> None:
    context = CACHE / "context" / dockerfile
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    for name, source in content.items():
        if source.is_dir():
            shutil.copytree(source, context / name, copy_function=_link)
        else:
            shutil.copy(source, context / name)
    file = _FILES / f"{dockerfile}.Dockerfile"
    on.run("docker", "build", "--pull=false", "-q", "-t", image, "-f", str(file), str(context), timeout=600)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy(source, target)


def containers(on: Engine) -> list[dict[str, str]]:
    """Return every container with name, state and health."""
    lines = on.run("docker", "ps", "--all", "--format", "{{json .}}").splitlines()
    return [json.loads(line) for line in lines]
