"""The manifests: sound by the schemas of several versions, and by the rules for a pod with a Spark driver in it."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate import as_yaml
from deploy.source import helm
from deploy.source import kubernetes as k8s
from discovery.config.settings import Settings
from tests.deploy.tools import find, tool

ROOT = Path("deploy/kubernetes")
CHART = Path("deploy/helm/kafka-discovery")
FOREIGN = {"PodMonitor", "PrometheusRule", "SparkApplication", "Kustomization", "Component"}
"""Kinds that Kubernetes itself has no schema for."""


def documents(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    return [(path, yaml.safe_load(path.read_text(encoding="utf-8"))) for path in sorted(folder.rglob("*.yaml"))]


def validate(version: str, *files: Path) -> None:
    for file in files:
        command = [tool("kubernetes-validate"), "--strict", "-k", version, str(file)]
        seen = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert seen.returncode == 0, seen.stdout + seen.stderr


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_given_the_manifests_when_validated_then_they_pass_strictly(version: str, tmp_path: Path) -> None:
    known = [path for path, document in documents(ROOT) if document["kind"] not in FOREIGN]
    assert len(known) == 9
    application = yaml.safe_load((ROOT / "spark/spark-application.yaml").read_text(encoding="utf-8"))
    template = application["spec"]["driver"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "x", **template["metadata"]}}
    (tmp_path / "template.yaml").write_text(yaml.safe_dump(pod), encoding="utf-8")
    everything = tmp_path / "all.yaml"
    everything.write_text("---\n".join(p.read_text(encoding="utf-8") for p in [*known, tmp_path / "template.yaml"]))
    validate(version, everything)


def test_given_a_mistake_when_validated_then_it_is_found(tmp_path: Path) -> None:
    wrong = (
        (ROOT / "base/deployment.yaml").read_text(encoding="utf-8").replace("failureThreshold", "failureTreshold", 1)
    )
    (tmp_path / "wrong.yaml").write_text(wrong, encoding="utf-8")
    with pytest.raises(AssertionError, match="failureTreshold"):
        validate("1.37", tmp_path / "wrong.yaml")


def driver_specs() -> list[dict[str, Any]]:
    application = yaml.safe_load((ROOT / "spark/spark-application.yaml").read_text(encoding="utf-8"))
    template = yaml.safe_load((ROOT / "spark/pod-template.yaml").read_text(encoding="utf-8"))
    return [application["spec"]["driver"]["template"]["spec"], template["spec"]]


def test_given_a_driver_when_the_sidecar_is_beside_it_then_it_never_stops_the_driver() -> None:
    for spec in driver_specs():
        (sidecar,) = spec["initContainers"]
        assert sidecar["restartPolicy"] == "Always", "else the driver would wait for its end"
        assert "readinessProbe" not in sidecar, "an outage of Kafka would take the driver's name out of DNS"
        assert sidecar["startupProbe"]["httpGet"]["path"] == "/startupz", "which does not wait for Kafka"
        assert "--host" not in sidecar["args"], "the API stays on loopback"
        assert spec["containers"][0]["name"] == "spark-kubernetes-driver"
        assert spec["securityContext"]["fsGroup"] == 185, "Spark's user shares the volume"


def test_given_kubernetes_before_1_29_when_a_driver_ends_then_the_sidecar_ends_too() -> None:
    spec = yaml.safe_load((ROOT / "spark/pod-template-before-1.29.yaml").read_text(encoding="utf-8"))["spec"]
    driver, sidecar = spec["containers"]
    assert "initContainers" not in spec
    assert "driver-ended" in sidecar["command"][2]
    assert {m["mountPath"] for m in driver["volumeMounts"]} < {m["mountPath"] for m in sidecar["volumeMounts"]}
    assert "readinessProbe" not in sidecar


def test_given_the_loop_until_the_driver_ends_when_the_file_appears_then_the_service_is_ended(tmp_path: Path) -> None:
    """The shell of the fallback, with `sleep` in the place of the service."""
    spec = yaml.safe_load((ROOT / "spark/pod-template-before-1.29.yaml").read_text(encoding="utf-8"))["spec"]
    script = spec["containers"][1]["command"][2].replace("/run/kafka-discovery/driver-ended", str(tmp_path / "ended"))
    (tmp_path / "ended").touch()
    script = script.replace("kafka-discovery", "sleep", 1)
    done = subprocess.run(["/bin/sh", "-c", script, "kafka-discovery", "300"], check=False, timeout=60)
    assert done.returncode == 0, "another code would make the pod of a driver that went well a failed one"


@pytest.mark.parametrize("folder", ["base", "monitoring"])
def test_given_a_kustomization_when_read_then_its_files_are_all_there_is(folder: str) -> None:
    listed = yaml.safe_load((ROOT / folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert sorted(listed) == sorted(p.name for p in (ROOT / folder).glob("*.yaml") if p.name != "kustomization.yaml")


def test_given_the_configurations_when_read_then_the_service_would_take_them() -> None:
    for path in (ROOT / "base/configmap.yaml", ROOT / "spark/configmap.yaml"):
        text = yaml.safe_load(path.read_text(encoding="utf-8"))["data"]["config.toml"]
        assert Settings.model_validate(tomllib.loads(text)).clusters.keys() == {"main"}


def test_given_the_chart_when_its_places_are_filled_with_its_values_then_it_is_the_plain_manifests() -> None:
    """A stand-in for `helm template` that knows only what the chart uses; `make test-helm` runs the real one."""
    for name, make in k8s.BASE.items():
        text = (CHART / f"templates/{name}.yaml").read_text(encoding="utf-8")
        assert yaml.safe_load(rendered(text)) == make(k8s.Values()), name


def rendered(text: str) -> str:
    body = re.sub(r"^\{\{-.*\}\}\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\{\{ (\.Values[\w.]*) \| \w+ \}\}", lambda found: yaml_of(found[1]), body)


def yaml_of(place: str) -> str:
    value: Any = helm.VALUES
    for part in place.removeprefix(".Values.").split("."):
        value = value[part]
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("...\n").strip()


@pytest.mark.skipif(find("helm") is None, reason="helm is not here: make test-helm brings it (minutes)")
def test_given_the_chart_when_helm_reads_it_then_lint_and_template_pass_and_give_the_plain_manifests(
    tmp_path: Path,
) -> None:
    helm_program = tool("helm")
    linted = subprocess.run([helm_program, "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    made = subprocess.run(
        [helm_program, "template", "kd", str(CHART), "--set", "monitoring.enabled=true", "--kube-version", "1.33.0"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    by_kind = {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(made.stdout)}
    for folder in ("base", "monitoring", "spark"):
        for path, document in documents(ROOT / folder):
            if path.name == "kustomization.yaml" or document["kind"] in {"Pod", "SparkApplication"}:
                continue
            assert by_kind[document["kind"], document["metadata"]["name"]] == document, path
    known = [d for d in by_kind.values() if d["kind"] not in FOREIGN]
    (tmp_path / "chart.yaml").write_text(as_yaml(*known), encoding="utf-8")
    validate("1.37", tmp_path / "chart.yaml")
