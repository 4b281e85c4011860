"""What deploy-systemd.md and deploy/runbooks say of systemd, in a machine that runs it: shipped unit, real brokers."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.package import build
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.ports import reserve_ports
from discovery.localkafka.properties import ClusterSettings
from tests.stack.machine import Machine, machine
from tests.support.helpers import eventually
from tests.support.manual.markdown import blocks
from tests.support.runbooks import SAYS, console_commands, found, run, sh_blocks, variables

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
_PAGE = Path("docs/how-to/deploy-systemd.md")
_INSTALL, _UNIT = 0, 1
"""Which of the page's blocks, from 0, install the service, and start the unit."""
_BIN = "/opt/kafka-discovery/bin"


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka(ClusterSettings(brokers=3)) as cluster:
        cluster.create_topic("events", 3, 3)
        yield cluster


@pytest.fixture(scope="module")
def installed(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, dict[str, str]]]:
    """A machine on which an operator has done what deploy-systemd.md says, and the runbooks' variables for it."""
    ports = reserve_ports(2)
    api, probes = (port.port for port in ports)
    with machine(tmp_path_factory.mktemp("machine")) as booted:
        build(booted.files / "dist")
        shutil.copytree("requirements", booted.files / "requirements")
        shutil.copytree("deploy/systemd", booted.files / "deploy/systemd")
        listed = [*kafka.bootstrap_servers.split(","), "127.0.0.1:1"]
        (booted.files / "your-config.toml").write_text(
            f"[api]\nport = {api}\n[probes]\nport = {probes}\n"
            f"[clusters.main]\nbootstrap_servers = {json.dumps(listed)}\n"
            '[clusters.main.client]\n"security.protocol" = "PLAINTEXT"\n',
            encoding="utf-8",
        )
        for port in ports:
            port.release()
        for number in (_INSTALL, _UNIT):
            done = booted.tried("bash", "-euxo", "pipefail", "-c", blocks(_PAGE)[number].text, timeout=400)
            assert done.returncode == 0, done.stdout + booted.tried("journalctl", "-n", "60").stdout
        assert "active (running)" in done.stdout
        eventually(lambda: booted.unit("StatusText").startswith("fresh: "), 60, "a view, notified to systemd")
        yield (
            booted,
            {
                **variables(
                    API=f"http://127.0.0.1:{api}", PROBES=f"http://127.0.0.1:{probes}", CLUSTER="main",
                    CONFIG="/etc/kafka-discovery/config.toml", STATE_DIR="/var/lib/kafka-discovery", LOG="/dev/null",
                    BOOTSTRAP=",".join(listed), PID=booted.unit("MainPID"), TMPDIR="/tmp",  # noqa: S108 - in there
                ),
                "PATH": f"{_BIN}:/usr/sbin:/usr/bin:/sbin:/bin",
            },
        )  # fmt: skip


def test_given_the_unit_when_every_block_of_the_runbooks_is_run_then_each_answers(
    installed: tuple[Machine, dict[str, str]],
) -> None:
    booted, environment = installed
    for name, answers in SAYS.items():
        for block, answer in zip(sh_blocks(name), answers, strict=True):
            said = run(block, environment, around=booted.around)
            assert found(answer, said), f"{block.place}: {said}"


def test_given_the_unit_when_the_lines_for_systemd_are_run_then_they_do_what_they_say(
    installed: tuple[Machine, dict[str, str]],
) -> None:
    booted, _ = installed
    lines = [(page, line) for page, line in console_commands() if "kubectl" not in line]
    assert len(lines) == 3
    for page, line in lines:
        before = booted.unit("MainPID")
        done = booted.tried("bash", "-c", line)
        if "restart" in line:
            assert done.returncode == 0, f"{page}: {line}: {done.stdout}"
            assert booted.unit("MainPID") != before
            eventually(lambda: booted.unit("StatusText").startswith("fresh: "), 60, "a view after the restart")
        else:
            assert line.startswith("journalctl -u kafka-discovery"), line
            assert (done.returncode, done.stdout) == (1, ""), "there was no bug, and the journal can be read"
            journal = booted.run("bash", "-c", line.split("|")[0])
            assert "listening" in journal or "cycle" in journal, journal[-2000:]


def test_given_the_unit_when_it_is_killed_hangs_or_gets_nonsense_then_systemd_does_what_the_page_says(
    installed: tuple[Machine, dict[str, str]],
) -> None:
    booted, _ = installed
    restarts = int(booted.unit("NRestarts"))
    booted.run("systemctl", "kill", "--signal=KILL", "kafka-discovery")
    eventually(lambda: int(booted.unit("NRestarts")) > restarts, 60, "a start after a kill")
    eventually(lambda: booted.unit("ActiveState") == "active", 60, "the service after a kill")

    booted.run("systemctl", "reload", "kafka-discovery")
    assert booted.unit("ActiveState") == "active"

    shorter = "/run/systemd/system/kafka-discovery.service.d"
    short = f"mkdir -p {shorter}; printf '[Service]\\nWatchdogSec=3\\n' > {shorter}/short.conf; systemctl daemon-reload"
    booted.run("bash", "-c", f"{short}; systemctl restart kafka-discovery")
    restarts = int(booted.unit("NRestarts"))
    booted.run("systemctl", "kill", "--signal=STOP", "--kill-who=main", "kafka-discovery")
    eventually(lambda: int(booted.unit("NRestarts")) > restarts, 60, "a start after the watchdog's time")

    booted.run("bash", "-c", "echo nonsense >> /etc/kafka-discovery/config.toml")
    booted.tried("systemctl", "restart", "kafka-discovery")
    eventually(lambda: booted.unit("ActiveState") == "failed", 60, "a refusal of a wrong configuration")
    assert booted.unit("ExecMainStatus") == "2"
    assert booted.unit("NRestarts") == "0", "a wrong configuration is not tried again and again"

    # As it was: tests come in any order.
    right = f"sed -i /nonsense/d /etc/kafka-discovery/config.toml; rm -r {shorter}; systemctl daemon-reload"
    booted.run("bash", "-c", f"{right}; systemctl restart kafka-discovery")
    eventually(lambda: booted.unit("StatusText").startswith("fresh: "), 60, "a view again")
