"""deploy-kubernetes.md on a real node, and the kubectl lines of deploy/runbooks; Kafka is out of reach all the time.

That is the point: nothing in a driver's pod may wait for Kafka. The driver's image is a stand-in without Spark.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from deploy.package import build
from tests.stack.engine import base_archive
from tests.stack.images import Image, installed_layer, write_archive
from tests.stack.kube.node import Node, missing, node
from tests.support.debian_tools import find
from tests.support.helpers import eventually
from tests.support.runbooks import console_commands

pytestmark = [pytest.mark.timeout(900)]
SPARK = Path("deploy/kubernetes/spark")
_TOKEN = "a-token-of-the-tests"  # noqa: S105 - of a node that ends with the test
_PATH = "PATH=/opt/kafka-discovery/bin:/usr/bin:/bin"
_ASK = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9463/v1/status', timeout=30).status, flush=True)"
_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.monitoring.coreos.com}}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}, singular: {singular}}}
  versions:
  - {{name: v1, served: true, storage: true,
     schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}
"""
"""In the place of the Prometheus operator's: the kinds are known, their fields are not checked."""
_VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}}}
spec:
  capacity: {{storage: 64Mi}}
  accessModes: [ReadWriteOnce]
  hostPath: {{path: {path}}}
  claimRef: {{name: {claim}, namespace: {namespace}}}
"""


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that has our images."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("node")
    wheel, _ = build(folder / "dist")
    base, ours = base_archive(), installed_layer(wheel, folder / "installed.tar")
    service = {"User": "10001:0", "Env": [_PATH], "Entrypoint": ["kafka-discovery"], "WorkingDir": "/tmp"}  # noqa: S108
    images = [
        Image("docker.io/kafka-discovery/sidecar:0.1.0", [base, ours], service),
        Image("docker.io/kafka-discovery/driver:0.1.0", [base], {"User": "185:0", "Entrypoint": ["python3", "-c"]}),
        Image("registry.k8s.io/pause:3.8", [base], {"Entrypoint": ["/bin/sleep", "infinity"]}),
    ]
    write_archive(folder / "images.tar", images)
    with node(tmp_path_factory.mktemp("run"), folder / "images.tar") as started:
        for kind, plural in (("PodMonitor", "podmonitors"), ("PrometheusRule", "prometheusrules")):
            started.kubectl("apply", "-f", "-", text=_CRD.format(kind=kind, plural=plural, singular=kind.lower()))
        add_volume(started, "default", "kafka-discovery-driver-state", folder)
        for name in ("configmap.yaml", "claim.yaml"):
            started.kubectl("apply", "--validate=strict", "-f", str(Path(SPARK, name).resolve()))
        yield started


def driver_pod(file: str, name: str, code: str) -> str:
    """Return the template as Spark fills it: a name, an image, what to run."""
    pod = yaml.safe_load((SPARK / file).read_text(encoding="utf-8"))
    pod["metadata"]["name"] = name
    pod["spec"]["restartPolicy"] = "Never"
    (driver,) = (c for c in pod["spec"]["containers"] if c["name"] == "spark-kubernetes-driver")
    driver |= {"image": "kafka-discovery/driver:0.1.0", "args": [code]}
    return str(yaml.safe_dump(pod))


def start_driver(kube: Node, file: str, name: str, code: str) -> None:
    eventually(lambda: kube.get("serviceaccount/default", ".metadata.name"), 60, "the account of pods")
    kube.kubectl("apply", "--validate=strict", "-f", "-", text=driver_pod(file, name, code))


def test_given_kafka_is_away_when_a_driver_starts_beside_the_native_sidecar_then_it_runs_and_ends(kube: Node) -> None:
    start_driver(kube, "pod-template.yaml", "native", f"{_ASK}; import time; time.sleep(5)")
    eventually(lambda: kube.get("pod/native", ".status.phase") == "Succeeded", 120, "the driver's end")
    assert kube.kubectl("logs", "native", "-c", "spark-kubernetes-driver").strip() == "200"
    assert "cold" in kube.kubectl("logs", "native", "-c", "kafka-discovery")
    ended = ".status.initContainerStatuses[0].state.terminated.exitCode"
    assert kube.get("pod/native", ended) == "0", "an operator would take another code for a failed application"
    assert kube.get("pod/native", ".status.initContainerStatuses[0].restartCount") == "0"


def test_given_kubernetes_before_1_29_when_the_driver_ends_then_the_pod_completes(kube: Node) -> None:
    code = "import pathlib, time; time.sleep(3); pathlib.Path('/run/kafka-discovery/driver-ended').touch()"
    start_driver(kube, "pod-template-before-1.29.yaml", "before", code)
    eventually(lambda: kube.get("pod/before", ".status.phase") == "Succeeded", 120, "the end of both containers")


def add_volume(kube: Node, namespace: str, claim: str, folder: Path) -> None:
    """Have a volume for a claim."""
    state = folder / namespace
    state.mkdir(mode=0o777)
    state.chmod(0o777)  # a path of the host takes no fsGroup
    made = _VOLUME.format(name=namespace, path=state, namespace=namespace, claim=claim)
    kube.kubectl("apply", "-f", "-", text=made)


def prepare(kube: Node, namespace: str, folder: Path) -> None:
    """Do what deploy-kubernetes.md asks for first: a namespace, a volume, the token, a certificate."""
    kube.kubectl("create", "namespace", namespace)
    add_volume(kube, namespace, "kafka-discovery-state", folder)
    kube.kubectl(
        "-n", namespace, "create", "secret", "generic", "kafka-discovery-token", f"--from-literal=token={_TOKEN}"
    )
    pair = ("-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt")
    names = f"subjectAltName=DNS:kafka-discovery.{namespace},IP:127.0.0.1"
    subject = ("-subj", "/CN=kafka-discovery", "-addext", names)
    kube.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *pair)
    files = (f"--cert={folder}/tls.crt", f"--key={folder}/tls.key")
    kube.kubectl("-n", namespace, "create", "secret", "tls", "kafka-discovery-tls", *files)


def pod_of(kube: Node, namespace: str) -> str:
    """Return the service's pod that is not being ended."""
    chosen = ("-l", "app.kubernetes.io/component=service", "--field-selector=status.phase=Running")
    seen = kube.kubectl("-n", namespace, "get", "pods", *chosen, "-o", "jsonpath={.items[*].metadata.name}").split()
    return seen[0] if len(seen) == 1 else ""


