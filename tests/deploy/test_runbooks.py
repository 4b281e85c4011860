"""Every `sh` block of the runbooks runs as it stands and says what the page needs it for.

The brokers are librdkafka's own here, which are up at once. With real ones `make test-alerts` runs the blocks while
each alert fires, and `make test-runbooks` in a machine with systemd.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.source.alerts import ALERTS
from tests.support.fakes.mock_cluster import MockCluster
from tests.support.faults import refused_port
from tests.support.ports import service_ports
from tests.support.runbooks import SAYS, SHOWS, found, run, sh_blocks, variables
from tests.support.service import ServiceProcess, wait_for


def test_given_the_runbooks_when_counted_then_each_block_has_an_answer_that_is_looked_for() -> None:
    assert set(SAYS) == set(SHOWS) == {alert.name for alert in ALERTS}
    for name, answers in SAYS.items():
        assert len(answers) == len(sh_blocks(name)), name


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A service with one dead address in its list, and the variables that a reader would set for it."""
    folder = tmp_path_factory.mktemp("runbooks")
    with MockCluster(3) as brokers, refused_port() as dead:
        yield from _served(folder, [*brokers.bootstrap_servers.split(","), dead])


def _served(folder: Path, listed: list[str]) -> Iterator[dict[str, str]]:
    config = folder / "config.toml"
    config.write_text(
        f"[clusters.main]\nbootstrap_servers = {json.dumps(listed)}\n"
        '[clusters.main.client]\n"security.protocol" = "PLAINTEXT"\n',
        encoding="utf-8",
    )
    arguments = ("--config", str(config), "--state-dir", str(folder / "state"), *service_ports())
    with ServiceProcess(*arguments, "--json", log=folder / "log") as service:
        wait_for(service, "/readyz", 200, 60)
        yield variables(
            API=service.api, PROBES=service.probes, CLUSTER="main", CONFIG=str(config), LOG=str(folder / "log"),
            STATE_DIR=str(folder / "state"), BOOTSTRAP=",".join(listed), PID=str(service.pid), TMPDIR=str(folder),
        )  # fmt: skip


def test_given_a_service_when_every_block_is_run_then_each_answers(environment: dict[str, str]) -> None:
    heard: dict[str, str] = {}  # the same steps stand in several runbooks
    for name, answers in SAYS.items():
        for block, answer in zip(sh_blocks(name), answers, strict=True):
            said = heard.get(block.text) or run(block, environment)
            heard[block.text] = said
            assert found(answer, said), f"{block.place}: {said}"
    assert list(Path(environment["TMPDIR"]).glob("status-*.json")), "what the runbook of a stalled loop saves"
