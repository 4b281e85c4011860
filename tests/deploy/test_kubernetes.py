"""The manifests: sound by the schemas of several versions, and by the rules for a pod with a Spark driver in it."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.generate import as_yaml
from deploy.source import helm
from deploy.source import kubernetes as k8s
from discovery.config.settings import Settings
from tests.support.debian_tools import find, tool

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
    assert len(known) == 12
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
        assert not [v for v in spec["volumes"] if "emptyDir" in v], "a new pod begins with what the last one knew"


def test_given_the_application_when_a_pod_is_replaced_then_everything_it_computed_is_on_a_volume() -> None:
    spec = yaml.safe_load((ROOT / "spark/spark-application.yaml").read_text(encoding="utf-8"))["spec"]
    claimed = {d["metadata"]["name"] for _, d in documents(ROOT) if d["kind"] == "PersistentVolumeClaim"}
    (data,) = spec["volumes"]
    assert data["persistentVolumeClaim"]["claimName"] in claimed
    for pod in (spec["driver"], spec["executor"]):
        assert [mount["mountPath"] for mount in pod["volumeMounts"]] == ["/data"]
    kept = [word for word in spec["arguments"] if "/data" in word]
    assert kept == ["sqlite:////data/dau.db", "/data/checkpoint", "/data/state"]
    volumes = spec["driver"]["template"]["spec"]["volumes"]
    assert {v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v} <= claimed


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
        assert yaml.safe_load(rendered(text)) == make(k8s.Values(annotations={}, pull_policy="IfNotPresent")), name


def rendered(text: str) -> str:
    """Fill the places as a release called kafka-discovery does; what is empty by default is left out."""
    body = re.sub(r"^\{\{- (with|range) .*?^\{\{- end \}\}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    body = re.sub(r"^\{\{-.*\}\}\n", "", body, flags=re.MULTILINE)
    body = re.sub(r"\{\{ \.Values\.persistence\.existingClaim .*\}\}", f"{k8s.NAME}-state", body)
    body = re.sub(r'\{\{ (include "kafka-discovery.fullname" \.|\.Release\.Name \| quote) \}\}', k8s.NAME, body)
    body = body.replace("{{ .Release.Namespace }}", "ns")
    body = re.sub(r"\{\{ merge .*\}\}", "{}", body)
    return re.sub(r"\{\{ (\.Values[\w.]*) \| \w+ \}\}", lambda found: yaml_of(found[1]), body)


def yaml_of(place: str) -> str:
    value: Any = helm.VALUES
    for part in place.removeprefix(".Values.").split("."):
        value = value[part]
    return str(yaml.safe_dump(value, default_flow_style=True, width=10_000)).removesuffix("...\n").strip()


def test_given_the_charts_values_when_held_against_its_schema_then_they_pass_and_a_misspelt_one_does_not() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(values, schema)
    mistakes: list[dict[str, Any]] = [
        {"tolerance": []}, {"persistence": {"storage": "much"}}, {"image": ""}, {"monitoring": {"on": True}},
        {"networkPolicy": {"egressPorts": []}},
    ]  # fmt: skip
    for wrong in mistakes:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values, **wrong}, schema)


@pytest.mark.parametrize("authority", ["", "PEM"])
def test_given_the_charts_test_when_it_runs_then_it_trusts_the_authority_if_the_secret_has_one(
    tmp_path: Path, authority: str
) -> None:
    """The shell of the pod, with `echo` in the place of the program."""
    pod = yaml.safe_load(rendered((CHART / "templates/tests/status.yaml").read_text(encoding="utf-8")))
    (secret,) = [volume["secret"] for volume in pod["spec"]["volumes"] if volume["name"] == "tls"]
    assert secret["optional"], "else a secret without an authority could not be mounted"
    assert {item["key"] for item in secret["items"]} == {"ca.crt", "tls.crt"}, "and no key"
    (tmp_path / "tls.crt").write_text("PEM")
    (tmp_path / "ca.crt").write_text(authority)
    shell, option, script, *words = pod["spec"]["containers"][0]["command"]
    script = script.replace("/run/secrets/tls", str(tmp_path)).replace("kafka-discovery", "echo")
    said = subprocess.run([shell, option, script, *words], capture_output=True, text=True, check=True, timeout=60)
    assert f"--ca-file {tmp_path}/{'ca.crt' if authority else 'tls.crt'}" in said.stdout
    assert "--url https://kafka-discovery.ns:9463" in said.stdout


EVERY = {
    "image": "registry.example.com/kd@sha256:" + "0" * 64,
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "pull"}],
    "config": '[api]\nhost = "0.0.0.0"\n',
    "sidecarConfig": "[log]\n",
    "tokenSecret": "my-token",
    "tlsSecret": "my-tls",
    "persistence": {"storage": "1Gi", "storageClass": "fast", "existingClaim": ""},
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
    "podAnnotations": {"a.example.com/b": "c"},
    "podLabels": {"team": "streams"},
    "serviceAccountName": "reader",
    "priorityClassName": "high",
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "extraArguments": ["--endpoint"],
    "extraEnvironment": [{"name": "KAFKA_DISCOVERY_LOG__LEVEL", "value": "debug"}],
    "extraVolumes": [{"name": "jaas", "secret": {"secretName": "kafka-login"}}],
    "extraVolumeMounts": [{"name": "jaas", "mountPath": "/run/secrets/kafka", "readOnly": True}],
    "service": {"enabled": True},
    "networkPolicy": {
        "enabled": True, "monitoringNamespace": "prom", "egressPorts": [{"protocol": "TCP", "port": 14_000}],
    },
    "podDisruptionBudget": {"enabled": True, "maxUnavailable": 0},
    "monitoring": {"enabled": True, "labels": {"release": "prometheus"}, "runbookUrl": "https://runbooks.example.com"},
}  # fmt: skip
"""A value other than the default for everything there is."""


def template(folder: Path, values: dict[str, Any], *, release: str = "kafka-discovery") -> list[dict[str, Any]]:
    """Return what helm makes of the chart; everything of ours passes strictly."""
    (folder / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    given = ("--values", str(folder / "values.yaml"), "--kube-version", "1.33.0", "--namespace", "ns")
    made = subprocess.run(
        [tool("helm"), "template", release, str(CHART), *given], capture_output=True, text=True, check=False, timeout=60
    )
    assert made.returncode == 0, made.stderr
    found = [document for document in yaml.safe_load_all(made.stdout) if document]
    known = [document for document in found if document["kind"] not in FOREIGN]
    (folder / "chart.yaml").write_text(as_yaml(*known), encoding="utf-8")
    validate("1.37", folder / "chart.yaml")
    return found


needs_helm = pytest.mark.skipif(find("helm") is None, reason="helm is not here: make test-helm brings it (minutes)")


@needs_helm
def test_given_the_chart_when_helm_reads_it_then_lint_and_template_pass_and_give_the_plain_manifests(
    tmp_path: Path,
) -> None:
    linted = subprocess.run([tool("helm"), "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    made = template(tmp_path, {"monitoring": {"enabled": True}})
    by_kind = {(d["kind"], d["metadata"]["name"]): d for d in made}
    for folder in ("base", "monitoring"):
        for path, document in documents(ROOT / folder):
            if path.name == "kustomization.yaml":
                continue
            found = by_kind[document["kind"], document["metadata"]["name"]]
            if document["kind"] == "Deployment":
                checksum = found["spec"]["template"]["metadata"].pop("annotations")
                assert list(checksum) == ["checksum/config"]
                assert found["spec"]["template"]["spec"]["containers"][0].pop("imagePullPolicy") == "IfNotPresent"
            if document["kind"] == "PrometheusRule":
                document["metadata"] = found["metadata"]
            assert found == document, path


@needs_helm
def test_given_every_value_when_helm_fills_the_chart_then_each_is_in_what_it_makes(tmp_path: Path) -> None:
    assert EVERY.keys() == helm.VALUES.keys()
    made = template(tmp_path, EVERY, release="one")
    by_kind = {d["kind"]: d for d in made if d["kind"] not in {"ConfigMap", "Pod"}}
    pod = by_kind["Deployment"]["spec"]["template"]
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert pod["metadata"]["labels"].items() > {("team", "streams"), ("app.kubernetes.io/instance", "one")}
    assert pod["metadata"]["annotations"].keys() == {"checksum/config", "a.example.com/b"}
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert spec[name] == EVERY[name], name
    assert spec["serviceAccountName"] == "reader"
    assert (container["image"], container["imagePullPolicy"]) == (EVERY["image"], "Always")
    assert (container["env"], container["resources"]) == (EVERY["extraEnvironment"], EVERY["resources"])
    assert container["args"][-1] == "--endpoint"
    assert container["volumeMounts"][-1:] == EVERY["extraVolumeMounts"]
    assert spec["volumes"][-1:] == EVERY["extraVolumes"]
    secrets = {v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
    assert secrets == {"my-token", "my-tls", "kafka-login"}
    claim = by_kind["PersistentVolumeClaim"]
    assert (claim["metadata"]["name"], claim["spec"]["storageClassName"]) == ("one-kafka-discovery-state", "fast")
    assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    policy = by_kind["NetworkPolicy"]["spec"]
    assert policy["egress"][-1]["ports"] == [{"protocol": "TCP", "port": 14_000}]
    (monitoring,) = policy["ingress"][-1]["from"]
    assert monitoring["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "prom"}
    assert by_kind["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 0
    for kind in ("PodMonitor", "PrometheusRule"):
        assert by_kind[kind]["metadata"]["labels"]["release"] == "prometheus"
    rules = by_kind["PrometheusRule"]["spec"]["groups"][1]["rules"]
    name = rules[0]["alert"]
    assert rules[0]["annotations"]["runbook_url"] == f"https://runbooks.example.com/{name}.md"
    texts = {d["metadata"]["name"]: d["data"]["config.toml"] for d in made if d["kind"] == "ConfigMap"}
    assert texts == {
        "one-kafka-discovery": EVERY["config"], "one-kafka-discovery-sidecar": EVERY["sidecarConfig"],
    }  # fmt: skip
    (test,) = [d for d in made if d["kind"] == "Pod"]
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    changed = template(tmp_path, {**EVERY, "config": "[log]\n"}, release="one")
    (deployment,) = [d for d in changed if d["kind"] == "Deployment"]
    before, after = (d["spec"]["template"]["metadata"]["annotations"] for d in (by_kind["Deployment"], deployment))
    assert before["checksum/config"] != after["checksum/config"], "else a new config starts no new pod"
    existing = template(tmp_path, {"persistence": {"existingClaim": "mine"}})
    assert not [d for d in existing if d["kind"] == "PersistentVolumeClaim"]
    (deployment,) = [d for d in existing if d["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["volumes"][-1]["persistentVolumeClaim"]["claimName"] == "mine"


GONE_WITHOUT = {
    "service": {
        ("ConfigMap", ""), ("Deployment", ""), ("NetworkPolicy", ""), ("PersistentVolumeClaim", "-state"),
        ("Pod", "-test"), ("PodDisruptionBudget", ""), ("Service", ""),
    },
    "networkPolicy": {("NetworkPolicy", "")},
    "podDisruptionBudget": {("PodDisruptionBudget", "")},
    "monitoring": {("PodMonitor", ""), ("PrometheusRule", "")},
}  # fmt: skip
"""By part that can be switched off: kinds that go with it, and the ends of their names."""


@needs_helm
@pytest.mark.parametrize("part", GONE_WITHOUT)
def test_given_a_part_that_is_switched_off_when_filled_then_its_objects_alone_are_gone(
    tmp_path: Path, part: str
) -> None:
    assert GONE_WITHOUT.keys() == {
        name for name, value in helm.VALUES.items() if isinstance(value, dict) and "enabled" in value
    }
    every, left = (
        {(d["kind"], d["metadata"]["name"].removeprefix(k8s.NAME)) for d in template(tmp_path, values)}
        for values in (
            {name: {"enabled": True} for name in GONE_WITHOUT},
            {name: {"enabled": name != part} for name in GONE_WITHOUT},
        )
    )
    assert every - left == GONE_WITHOUT[part]
    assert left < every


@needs_helm
def test_given_two_releases_in_one_namespace_when_made_then_no_object_and_no_pod_is_anothers(tmp_path: Path) -> None:
    one, other = (template(tmp_path, {"monitoring": {"enabled": True}}, release=name) for name in ("one", "other"))
    names = [{(d["kind"], d["metadata"]["name"]) for d in made} for made in (one, other)]
    assert names[0].isdisjoint(names[1])
    specs: list[dict[str, Any]] = [{d["kind"]: d.get("spec") for d in made} for made in (one, other)]
    selectors = [spec["Deployment"]["selector"]["matchLabels"] for spec in specs]
    assert selectors[0] != selectors[1]
    pods = [spec["Deployment"]["template"]["metadata"]["labels"].items() for spec in specs]
    watched = [spec["PodMonitor"]["selector"]["matchLabels"].items() for spec in specs]
    assert [[wanted <= labels for labels in pods] for wanted in watched] == [[True, False], [False, True]]


def test_given_the_pod_monitor_when_read_then_it_selects_service_and_drivers_of_one_release_and_namespace() -> None:
    spec = yaml.safe_load((ROOT / "monitoring/podmonitor.yaml").read_text(encoding="utf-8"))["spec"]
    assert "namespaceSelector" not in spec, "a release of the same name elsewhere would be scraped twice"
    wanted = spec["selector"]["matchLabels"]
    assert wanted["app.kubernetes.io/instance"] == k8s.NAME
    deployment = yaml.safe_load((ROOT / "base/deployment.yaml").read_text(encoding="utf-8"))["spec"]["template"]
    application = yaml.safe_load((ROOT / "spark/spark-application.yaml").read_text(encoding="utf-8"))
    templates = [
        yaml.safe_load((ROOT / f"spark/{name}.yaml").read_text(encoding="utf-8"))
        for name in ("pod-template", "pod-template-before-1.29")
    ]
    for pod in (deployment, application["spec"]["driver"]["template"], *templates):
        assert wanted.items() <= pod["metadata"]["labels"].items()


CREDENTIALS = [
    '"sasl.jaas.config" = "x password=y"',
    '"ssl.key.password" = "p"',
    "'sasl.password' = 'p'",
    '"ssl.key.pem" = "p"',
    '"sasl.oauthbearer.config" = "p"',
    '"sasl.oauthbearer.assertion.private.key.passphrase" = "p"',
    'inline = { "client.id" = "a#b", "sasl.password" = "p" }',
    'password = "p"',
    '[clusters.main.client.ssl.keystore]\nkey = "p"',
    '[clusters.main.client.ssl.key]\npem = "p"',
]
NO_CREDENTIALS = [
    '"sasl.jaas.config_file" = "/run/secrets/kafka/jaas"',
    '# "sasl.password" = "p" would be refused',
    '"client.id" = "password"',
]


def with_option(line: str) -> str:
    return f"[clusters.main]\nbootstrap_servers = 'b:9092'\n[clusters.main.client]\n{line}\n"


@pytest.mark.parametrize("line", [*CREDENTIALS, *NO_CREDENTIALS])
def test_given_a_configuration_when_the_charts_guard_reads_it_then_it_finds_credentials_alone(line: str) -> None:
    """Python reads the guard's expression as Go does."""
    template = (CHART / "templates/configmap.yaml").read_text(encoding="utf-8")
    (guard,) = re.findall(r"\$secret := `(.+)`", template)
    assert bool(re.search(guard, with_option(line))) is (line in CREDENTIALS)


@needs_helm
@pytest.mark.parametrize("secret", CREDENTIALS)
def test_given_a_credential_in_the_configuration_when_filled_then_helm_refuses_it(tmp_path: Path, secret: str) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"config": with_option(secret)}), encoding="utf-8")
    command = [tool("helm"), "template", "x", str(CHART), "--kube-version", "1.33.0"]
    command += ["--values", str(tmp_path / "values.yaml")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode != 0
    assert "extraVolumes" in refused.stderr
    template(tmp_path, {"config": with_option("\n".join(NO_CREDENTIALS))})
