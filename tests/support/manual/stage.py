"""Where snippets are run: a folder, real brokers, and the names a page uses made to mean them."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from discovery.spark.launch.python import worker_python
from tests.support.endpoint import CONSUMER, tool_command
from tests.support.helpers import eventually
from tests.support.manual.markdown import RUNNABLE, SHELL, Block, blocks
from tests.support.ports import free_port
from tests.support.service import ServiceProcess, serving

_TOOLS = {
    "kafka-console-consumer.sh": CONSUMER,
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}
_FOLDERS = ("/data", "/checkpoints", "/mnt/state", "/var/lib/kafka-discovery", "/run/kafka-discovery")
_TOPICS = ("events", "orders-eu", "visits", "access-log", "events-eu", "copied", "reports")
WITH_SPARK = (Path("docs/how-to/take-over.md"),)
"""Pages of shell alone that need what Spark writes."""
_ADDRESS = re.compile(r"\bb(\d):909[23]\b")
_FREE_PORTS = {"kafka-discovery serve ": "--port 0 --probe-port 0 "}
_BLOCK_SECONDS = 300.0
_UP_SECONDS = 60.0


class Brokers(Protocol):
    """What a stage needs of a cluster; `LocalKafka` is one."""

    @property
    def bootstrap_servers(self) -> str:
        """All addresses."""
        ...

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """From 1 on."""
        ...

    def address(self, broker_id: int) -> str:
        """Where one listens."""
        ...

    def create_topic(self, name: str, partitions: int, *, replication_factor: int) -> None:
        """Make a topic."""
        ...


class Stage:
    """One page's world. Close it, or use `staged`."""

    def __init__(self, folder: Path, cluster: Brokers, topic: str) -> None:
        """Make the folders the pages write to and the tools they call; `topic` begins the names of its topics."""
        self.folder, self.cluster, self.topic = folder, cluster, topic
        self._ending = contextlib.ExitStack()
        self._service: ServiceProcess | None = None
        for name in ("bin", "work", *(path.strip("/") for path in _FOLDERS)):
            (folder / name).mkdir(parents=True)
        for name, tool in _TOOLS.items():
            script = folder / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {shlex.join(tool_command(tool, []))} "$@"\n')
            script.chmod(0o755)

    def close(self) -> None:
        """End the service and the cluster that a page started, if there are any."""
        if (self.folder / "state/kafka-discovery/local-kafka").exists():
            down = ["kafka-discovery", "local-kafka", "down"]
            subprocess.run(down, env=self.environment(), capture_output=True, timeout=_UP_SECONDS, check=False)
        self._ending.close()

    def service(self) -> ServiceProcess:
        """Return the service that pages speak of, which follows these brokers; started when first asked for."""
        if self._service is None:
            followed = serving(self.cluster.bootstrap_servers, self.folder, "--state-dir", str(self.folder / "service"))
            self._service = self._ending.enter_context(followed)
        return self._service

    def adapted(self, text: str) -> str:
        """Return a snippet with the names of the page replaced by those of this stage, and nothing else changed."""
        text = _ADDRESS.sub(self._address, text)
        for path in _FOLDERS:
            text = re.sub(rf"(?<![\w.]){path}\b", f"{self.folder}{path}", text)
        for name in _TOPICS:
            text = re.sub(rf"(?<=[\"']){name}(?=[\"'])", f"{self.topic}-{name}", text)
            text = re.sub(rf"(-topic|--sink|--sink-id) {name}(?=\s|\")", rf"\1 {self.topic}-{name}", text)
        text = text.replace("9,10,11,12", str(max(self.cluster.broker_ids))).replace(
            "start_http_server(9465)", "start_http_server(0)"
        )
        for command, option in _FREE_PORTS.items():
            text = text.replace(command, command + option)
        if ":9463" in text:
            text = re.sub(r"(http://)?(localhost|127\.0\.0\.1):9463", self.service().api, text)
        return re.sub(r"(kafka-discovery removal (?!.*--bootstrap)[^\n#]*?)(?=\s*(#|\n))", self._asks_service, text)

    def _asks_service(self, found: re.Match[str]) -> str:
        return f"{found[1]} --url {self.service().api}"

    def _address(self, found: re.Match[str]) -> str:
        number = int(found[1])
        return self.cluster.address(number) if number in self.cluster.broker_ids else found[0]

    def play(self, block: Block) -> str:
        """Run a shell block as a reader would, and return all it said; fails when a command ends otherwise than said.

        Blocks of a page share their folder and what they `export`.
        """
        text = self.adapted(block.text)
        if block.file:
            (self.folder / "work" / block.file).write_text(text)
            return ""
        said = self._until(text, block) if block.marker.until else self._ended(text, block)
        assert block.marker.says in said, f"{block.place}: no {block.marker.says!r} in\n{said[-4000:]}"
        return said

    def _ended(self, text: str, block: Block) -> str:
        codes = block.marker.exit_codes
        if not codes:
            return self._shell(f"set -eo pipefail\n{text}", block, 0)
        commands = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
        return "".join(self._shell(one, block, code) for one, code in zip(commands, codes, strict=True))

    def environment(self) -> dict[str, str]:
        """Return the environment of commands: these tools, this interpreter's programs, a state folder of its own."""
        path = os.pathsep.join((str(self.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
        own = {"PATH": path, "XDG_STATE_HOME": str(self.folder / "state"), "PYSPARK_PYTHON": worker_python()}
        return {**os.environ, **own, "KAFKA_DISCOVERY_ENDPOINT__PORT": str(free_port()), "COLUMNS": "200"}

    def _shell(self, text: str, block: Block, code: int) -> str:
        kept = self.folder / "exported"
        script = f"[ ! -f {kept} ] || . {kept}\ntrap 'export -p > {kept}' EXIT\n{text}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder / "work",
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=_BLOCK_SECONDS,
            check=False,
        )
        said = f"{done.stdout}{done.stderr}"
        assert done.returncode == code, (
            f"{block.place}: exit {done.returncode} instead of {code}\n{text}\n{said[-4000:]}"
        )
        return said

    def _until(self, text: str, block: Block) -> str:
        log = self.folder / f"until-{block.line}"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {text}"],
                cwd=self.folder / "work",
                env=self.environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            eventually(lambda: block.marker.until in log.read_text() or process.poll() is not None, _UP_SECONDS, text)
            assert process.poll() is None, f"{block.place}: ended by itself\n{log.read_text()[-4000:]}"
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0, f"{block.place}: {log.read_text()[-4000:]}"
        finally:
            process.kill()
            process.wait()
        return log.read_text()


@contextlib.contextmanager
def staged(folder: Path, cluster: Brokers, topic: str) -> Iterator[Stage]:
    """Yield a stage and end what it started."""
    stage = Stage(folder, cluster, topic)
    try:
        yield stage
    finally:
        stage.close()


def to_play(page: Path, *, long: bool) -> tuple[Block, ...]:
    """Return the blocks of a page that are run here: the quick ones, or all of them."""
    return tuple(block for block in blocks(page) if block.run_here and (long or not block.marker.long))


def is_shell(block: Block) -> bool:
    """Tell whether it is for the shell, or a file for it; else it is Python to be run."""
    return bool(block.file) or RUNNABLE[block.language] == SHELL
