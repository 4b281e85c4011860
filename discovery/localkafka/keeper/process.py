"""The process that owns the JVMs of one local cluster, so that none of them can outlive its owner.

Theory of operation. The starter launches one keeper in a session of its own (Ctrl-C in a terminal reaches the
starter alone) and holds the write end of the keeper's standard input. The keeper is the parent of every JVM.
It ends, and ends all JVMs first, when

- standard input reports end of file: the starter stopped, crashed or was killed with SIGKILL;
- its parent changed: the same, where a forked child of the starter still holds the pipe;
- it is asked to stop, by a command or by SIGTERM, SIGINT or SIGHUP.

After the command `detach` the first two no longer count. Should the keeper itself be killed, Linux kills
the JVMs (PR_SET_PDEATHSIG; the keeper has one thread, so "parent thread" means the keeper); elsewhere the
recorded identities in `processes.json` let the next `down` find them.

Commands arrive on a Unix socket, one JSON line each, answered by one JSON line; only this user can open it.
Signals go to children that were not yet reaped, so an id can never belong to somebody else.

Standard library only: it starts in 50 ms and takes 12 MB.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from discovery.config.parent_death import death_with_parent
from discovery.localkafka.keeper.processes import identify

PROCESSES_FILE = "processes.json"
MARKER_FILE = ".kafka-discovery-local-kafka"
"""Present in folders that may be deleted when the cluster ends."""

_TICK_SECONDS = 0.25
_COMMAND_SECONDS = 5.0
_REAP_SECONDS = 10.0
_STOP_SECONDS = 2.0


class Keeper:
    """Children by name, and the commands on them."""

    def __init__(self, folder: Path, *, die_with_parent: Callable[[], None] | None) -> None:
        """Remember where to record; starts nothing."""
        self.folder = folder
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.paused: set[str] = set()
        self.attached = True
        self.stopping = False
        self._die_with_parent = die_with_parent
        self._recorded = ""

    def spawn(self, name: str, command: list[str], log: str) -> dict[str, Any]:
        """Start a child under a name that no living child has."""
        old = self.children.get(name)
        if old is not None and old.poll() is None:
            return {"error": f"{name} is running already"}
        with Path(log).open("ab") as out:
            self.children[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
                preexec_fn=self._die_with_parent,  # noqa: PLW1509 - one thread, and all it needs was loaded before
            )  # fmt: skip
        self.paused.discard(name)
        self.record()
        return self.processes()

    def signal(self, names: list[str], number: int) -> dict[str, Any]:
        """Signal living children; after SIGKILL return when they are gone, after SIGSTOP when they stand still."""
        living = [name for name in names if name in self.children and self.children[name].poll() is None]
        for name in living:
            self.children[name].send_signal(number)
        if number == signal.SIGKILL:
            for name in living:
                self.children[name].wait(_REAP_SECONDS)
        if number == signal.SIGSTOP:
            # On a full machine other threads of a JVM go on until the one that was signalled has its turn.
            deadline = time.monotonic() + _STOP_SECONDS
            for name in living:
                _await_stop(self.children[name].pid, deadline)
            self.paused.update(living)
        if number == signal.SIGCONT:
            self.paused.difference_update(living)
        self.record()
        return self.processes()

    def hold(self, file: str) -> None:
        """Share a lock for as long as this process lives: the port of a broker that moved."""
        fcntl.flock(os.open(file, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH | fcntl.LOCK_NB)

    def processes(self) -> dict[str, Any]:
        """Describe every child: identity while it lives, exit code after."""
        return {"processes": {name: self._describe(name, child) for name, child in self.children.items()}}

    def record(self) -> None:
        """Write the description down when it changed, for those who come after a crash of this process."""
        text = json.dumps({**self.processes(), "keeper": asdict(identify(os.getpid()))})  # type: ignore[arg-type]
        if text != self._recorded:
            scratch = self.folder / f"{PROCESSES_FILE}.tmp"
            scratch.write_text(text)
            scratch.replace(self.folder / PROCESSES_FILE)
            self._recorded = text

    def kill_all(self) -> None:
        """Kill every child and wait for its end."""
        for child in self.children.values():
            if child.poll() is None:
                child.kill()
        for child in self.children.values():
            child.wait(_REAP_SECONDS)

    def obey(self, request: dict[str, Any]) -> dict[str, Any]:
        """Perform one command."""
        match request:
            case {"do": "spawn", "name": str(name), "command": list(command), "log": str(log)}:
                return self.spawn(name, command, log)
            case {"do": "signal", "names": list(names), "number": int(number)}:
                return self.signal(names, number)
            case {"do": "processes"}:
                return self.processes()
            case {"do": "hold", "file": str(file)}:
                self.hold(file)
            case {"do": "detach"}:
                self.attached = False
            case {"do": "stop"}:
                self.kill_all()
                self.stopping = True
            case _:
                return {"error": f"unknown command {request!r}"}
        return {}

    def _describe(self, name: str, child: "subprocess.Popen[bytes]") -> dict[str, Any]:
        code = child.poll()
        identity = identify(child.pid) if code is None else None
        return {
            "pid": child.pid,
            "started": identity.started if identity else None,
            "exit_code": code,
            "paused": name in self.paused and code is None,
        }


def serve(keeper: Keeper, listener: socket.socket, parent_pid: int) -> None:
    """Obey commands until asked to stop or left alone."""
    while not keeper.stopping:
        watched: list[Any] = [listener, *([0] if keeper.attached else [])]
        ready, _, _ = select.select(watched, [], [], _TICK_SECONDS)
        if keeper.attached and ((0 in ready and not os.read(0, 1024)) or os.getppid() != parent_pid):
            return
        keeper.record()
        if listener in ready:
            with contextlib.suppress(OSError, ValueError):  # a client that went away is no reason to end
                _serve_one(keeper, listener)


def _serve_one(keeper: Keeper, listener: socket.socket) -> None:
    client, _ = listener.accept()
    with client:
        client.settimeout(_COMMAND_SECONDS)
        with client.makefile("rb") as lines:
            request = json.loads(lines.readline())
        try:
            answer = keeper.obey(request)
        except (OSError, subprocess.SubprocessError) as error:
            answer = {"error": str(error)}
        client.sendall(json.dumps(answer).encode() + b"\n")


def _await_stop(pid: int, deadline: float) -> None:
    """Return when a child stands still or has ended; which of both stays to be asked."""
    if not hasattr(os, "waitid"):
        return
    which = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
    with contextlib.suppress(ChildProcessError):  # it ended, and sending the signal noticed
        while os.waitid(os.P_PID, pid, which) is None and time.monotonic() < deadline:
            time.sleep(0.002)


def _raise_exit(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _remove(folder: Path) -> None:
    if (folder / MARKER_FILE).is_file():
        shutil.rmtree(folder, ignore_errors=True)


def main(folder: Path, socket_path: str, parent_pid: int) -> None:
    """Keep a cluster; see the module's text. `folder` and the socket's file exist only while this runs."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _raise_exit)
    keeper = Keeper(folder, die_with_parent=death_with_parent())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(socket_path)
            Path(socket_path).chmod(0o600)
            listener.listen(16)
            keeper.record()
            serve(keeper, listener, parent_pid)
        finally:
            _end(keeper, socket_path)


def _end(keeper: Keeper, socket_path: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    deadline = time.monotonic() + _REAP_SECONDS
    keeper.kill_all()
    with contextlib.suppress(OSError):
        Path(socket_path).unlink()
        if Path(socket_path).parent != keeper.folder:
            Path(socket_path).parent.rmdir()
    while keeper.folder.exists() and (keeper.folder / MARKER_FILE).exists() and time.monotonic() < deadline:
        _remove(keeper.folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
