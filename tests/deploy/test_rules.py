"""The rules: up to date, over metrics that exist, firing when they must and only then, each with a runbook."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from deploy.generate import HERE, as_yaml, files, tried_table
from deploy.source.alerts import ALERTS, RECORDINGS, SOURCE_ALERTS, seconds_in
from deploy.source.cases import CASES
from deploy.source.cases import tests as played_tests
from deploy.source.rules import as_they_are, groups, sixtieth
from discovery.config.metric_families import CLUSTER_LABEL, PREFIX
from discovery.endpoint.metrics import FAMILIES as ENDPOINT_FAMILIES
from discovery.service import metrics
from discovery.spark.progress.metrics import SourceCollector
from tests.support.debian_tools import tool
from tests.support.source_report import A_REPORT

EVERY = (*ALERTS, *SOURCE_ALERTS)
FOREIGN = {"up", "time", "kube_pod_status_phase"}
"""Metrics of Prometheus itself and of kube-state-metrics."""


def exported() -> dict[str, tuple[str, ...]]:
    """Return every series name the service exports with its labels."""
    found: dict[str, tuple[str, ...]] = {}
    followed = metrics.FAMILIES | ENDPOINT_FAMILIES
    for table, labels in ((followed, (CLUSTER_LABEL,)), (metrics.PROCESS, ())):
        for family in table.values():
            suffixes = {"counter": ("_total",), "info": ("_info",), "histogram": ("_bucket", "_sum", "_count")}
            for suffix in suffixes.get(family.kind, ("",)):
                found[PREFIX + family.name + suffix] = (*labels, *family.labels, "le", "instance", "job")
    for metric in SourceCollector(lambda: [("daily", A_REPORT)], lambda: {"daily": 1}).collect():
        for sample in metric.samples:
            found[sample.name] = (*sample.labels, "instance", "job")
    return found


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\bkafka_discovery_[a-z0-9_]+", re.sub(r"\w+:kafka_discovery_[a-z_:0-9]+", "", expression)))


@pytest.mark.parametrize("path", sorted(files(), key=str), ids=str)
def test_given_the_source_when_generated_then_the_files_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == files()[path], "run python -m deploy.generate"


def test_given_the_expressions_when_read_then_they_use_metrics_that_are_exported() -> None:
    known = exported()
    for expression in (*(a.condition for a in EVERY), *(r.expression for r in RECORDINGS)):
        assert names_in(expression) <= known.keys(), expression
        for name, labels in re.findall(r"(kafka_discovery_\w+)\{([^}]*)\}", expression):
            assert set(re.findall(r"(\w+)=?[=~!]", labels)) <= set(known[name]), expression


def test_given_the_cases_when_counted_then_each_alert_must_fire_and_must_not() -> None:
    for alert in EVERY:
        reported = [bool(case.fires) for case in CASES if case.alert == alert.name]
        assert {True, False} == set(reported), alert.name
    assert {case.alert for case in CASES} == {alert.name for alert in EVERY}


def test_given_the_rules_when_checked_by_promtool_then_they_are_sound() -> None:
    checked = subprocess.run(
        [tool("promtool"), "check", "rules", "deploy/prometheus/rules/kafka-discovery.yml"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_given_the_cases_when_played_by_promtool_then_alerts_fire_exactly_then() -> None:
    played = subprocess.run(
        [tool("promtool"), "test", "rules", "kafka-discovery.yml"],
        cwd="deploy/prometheus/tests",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert played.returncode == 0, played.stdout + played.stderr


def test_given_a_wrong_expectation_when_played_by_promtool_then_it_is_found(tmp_path: Path) -> None:
    bent = played_tests(str(Path("deploy/prometheus/rules/kafka-discovery.yml").resolve()))
    bent["tests"] = bent["tests"][:1]
    bent["tests"][0]["input_series"][0]["values"] = "0+60x22"  # confirmed all the time
    (tmp_path / "bent.yml").write_text(as_yaml(bent), encoding="utf-8")
    command = [tool("promtool"), "test", "rules", str(tmp_path / "bent.yml")]
    played = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert played.returncode == 1
    assert "DiscoverySnapshotStale" in played.stdout + played.stderr


def test_given_short_times_when_rendered_then_only_the_durations_differ() -> None:
    long, short = (groups(scale)["groups"][1]["rules"] for scale in (as_they_are, sixtieth))
    for one, other in zip(long, short, strict=True):
        assert {key: one[key] for key in one.keys() - {"expr", "for"}} == {
            key: other[key] for key in other.keys() - {"expr", "for"}
        }
        # No number but those of durations may differ.
        assert re.sub(r"\d+", "", one["expr"]) == re.sub(r"\d+", "", other["expr"])
        assert re.sub(r"\b[1-9]\d{2,}", "", one["expr"]).count("0") <= other["expr"].count("0") + 1


def test_given_an_address_of_runbooks_when_rendered_then_alerts_link_there() -> None:
    rule = groups(runbooks="https://wiki.example/runbooks/")["groups"][1]["rules"][0]
    assert rule["annotations"]["runbook_url"] == f"https://wiki.example/runbooks/{rule['alert']}.md"


def test_given_what_was_seen_for_real_when_published_then_each_alert_has_fired_and_ended() -> None:
    seen = json.loads(Path("deploy/tried/alerts.json").read_text(encoding="utf-8"))
    assert {row["alert"] for row in seen["alerts"]} == {alert.name for alert in ALERTS}
    for row in seen["alerts"]:
        assert row["fired_after_seconds"] > 0, row
        assert row["resolved_after_seconds"] >= 0, row
    assert tried_table(seen).count("\n| Discovery") == len(seen["alerts"])
    sources = json.loads(Path("deploy/tried/source_alerts.json").read_text(encoding="utf-8"))
    assert {row["alert"] for row in sources["alerts"]} == {alert.name for alert in SOURCE_ALERTS}


def test_given_a_duration_in_each_place_when_scaled_then_it_is_written_as_promql_wants_it() -> None:
    text = "a > <300s> and increase(b[<900s>]) > 0 and (c offset <240s>)"
    assert seconds_in(text, sixtieth) == "a > 5 and increase(b[15s]) > 0 and (c offset 5s)"


def test_given_the_alerts_of_sources_when_they_fire_then_their_runbook_tells_of_each() -> None:
    for alert in SOURCE_ALERTS:
        text = (HERE / "runbooks" / alert.page).read_text(encoding="utf-8")
        assert [one for one in ("Meaning", "Impact", "Diagnosis", "Mitigation") if f"## {one}" not in text] == []
        assert f"**{alert.name}**" in text


@pytest.mark.parametrize("alert", [alert.name for alert in ALERTS])
def test_given_an_alert_when_it_fires_then_its_runbook_tells_what_to_do(alert: str) -> None:
    text = (HERE / "runbooks" / f"{alert}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    assert headings == [alert, "Meaning", "Impact", "Diagnosis", "Mitigation"]
    assert "```sh" in text.split("## Diagnosis")[1], "commands to copy"