def started(kube: Node, namespace: str) -> bool:
    seen = kube.kubectl(
        "-n", namespace, "get", "pods", "-o",
        "jsonpath={range .items[*]}{.status.containerStatuses[0].started} {.status.containerStatuses[0].ready} {end}",
    )  # fmt: skip
    return seen.split() == ["true", "false"]


@pytest.fixture(scope="module")
def deployed(kube: Node, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """The Deployment of Kustomize, with the monitoring component."""
    folder = tmp_path_factory.mktemp("base")
    prepare(kube, "kd", folder)
    shutil.copytree("deploy/kubernetes", folder / "kubernetes")
    own = {"namespace": "kd", "resources": ["../base"], "components": ["../monitoring"]}
    (folder / "kubernetes/own").mkdir()
    (folder / "kubernetes/own/kustomization.yaml").write_text(yaml.safe_dump(own), encoding="utf-8")
    kube.kubectl("apply", "--validate=strict", "-k", str(folder / "kubernetes/own"))
    eventually(lambda: started(kube, "kd"), 120, "a service that has started and, without Kafka, is not ready")
    return kube


def test_given_the_deployment_when_the_lines_of_the_runbooks_are_run_then_they_do_what_they_say(deployed: Node) -> None:
    lines = [(page, line) for page, line in console_commands() if line.startswith("kubectl")]
    assert len(lines) == 5
    for page, line in lines:
        pod = pod_of(deployed, "kd")
        command = line.replace("NAMESPACE", "kd").replace("POD", pod)
        if "port-forward" in line:
            with forwarded(deployed, command):
                pass
        elif "grep" in line:
            assert "BUG" not in deployed.run("bash", "-c", f"{command} || true"), page
            assert "cold" in deployed.run("bash", "-c", command.split("|")[0])
        elif "restart" in line:
            assert "restarted" in deployed.run("bash", "-c", command)
            eventually(partial(has_changed, deployed, pod), 120, "another pod")
        else:
            seen = deployed.run("bash", "-c", command)
            assert ("cold" in seen) if "logs" in line else ("podmonitor" in seen and "networkpolicy" in seen), seen


def has_changed(kube: Node, old: str) -> bool:
    return pod_of(kube, "kd") not in {"", old} and started(kube, "kd")


@contextlib.contextmanager
def forwarded(kube: Node, command: str) -> Iterator[None]:
    """Bring the service's ports to the node and ask both; the API wants TLS and the token."""
    forwarding = subprocess.Popen(
        [*kube.around, *command.split()], env=kube.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        assert forwarding.stdout is not None
        assert b"Forwarding from" in forwarding.stdout.readline()
        assert kube.run("curl", "-s", "http://127.0.0.1:9464/livez").strip().endswith("ok")
        ask = ("curl", "-sk", "https://127.0.0.1:9463/v1/status")
        assert '"main"' in kube.run(*ask, "-H", f"Authorization: Bearer {_TOKEN}")
        assert "main" not in kube.run(*ask)
        yield
    finally:
        forwarding.terminate()
        forwarding.wait(30)
        assert forwarding.stdout is not None
        forwarding.stdout.close()


def test_given_the_deployment_when_it_runs_then_it_may_write_its_volume_and_nothing_else(deployed: Node) -> None:
    assert deployed.kubectl("-n", "kd", "get", "pvc", "-o", "jsonpath={.items[*].status.phase}") == "Bound"
    inside = ("-n", "kd", "exec", "deployment/kafka-discovery", "--", "sh", "-c")
    assert (
        deployed.kubectl(*inside, "id -u; touch /var/lib/kafka-discovery/x && rm /var/lib/kafka-discovery/x")
        == "10001\n"
    )
    assert "Read-only" in deployed.kubectl(*inside, "touch /opt/x 2>&1 || true")


def test_given_a_private_authority_when_a_command_asks_the_service_then_it_is_answered_over_tls(deployed: Node) -> None:
    ask = "kafka-discovery status --url https://127.0.0.1:9463 --token-file /run/secrets/kafka-discovery/token"
    inside = ("-n", "kd", "exec", "deployment/kafka-discovery", "--", "sh", "-c")
    trusting = deployed.kubectl(*inside, f"{ask} --ca-file /run/secrets/kafka-discovery-tls/tls.crt 2>&1; echo $?")
    assert "no broker answered within" in trusting, trusting
    assert trusting.endswith("\n3\n"), "no broker answers, but the service does"
    refused = deployed.kubectl(*inside, f"{ask} 2>&1 || true")
    assert "certificate" in refused, refused


def test_given_the_chart_when_installed_and_tested_then_another_pod_reaches_its_service(
    kube: Node, tmp_path: Path
) -> None:
    helm = find("helm")
    if helm is None:
        pytest.skip("helm is not here, though make test-kubernetes builds it")
    prepare(kube, "by-helm", tmp_path)
    chart = str(Path("deploy/helm/kafka-discovery").resolve())
    kube.run(helm, "install", "kafka-discovery", chart, "-n", "by-helm", "--set", "monitoring.enabled=true")
    eventually(lambda: started(kube, "by-helm"), 120, "the service of the chart")
    where = ("-n", "by-helm", "get", f"pod/{pod_of(kube, 'by-helm')}", "-o", "jsonpath={.status.podIP}")
    address = kube.kubectl(*where)
    tested = kube.run("bash", "-c", f"{helm} test kafka-discovery -n by-helm --timeout 60s 2>&1 || true")
    assert "kafka-discovery-test failed" in tested, f"the node has no DNS: {tested}"
    assert "kafka-discovery.by-helm" in kube.kubectl("-n", "by-helm", "logs", "kafka-discovery-test")
    only = ("--show-only", "templates/tests/status.yaml")
    pod = yaml.safe_load(kube.run(helm, "template", "kafka-discovery", chart, "-n", "by-helm", *only))
    pod["metadata"]["name"] = "another"
    pod["spec"]["hostAliases"] = [{"ip": address, "hostnames": ["kafka-discovery.by-helm"]}]
    kube.kubectl("-n", "by-helm", "apply", "--validate=strict", "-f", "-", text=yaml.safe_dump(pod))
    phase = ("-n", "by-helm", "get", "pod/another", "-o", "jsonpath={.status.phase}")
    eventually(lambda: kube.kubectl(*phase) == "Failed", 120, "an answer, which without Kafka is no view")
    assert "no broker answered within" in kube.kubectl("-n", "by-helm", "logs", "another")
    kube.kubectl("-n", "by-helm", "delete", "pod", "another", "kafka-discovery-test")
    kube.run(helm, "uninstall", "kafka-discovery", "-n", "by-helm")
    eventually(lambda: not kube.kubectl("-n", "by-helm", "get", "pods", "-o", "name"), 60, "the end of the pod")
