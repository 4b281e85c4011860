"""Starts a keeper and speaks to one."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import discovery
from discovery.core.errors import StateError
from discovery.localkafka.admin import wait_until
from discovery.localkafka.keeper.processes import ProcessIdentity

_LONGEST_SOCKET_PATH = 100
"""The system's limit is 104 to 108 bytes."""
_START_SECONDS = 20.0
_END_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildProcess:
    """One child of the keeper as it described it."""

    pid: int
    identity: ProcessIdentity | None
    """None: it has ended."""
    exit_code: int | None
    paused: bool


class KeeperClient:
    """Commands for one keeper; each opens a connection of its own, so any process of this user may send them."""

    def __init__(self, socket_path: str) -> None:
        """Remember the socket; does no I/O."""
        self.socket_path = socket_path

    def ask(self, request: dict[str, Any], *, timeout_seconds: float = 30.0) -> dict[str, Any]:
        """Send one command and return its answer.

        Raises:
            StateError: the keeper is gone, silent, or refuses.

        Runs: any thread; blocks <= timeout_seconds.
        """
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(timeout_seconds)
                link.connect(self.socket_path)
                link.sendall(json.dumps(request).encode() + b"\n")
                with link.makefile("rb") as lines:
                    answer: dict[str, Any] = json.loads(lines.readline() or b'{"error": "the keeper ended"}')
        except OSError as error:
            raise StateError(f"the keeper of this local cluster does not answer ({error}); is it still up?") from error
        if "error" in answer:
            raise StateError(f"local cluster: {answer['error']}")
        return answer

    def spawn(self, name: str, command: Sequence[str], log: Path) -> None:
        """Start a child."""
        self.ask({"do": "spawn", "name": name, "command": list(command), "log": str(log)})

    def signal(self, names: Sequence[str], number: int) -> None:
        """Signal children; ended ones are passed over."""
        self.ask({"do": "signal", "names": list(names), "number": int(number)})

    def hold(self, lock_file: Path) -> None:
        """Let the keeper share a lock until it ends."""
        self.ask({"do": "hold", "file": str(lock_file)})

    def children(self) -> dict[str, ChildProcess]:
        """Describe all children by name."""
        return read_children(self.ask({"do": "processes"}))

    def detach(self) -> None:
        """Let the keeper outlive its starter."""
        self.ask({"do": "detach"})

    def stop(self) -> None:
        """End all children and the keeper."""
        self.ask({"do": "stop"})


def read_children(answer: dict[str, Any]) -> dict[str, ChildProcess]:
    """Read the keeper's description, from an answer or from `processes.json`."""
    return {
        name: ChildProcess(
            pid=child["pid"],
            identity=ProcessIdentity(pid=child["pid"], started=child["started"]) if child["started"] else None,
            exit_code=child["exit_code"],
            paused=child["paused"],
        )
        for name, child in answer["processes"].items()
    }


def socket_path_for(folder: Path) -> str:
    """Choose the socket's path: in the folder where that fits, else in a new private folder of the system's."""
    wanted = str(folder / "keeper.sock")
    if len(os.fsencode(wanted)) <= _LONGEST_SOCKET_PATH:
        return wanted
    private = tempfile.mkdtemp(prefix="kd-")
    if len(os.fsencode(private)) > _LONGEST_SOCKET_PATH - len("/keeper.sock"):
        shutil.rmtree(private)
        private = tempfile.mkdtemp(prefix="kd-", dir="/tmp")
    return f"{private}/keeper.sock"


def start_keeper(folder: Path, socket_path: str, *, inherited: Sequence[int] = ()) -> "subprocess.Popen[bytes]":
    """Start a keeper that lives until the returned process's `stdin` closes or this process ends.

    Args:
        folder: Where it records its children and writes its log.
        socket_path: Where it listens.
        inherited: Locks that must live as long as the cluster.

    Raises:
        StateError: it did not come up; carries its last words.

    Runs: any thread; blocks about 0.1 s, <= 20 s.
    """
    root = str(Path(discovery.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
    command = [sys.executable, "-m", "discovery.localkafka.keeper.process", str(folder), socket_path, str(os.getpid())]
    log = folder / "keeper.log"
    with log.open("ab") as out:
        keeper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=environment, pass_fds=tuple(inherited),
            start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(socket_path):
        if keeper.poll() is not None or time.monotonic() > deadline:
            keeper.kill()
            keeper.wait()
            raise StateError(f"the keeper did not start: {log.read_text(errors='replace').strip()[-300:]}")
        time.sleep(0.02)
    return keeper


def end_keeper(client: KeeperClient, keeper: "subprocess.Popen[bytes] | None") -> None:
    """End a keeper and all it keeps; `keeper` where this process started it. Blocks about 1 s, <= 30 s."""
    with contextlib.suppress(StateError):
        client.stop()
    if keeper is None:
        wait_until(
            lambda: not Path(client.socket_path).exists(),
            deadline_seconds=_END_SECONDS,
            otherwise=lambda: "the keeper did not end",
        )
        return
    if keeper.stdin:
        keeper.stdin.close()  # also ends a keeper that did not answer
    try:
        keeper.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


def _answers(socket_path: str) -> bool:
    try:
        KeeperClient(socket_path).ask({"do": "processes"}, timeout_seconds=5)
    except StateError:
        return False
    return True
