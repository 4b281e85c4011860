"""`kafka-discovery removal` asks a running service: its verdict, its consumers' lists; silence is unknown."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from discovery.cli.app import app
from tests.support.faults import refused_port
from tests.support.helpers import eventually
from tests.support.service import ServiceProcess


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service over a cluster in memory, everything else real."""
    folder = tmp_path_factory.mktemp("removal")
    arguments = (str(folder / "state"), "0", "2", "fast", json.dumps({"silence_seconds": 2}))
    with ServiceProcess(*arguments, log=folder / "log", program=("-m", "tests.support.fakes.service_main")) as one:
        eventually(lambda: one.get("/v1/bootstrap").status_code == 200, 30, "a vetted list")
        yield one
        assert "BUG in" not in (folder / "log").read_text()


def ask(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["removal", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def document(*arguments: str) -> Any:
    return json.loads(ask("--json", *arguments)[1])


def test_given_replicas_and_a_list_when_asked_then_it_is_not_safe_and_exits_1(
    service: ServiceProcess, tmp_path: Path
) -> None:
    report = {"instance": "h", "bootstrap_servers": ["cluster-a-b3:9092"]}
    httpx.put(f"{service.api}/v1/consumers/dau", json=report, timeout=30, trust_env=False).raise_for_status()
    code, text = ask("--url", service.api, "--brokers", "3")
    assert code == 1
    assert "✗ not safe: do not remove broker 3 yet" in text
    assert "lists nobody else who lives" in text
    plan = tmp_path / "plan.json"
    planned = CliRunner().invoke(app, ["removal", "--url", service.api, "--brokers", "3", "--plan", str(plan)])
    assert (planned.exit_code, plan.exists()) == (1, False), "too few brokers remain"
    assert "is not written" in planned.output
    httpx.delete(f"{service.api}/v1/consumers/dau", timeout=30, trust_env=False).raise_for_status()
    assert ask("--url", service.api, "--brokers", "3", "--temporary")[0] == 4, "nobody reports any more"
    assert ask("--url", service.api, "--brokers", "3", "--temporary", "--assume-no-other-clients")[0] == 0
    lists = tmp_path / "lists"
    lists.write_text("dau = cluster-a-b1:9092,cluster-a-b2:9092\n")
    given = ("--url", service.api, "--brokers", "3", "--temporary", "--lists", str(lists))
    eventually(lambda: ask(*given)[0] == 0, 60, "consumers had time to report")
    lists.write_text("dau = cluster-a-b3:9092\n")
    assert ask("--url", service.api, "--brokers", "3", "--temporary", "--lists", str(lists))[0] == 1


def test_given_a_broker_that_is_gone_when_verified_then_it_is_complete_and_exits_0(service: ServiceProcess) -> None:
    assert ask("--url", service.api, "--brokers", "9", "--verify")[0] == 0
    assert document("--url", service.api, "--brokers", "9", "--verify")["verified"]


def test_given_no_service_when_asked_then_the_verdict_is_unknown_and_exits_4() -> None:
    with refused_port() as address:
        code, text = ask("--url", f"http://{address}", "--brokers", "3")
    assert code == 4
    assert "start a service with `kafka-discovery serve`, or use --bootstrap" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--brokers", "b3"), "--brokers: 'b3' is no broker id"),
        (("--brokers", "3", "--verify", "--temporary"), "contradict each other"),
        (("--brokers", "3", "--url", "nowhere"), "is not like http://"),
        (("--brokers", "3", "--properties", "/none"), "--properties: /none cannot be read"),
        (("--brokers", "3", "--lists", "/none"), "--lists: /none cannot be read"),
    ],
)
def test_given_a_wrong_command_when_run_then_one_line_says_what_to_write(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, ["removal", *arguments])
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)
