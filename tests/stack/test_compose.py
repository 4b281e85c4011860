"""deploy-compose.md for real: all healthy, an event counted, two brokers removed, an alert pending, nothing left."""

import json
from collections.abc import Iterator

import pytest

from tests.stack.engine import CACHE, Engine, build_standins, containers, engine
from tests.support import eventually

PROFILES = {"COMPOSE_PROFILES": "core,alerts"}
"""Grafana is in no package of Debian and cannot be pulled here: its service is left out."""
HEALTHY = {"broker-1", "broker-2", "broker-3", "broker-4", "broker-5", "sidecar", "driver", "generator", "prometheus",
           "alertmanager"}  # fmt: skip


@pytest.fixture
def stack() -> Iterator[Engine]:
    with engine() as started:
        build_standins(started)
        compose(started, "build", "--quiet", timeout=900)
        try:
            yield started
        finally:
            (CACHE / "compose.log").write_text(compose(started, "logs", "--no-color", timeout=120))
            compose(started, "down", "--volumes", "--timeout", "5", "--remove-orphans", timeout=300)


def compose(on: Engine, *words: str, timeout: float = 300) -> str:
    return on.run("docker-compose", *words, timeout=timeout, more=PROFILES)


def healthy(on: Engine) -> set[str]:
    told = [(one["Names"], one["Status"]) for one in containers(on)]
    return {
        name.replace("_", "-").split("kafka-discovery-")[1].removesuffix("-1")
        for name, said in told
        if "(healthy)" in said
    }


def counted(on: Engine) -> int:
    """Ask the job's own database how many events it has counted."""
    asked = "sqlite3.connect('/data/dau.db').execute('select sum(events) from daily_users').fetchone()[0]"
    code = f"import sqlite3; print({asked})"
    return int(compose(on, "exec", "-T", "driver", "python", "-c", code).split()[-1])


def state_of_alert(on: Engine, name: str) -> set[str]:
    told = json.loads(on.get("http://127.0.0.1:9090/api/v1/alerts"))["data"]["alerts"]
    return {alert["state"] for alert in told if alert["labels"]["alertname"] == name}


@pytest.mark.timeout(1800)
def test_given_the_stack_when_two_brokers_are_removed_then_it_counts_on_and_an_alert_is_pending(stack: Engine) -> None:
    compose(stack, "up", "--detach", "--no-build", timeout=600)
    eventually(lambda: healthy(stack) >= HEALTHY, 300, f"health of all; healthy: {healthy(stack)}")
    assert counted(stack) > 0
    assert "default" in stack.get("http://127.0.0.1:9464/readyz?verbose")

    compose(stack, "rm", "--stop", "--force", "broker-4", "broker-5")
    eventually(
        lambda: state_of_alert(stack, "DiscoveryBootstrapRedundancyLost") & {"pending", "firing"},
        120,
        "an alert about the list",
    )
    before = counted(stack)
    eventually(lambda: counted(stack) > before, 120, "more events counted without the two brokers")
    assert healthy(stack) >= HEALTHY - {"broker-4", "broker-5"}

    compose(stack, "down", "--volumes", "--timeout", "10")
    assert containers(stack) == []
    assert stack.run("docker", "volume", "ls", "-q") == ""
    assert {"bridge", "host", "none"} == set(stack.run("docker", "network", "ls", "--format", "{{.Name}}").split())
