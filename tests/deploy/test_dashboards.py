"""The dashboards ask for what is exported, in PromQL that Prometheus takes, and no panel covers another."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.source.alerts import RECORDINGS
from deploy.source.dashboards import DASHBOARDS, Dashboard, render
from discovery.config.metric_families import CLUSTER_LABEL
from tests.deploy.test_rules import exported, names_in
from tests.support.debian_tools import tool

RECORDED = {record.name for record in RECORDINGS}
EACH = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda d: d.uid)


def expressions(dashboard: Dashboard) -> list[str]:
    return [expr for panel in dashboard.panels for expr, _ in panel.queries]


@EACH
def test_given_a_dashboard_when_read_then_its_metrics_and_labels_are_exported(dashboard: Dashboard) -> None:
    known = exported()
    for expr in (*expressions(dashboard), *(query for _, query in dashboard.variables)):
        assert names_in(expr) <= known.keys(), expr
        assert set(re.findall(r"\w+:kafka_discovery_[a-z_:0-9]+", expr)) <= RECORDED, expr
        for name, labels in re.findall(r"(kafka_discovery_\w+)\{([^}]*)\}", expr):
            assert set(re.findall(r"(\w+)=?[=~!]", labels)) <= set(known[name]), expr
    for panel in dashboard.panels:
        for expr, legend in panel.queries:
            labels = {label for name in names_in(expr) for label in known[name]} | {CLUSTER_LABEL}
            assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= labels, panel.title


@EACH
def test_given_a_dashboard_when_promtool_reads_its_expressions_then_they_are_promql(
    dashboard: Dashboard, tmp_path: Path
) -> None:
    filled = [e.replace("$__rate_interval", "1m").replace("$cluster", "main") for e in expressions(dashboard)]
    rules = [{"record": f"panel:expression:{i}", "expr": e} for i, e in enumerate(filled)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    command = [tool("promtool"), "check", "rules", str(tmp_path / "rules.yml")]
    seen = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert seen.returncode == 0, seen.stdout + seen.stderr
    assert f"{len(filled)} rules found" in seen.stdout


@EACH
def test_given_a_dashboard_when_imported_then_its_datasource_and_its_instances_can_be_chosen(
    dashboard: Dashboard,
) -> None:
    made = render(dashboard)
    source, *others = made["templating"]["list"]
    assert (source["name"], source["type"]) == ("datasource", "datasource")
    assert {panel["datasource"]["uid"] for panel in (*made["panels"], *others)} == {"${datasource}"}
    used = set(re.findall(r"\$([a-z]+)", " ".join(expressions(dashboard))))
    assert used <= {one["name"] for one in others}
    assert not others or "instance" in used


@EACH
def test_given_a_dashboard_when_laid_out_then_panels_do_not_overlap(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    panels: list[dict[str, Any]] = render(dashboard)["panels"]
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_given_the_files_when_read_by_grafana_then_each_has_an_id_of_its_own() -> None:
    files = [json.loads(path.read_text(encoding="utf-8")) for path in Path("deploy/grafana").glob("*.json")]
    assert len({one["uid"] for one in files}) == len(DASHBOARDS)
