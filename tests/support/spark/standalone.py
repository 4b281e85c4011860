"""A Spark standalone cluster on this machine: a master and workers, each a process, from the installed package."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark

from discovery.localkafka.ports import reserve_ports
from tests.support.helpers import eventually

_HOST = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"


@contextlib.contextmanager
def standalone(folder: Path, *, workers: int = 2) -> Iterator[str]:
    """Yield the master's URL once every worker, of one core each, has registered; all processes end with the block."""
    with contextlib.ExitStack() as stack:
        reservations = reserve_ports(2)
        for reservation in reservations:
            stack.callback(reservation.release)
        port, ui = (str(reservation.port) for reservation in reservations)
        master = [f"{_DEPLOY}.master.Master", "--host", _HOST, "--port", port, "--webui-port", ui]
        stack.enter_context(_running(master, folder / "master.log"))
        url = f"spark://{_HOST}:{port}"
        for number in range(workers):
            work = folder / f"worker-{number}"
            worker = [f"{_DEPLOY}.worker.Worker", "--host", _HOST, "-c", "1", "-m", "1g", "-d", str(work)]
            stack.enter_context(_running([*worker, "--webui-port", "0", url], folder / f"worker-{number}.log"))
        eventually(lambda: _registered(ui) == workers, 180, f"{workers} workers at {url}")
        yield url


@contextlib.contextmanager
def _running(arguments: list[str], log: Path) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "256m"}
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield
        finally:
            # Executors belong to their worker's group and end with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _registered(ui_port: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{_HOST}:{ui_port}/json/", timeout=5) as answer:
            found = json.load(answer)
    except (OSError, ValueError):
        return 0  # not there yet, or it answers with a page while it starts
    return sum(worker["state"] == "ALIVE" for worker in found["workers"])
