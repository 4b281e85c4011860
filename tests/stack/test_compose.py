"""deploy-compose.md for real: it counts, two brokers are removed, an alert is pending, a job starts late."""

import json
from collections.abc import Iterator

import pytest

from tests.stack.engine import CACHE, Engine, build_standins, containers, engine
from tests.support.helpers import eventually

_UP = "core,alerts"
"""Grafana is in no package of Debian and cannot be pulled here: its service is left out."""
_ALL = "core,alerts,chaos"
HEALTHY = {"broker-1", "broker-2", "broker-3", "broker-4", "broker-5", "sidecar", "driver", "generator", "prometheus",
           "alertmanager"}  # fmt: skip
_COUNT = """
import sqlite3
try:
    found = sqlite3.connect('file:/data/{database}?mode=ro', uri=True).execute('select sum(events) from daily_users')
    print(found.fetchone()[0] or 0)
except sqlite3.Error:
    print(0)
"""


@pytest.fixture
def stack() -> Iterator[Engine]:
    with engine() as started:
        build_standins(started)
        compose(started, "build", "--quiet", timeout=900)
        try:
            yield started
        finally:
            (CACHE / "compose.log").write_text(compose(started, "logs", "--no-color", timeout=120))
            compose(started, "down", "--volumes", "--timeout", "5", "--remove-orphans", timeout=300, profiles=_ALL)


def compose(on: Engine, *words: str, timeout: float = 300, profiles: str = _UP) -> str:
    return on.run("docker-compose", *words, timeout=timeout, more={"COMPOSE_PROFILES": profiles})


def healthy(on: Engine) -> set[str]:
    seen = [(one["Names"], one["Status"]) for one in containers(on)]
    return {
        name.replace("_", "-").split("kafka-discovery-")[1].removesuffix("-1")
        for name, said in seen
        if "(healthy)" in said
    }


def counted(on: Engine, *, service: str = "driver", database: str = "dau.db") -> int:
    """Ask a job's own database how many events it has counted; 0 while it has none."""
    code = _COUNT.format(database=database)
    return int(compose(on, "exec", "-T", service, "python", "-c", code, profiles=_ALL).split()[-1])


def state_of_alert(on: Engine, name: str) -> set[str]:
    seen = json.loads(on.get("http://127.0.0.1:9090/api/v1/alerts"))["data"]["alerts"]
    return {alert["state"] for alert in seen if alert["labels"]["alertname"] == name}


@pytest.mark.timeout(1800)
def test_given_the_stack_when_two_brokers_are_removed_then_it_counts_on_and_an_alert_is_pending(stack: Engine) -> None:
    compose(stack, "up", "--detach", "--no-build", timeout=600)
    eventually(lambda: healthy(stack) >= HEALTHY, 300, f"health of all; healthy: {healthy(stack)}")
    assert counted(stack) > 0
    assert "default" in stack.get("http://127.0.0.1:9464/readyz?verbose")

    stack.run("make", "compose-scale-in", more={"COMPOSE_PROFILES": _UP})
    assert not {"broker-4", "broker-5"} & healthy(stack)
    eventually(
        lambda: state_of_alert(stack, "DiscoveryBootstrapRedundancyLost") & {"pending", "firing"},
        120,
        "an alert about the list",
    )
    list_now = ("exec", "-T", "sidecar", "kafka-discovery", "bootstrap", "--token-file", "/run/kafka-discovery/token")
    assert "broker-1:9092" in compose(stack, *list_now)
    assert int(compose(stack, "exec", "-T", "driver", "wc", "-l", "/data/progress.jsonl").split()[0]) > 0
    before = counted(stack)
    eventually(lambda: counted(stack) > before, 120, "more events counted without the two brokers")
    assert healthy(stack) >= HEALTHY - {"broker-4", "broker-5"}

    # A job that starts now, with a list of the two removed brokers alone.
    compose(stack, "up", "--detach", "--no-build", "--no-deps", "late-driver", profiles=_ALL)
    eventually(
        lambda: counted(stack, service="late-driver", database="late.db") > 0, 180, "events counted by the late driver"
    )
    assert not {"broker-4", "broker-5"} & healthy(stack), "its start may not bring them back"

    compose(stack, "down", "--volumes", "--timeout", "10", profiles=_ALL)
    assert containers(stack) == []
    assert stack.run("docker", "volume", "ls", "-q") == ""
    assert {"bridge", "host", "none"} == set(stack.run("docker", "network", "ls", "--format", "{{.Name}}").split())
