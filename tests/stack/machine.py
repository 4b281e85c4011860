"""A machine with systemd as process 1: namespaces over a copy-on-write view of this one, with its loopback."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.helpers import eventually

_BOOT = Path(__file__).with_name("machine.sh").resolve()
_NEEDED = {"unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux", "systemctl": "systemd",
           "journalctl": "systemd"}  # fmt: skip
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> str | None:
    """Say what keeps systemd from booting here, or None."""
    if os.geteuid() != 0:
        return "only root may make the namespaces for a machine with systemd"
    lacking = sorted({package for name, package in _NEEDED.items() if shutil.which(name) is None})
    if lacking or not Path("/lib/systemd/systemd").exists():
        return f"no systemd here: apt-get install --no-install-recommends {' '.join(lacking) or 'systemd'}"
    return None


@dataclass(frozen=True, slots=True)
class Machine:
    """A booted machine; `/src` in it is `files` out here."""

    pid: int
    """Of its process 1, as seen from here."""
    files: Path

    @property
    def around(self) -> tuple[str, ...]:
        """What to put before a command that shall run in there."""
        entered = ("nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-p", "-r", "-w")
        return (*entered, "sh", "-c", 'cd /src && exec "$@"', "sh")

    def run(self, *command: str, timeout: float = 120, more: Mapping[str, str] | None = None) -> str:
        """Run a command in there and return all it says; fail with its words."""
        done = self.tried(*command, timeout=timeout, more=more)
        assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def tried(
        self, *command: str, timeout: float = 120, more: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in there, however it ends."""
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "LANG"}
        environment = {**kept, "HOME": "/root", "PATH": _PATH, **(more or {})}
        return subprocess.run(
            [*self.around, *command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False, env=environment,
            cwd="/",
        )  # fmt: skip

    def unit(self, prop: str, unit: str = "kafka-discovery") -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", prop, unit).strip()


@contextlib.contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """Boot a machine until the end of the block; skips the test, with the reason, where that is impossible."""
    if reason := missing():
        pytest.skip(reason)
    (folder / "files").mkdir(parents=True)
    command = ["unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--cgroup", str(_BOOT)]
    with (folder / "boot.log").open("w") as log:
        unshared = subprocess.Popen([*command, str(folder)], stdout=log, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: _init_of(unshared, folder), 30, "process 1 of the machine")
        booted = Machine(_init_of(unshared, folder), folder / "files")
        eventually(lambda: _is_up(booted, unshared, folder), 60, "the machine's boot")
        yield booted
    finally:
        unshared.kill()  # its child goes with it, and with that everything in there
        unshared.wait(30)


def _init_of(unshared: "subprocess.Popen[bytes]", folder: Path) -> int:
    if unshared.poll() is not None:
        pytest.skip(f"no machine can be booted here: {(folder / 'boot.log').read_text()[-500:]}")
    seen = Path(f"/proc/{unshared.pid}/task/{unshared.pid}/children").read_text(encoding="ascii").split()
    if not seen or Path(f"/proc/{seen[0]}/comm").read_text(encoding="utf-8").strip() != "systemd":
        return 0
    return int(seen[0])


def _is_up(booted: Machine, unshared: "subprocess.Popen[bytes]", folder: Path) -> bool:
    _init_of(unshared, folder)
    return booted.tried("systemctl", "is-active", "boot.target").stdout.strip() == "active"
