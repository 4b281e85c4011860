"""Writes every generated file of this folder: `python -m deploy.generate [--runbooks-url URL]`.

The tests compare what is there with what this would write.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import yaml

from deploy.source import cases, dashboards, helm, rules
from deploy.source import kubernetes as k8s
from deploy.source.alerts import ALERTS, SOURCE_ALERTS, Alert

HERE = Path("deploy")
_PAGE = Path("docs/how-to/deploy-alerts.md")
_TRIED, _TRIED_SOURCES = HERE / "tried/alerts.json", HERE / "tried/source_alerts.json"
"""What `make test-alerts` has seen; it writes new ones to build."""
_PLAYED = {
    "deploy-compose": ["compose"],
    "deploy-kubernetes": ["kubernetes"],
    "deploy-systemd": ["runbooks"],
    "cluster": ["yarn", "object_store"],
}
"""Page of docs/how-to, and which other tests of whole stacks it tells of; they write new tables to build/tried."""
_HEAD = "# Written by `python -m deploy.generate`; do not edit. The source is in deploy/source.\n"


def files(*, runbooks: str = rules.RUNBOOKS) -> dict[Path, str]:
    """Return every generated file by path.

    Runs: anywhere; reads the pages whose tables it renews.
    """
    spec = rules.groups(runbooks=runbooks)
    rule = rules.prometheus_rule(spec)
    return {
        **_kubernetes(rule),
        **_chart(rule),
        **_dashboards(),
        _PAGE: _page(_PAGE.read_text(encoding="utf-8")),
        **dict(_played_page(Path(f"docs/how-to/{page}.md"), stacks) for page, stacks in _PLAYED.items()),
        HERE / "prometheus/rules/kafka-discovery.yml": as_yaml(spec),
        HERE / "prometheus/rules/prometheusrule.yaml": as_yaml(rule),
        HERE / "prometheus/tests/kafka-discovery.yml": as_yaml(cases.tests("../rules/kafka-discovery.yml")),
    }


def _kubernetes(rule: dict[str, Any]) -> dict[Path, str]:
    values, root = k8s.Values(), HERE / "kubernetes"
    base = {f"{name}.yaml": as_yaml(make(values)) for name, make in k8s.BASE.items()}
    watched = {"podmonitor.yaml": as_yaml(k8s.pod_monitor(values)), "prometheusrule.yaml": as_yaml(rule)}
    spark = {
        "configmap.yaml": as_yaml(k8s.SIDECAR["configmap-sidecar"](values)),
        "pod-template.yaml": as_yaml(k8s.pod_template(values)),
        "pod-template-before-1.29.yaml": as_yaml(k8s.pod_template(values, native=False)),
        "claim.yaml": as_yaml(k8s.claim(values, name=k8s.DRIVER_STATE)),
        "spark-application.yaml": as_yaml(k8s.spark_application(values)),
        "spark-application-data.yaml": as_yaml(k8s.application_data(values)),
        "spark-application-state.yaml": as_yaml(k8s.claim(values, name="dau-discovery-state")),
    }
    return {
        **{root / "base" / name: text for name, text in {**base, **_kustomization("Kustomization", base)}.items()},
        **{root / "monitoring" / n: text for n, text in {**watched, **_kustomization("Component", watched)}.items()},
        **{root / "spark" / name: text for name, text in spark.items()},
    }


def _kustomization(kind: str, resources: dict[str, str]) -> dict[str, str]:
    version = "v1alpha1" if kind == "Component" else "v1beta1"
    document = {"apiVersion": f"kustomize.config.k8s.io/{version}", "kind": kind, "resources": sorted(resources)}
    return {"kustomization.yaml": as_yaml(document)}


def _dashboards() -> dict[Path, str]:
    return {
        HERE / f"grafana/{one.uid}.json": json.dumps(dashboards.render(one), indent=2) + "\n"
        for one in dashboards.DASHBOARDS
    }


def _page(text: str) -> str:
    """Put the alerts, and what was last seen of them for real, into the how-to."""
    rows = "| alert | severity | after | says |\n|---|---|---|---|\n" + "".join(map(_row, (*ALERTS, *SOURCE_ALERTS)))
    seen, sources = (json.loads(file.read_text(encoding="utf-8")) for file in (_TRIED, _TRIED_SOURCES))
    figures = f"{tried_table(seen)}{tried_rows(sources)}\nRows `Source…`: commit {sources['commit']}.\n"
    return _between(_between(text, "alerts", rows), "figures", figures)


def _between(text: str, mark: str, content: str) -> str:
    head, rest = text.split(f"<!-- {mark} -->\n")
    tail = rest.split(f"<!-- /{mark} -->\n")[1]
    return f"{head}<!-- {mark} -->\n\n{content}\n<!-- /{mark} -->\n{tail}"


def tried_table(seen: dict[str, Any]) -> str:
    """Return the table of a run of `make test-alerts`: alert, fault, seconds until it was delivered, and its end.

    Runs: anywhere (pure).
    """
    head = (
        f"One run of commit {seen['commit']} on a machine with {seen['cores']} cores, {seen['seconds']} s;"
        f" {seen['runbook_blocks']} blocks of runbooks were run\nwhile their alerts fired.\n\n"
        "| alert | fault | fired after s | resolved after s |\n|---|---|---|---|\n"
    )
    return head + tried_rows(seen)


def tried_rows(seen: dict[str, Any]) -> str:
    """Return the rows of such a table.

    Runs: anywhere (pure).
    """
    names = ("alert", "fault", "fired_after_seconds", "resolved_after_seconds")
    return "".join(f"| {' | '.join(str(row[name]) for name in names)} |\n" for row in seen["alerts"])


def _played_page(page: Path, stacks: list[str]) -> tuple[Path, str]:
    tables = {stack: json.loads((HERE / f"tried/{stack}.json").read_text(encoding="utf-8")) for stack in stacks}
    runs = "\n".join(f"`make test-{stack.replace('_', '-')}`: {played(seen)}" for stack, seen in tables.items())
    return page, _between(page.read_text(encoding="utf-8"), "figures", runs)


def played(seen: dict[str, Any]) -> str:
    """Return what a test of a whole stack came to: where, how long, and step by step where it keeps steps.

    Runs: anywhere (pure).
    """
    tests = seen["tests"].values()
    passed, seconds = sum(one["outcome"] == "passed" for one in tests), sum(one["seconds"] for one in tests)
    text = f"one run of commit {seen['commit']} on a machine with {seen['cores']} cores: {passed} of {len(tests)} tests"
    text += f" passed, {seconds} s.\n"
    if "steps" in seen:
        text += f"{', '.join(' '.join(one) for one in seen['versions'].items())}.\n\n"
        text += "| what | command | result | s |\n|---|---|---|---|\n" + "".join(map(_step, seen["steps"]))
    return text


def _step(step: dict[str, Any]) -> str:
    what, command, result = (" ".join(step[name].split()).replace("|", r"\|") for name in ("what", "command", "result"))
    return f"| {what} | `{command}` | {result} | {step['seconds']} |\n"


def _row(alert: Alert) -> str:
    said = re.sub(r"\{\{ \$(?:labels\.)?(\w+).*?\}\}", r"*\1*", alert.summary)
    link = f"[{alert.name}](../../deploy/runbooks/{alert.page})"
    return f"| {link} | {alert.severity} | {alert.for_seconds / 60:g} min | {said} |\n"


def _chart(rule: dict[str, Any]) -> dict[Path, str]:
    root = HERE / "helm/kafka-discovery"
    return {
        root / "Chart.yaml": as_yaml(helm.CHART),
        root / "values.yaml": as_yaml(helm.VALUES),
        **{root / name: text for name, text in helm.files(as_yaml, rule).items()},
    }


def as_yaml(*documents: Any) -> str:
    """Write documents as YAML, long texts folded, multi-line ones as blocks, keys as they come.

    Runs: anywhere (pure).
    """
    dumped = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return _HEAD + str(dumped)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes texts of several lines as blocks, and repeats instead of anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        """Write everything out: readers and other tools need no anchors."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def main() -> None:
    """Write the files that differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runbooks-url", default=rules.RUNBOOKS, help="where your copy of the runbooks is served")
    for path, text in files(runbooks=parser.parse_args().runbooks_url).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
