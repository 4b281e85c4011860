"""The unit is sound and sandboxed, and the service says to systemd what the unit waits for."""

import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.debian_tools import tool
from tests.support.service import ServiceProcess, serve_arguments

UNIT = Path("deploy/systemd/kafka-discovery.service")


def analyze(tmp_path: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run systemd-analyze on the unit; its program is not installed here, so another one stands in its place."""
    copy = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    copy.write_text(text.replace("/opt/kafka-discovery/bin/kafka-discovery", "/bin/true"), encoding="utf-8")
    command = [tool("systemd-analyze"), *words, f"./{copy.name}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)


def test_given_the_unit_when_verified_then_systemd_says_nothing(tmp_path: Path) -> None:
    seen = analyze(tmp_path, "verify", "--man=no")
    assert (seen.returncode, seen.stderr) == (0, "")


def test_given_a_mistake_in_the_unit_when_verified_then_systemd_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.service").write_text("[Service]\nExecStart=/bin/true\nWatchDogSecs=3\n", encoding="utf-8")
    command = [tool("systemd-analyze"), "verify", "--man=no", "./x.service"]
    seen = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert "WatchDogSecs" in seen.stderr


def test_given_the_unit_when_its_exposure_is_judged_then_it_is_small(tmp_path: Path) -> None:
    seen = analyze(tmp_path, "security", "--offline=true", "--no-pager")
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", seen.stdout)
    assert found, seen.stdout + seen.stderr
    assert float(found[1]) <= 1.5


def test_given_systemd_when_the_service_starts_turns_and_ends_then_it_is_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        # Nobody listens there: ready and alive all the same.
        arguments = serve_arguments("127.0.0.1:1", tmp_path / "state")
        with ServiceProcess(*arguments, log=tmp_path / "log") as service:
            assert systemd.recv(1_000) == b"READY=1"
            said = systemd.recv(1_000).decode()
            while "WATCHDOG=1" not in said or "cold" not in said:  # one without a loop yet may come first
                said = systemd.recv(1_000).decode()
            assert said.startswith("STATUS=cold: no broker has answered yet")
            assert service.stop(signal.SIGTERM)[0] == 0
            left = [said]
            while "STOPPING=1" not in left:
                left.append(systemd.recv(1_000).decode())
