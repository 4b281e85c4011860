"""deploy-kubernetes.md on a real node, and the kubectl lines of deploy/runbooks; Kafka is out of reach all the time.

That is the point: nothing in a driver's pod may wait for Kafka. The driver's image is a stand-in without Spark.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
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
from tests.support.manual.markdown import RUNBOOKS, Block, blocks
from tests.support.runbooks import SAYS, console_commands, sh_blocks

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
        files = [SPARK / name for name in ("configmap.yaml", "claim.yaml")]
        with started.step(
            "what a driver's pod needs first", f"kubectl apply -f {' -f '.join(map(str, files))}"
        ) as said:
            for file in files:
                said.extend(started.kubectl("apply", "--validate=strict", "-f", str(file.resolve())).splitlines())
        yield started


@pytest.fixture(autouse=True)
def noted(kube: Node, record_property: Callable[[str, object], None]) -> None:
    """Keep what was done on the node, and its versions, with what the tests came to."""
    record_property("versions", kube.versions)
    record_property("steps", kube.steps)


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
    with kube.step("a driver beside the native sidecar", f"kubectl apply -f {SPARK}/pod-template.yaml") as result:
        start_driver(kube, "pod-template.yaml", "native", f"{_ASK}; import time; time.sleep(5)")
        eventually(lambda: kube.get("pod/native", ".status.phase") == "Succeeded", 120, "the driver's end")
        heard = kube.kubectl("logs", "native", "-c", "spark-kubernetes-driver").strip()
        code = kube.get("pod/native", ".status.initContainerStatuses[0].state.terminated.exitCode")
        result += ["pod Succeeded", f"the driver was answered {heard}", f"the sidecar left with {code}"]
    assert heard == "200"
    assert "cold" in kube.kubectl("logs", "native", "-c", "kafka-discovery")
    assert code == "0", "an operator would take another code for a failed application"
    assert kube.get("pod/native", ".status.initContainerStatuses[0].restartCount") == "0"


def test_given_kubernetes_before_1_29_when_the_driver_ends_then_the_pod_completes(kube: Node) -> None:
    code = "import pathlib, time; time.sleep(3); pathlib.Path('/run/kafka-discovery/driver-ended').touch()"
    file = "pod-template-before-1.29.yaml"
    with kube.step("a driver beside the fallback's container", f"kubectl apply -f {SPARK}/{file}") as result:
        start_driver(kube, file, "before", code)
        eventually(lambda: kube.get("pod/before", ".status.phase") == "Succeeded", 120, "the end of both containers")
        result += ["pod Succeeded"]


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
    with kube.step("the service, with the monitoring component", "kubectl apply -k …") as said:
        applied = kube.kubectl("apply", "--validate=strict", "-k", str(folder / "kubernetes/own")).splitlines()
        eventually(lambda: started(kube, "kd"), 120, "a service that has started and, without Kafka, is not ready")
        said += [f"{len(applied)} objects created", "pod started and not ready"]
    return kube


def test_given_the_deployment_when_the_lines_of_the_runbooks_are_run_then_they_do_what_they_say(deployed: Node) -> None:
    lines = [(page, line) for page, line in console_commands() if line.startswith("kubectl")]
    assert len(lines) == 5
    for page, line in lines:
        pod = pod_of(deployed, "kd")
        command = line.replace("NAMESPACE", "kd").replace("POD", pod)
        with deployed.step(f"runbook {page}", line) as said:
            said += [run_line(deployed, command, pod)]


def run_line(kube: Node, command: str, pod: str) -> str:
    """Run one of those lines, and say what was seen of it."""
    if "port-forward" in command:
        with forwarded(kube, command):
            return "both ports answer, the API over TLS and with the token alone"
    if "grep" in command:
        assert "BUG" not in kube.run("bash", "-c", f"{command} || true"), command
        assert "cold" in kube.run("bash", "-c", command.partition("|")[0])
        return "no bug in the log"
    seen = kube.run("bash", "-c", command)
    if "restart" in command:
        assert "restarted" in seen
        eventually(partial(has_changed, kube, pod), 120, "another pod")
        return "another pod started"
    assert ("cold" in seen) if "logs" in command else ("podmonitor" in seen and "networkpolicy" in seen), seen
    return "the service's log" if "logs" in command else "both listed"


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
    write = "id -u; touch /var/lib/kafka-discovery/x && rm /var/lib/kafka-discovery/x; touch /opt/x 2>&1 || true"
    with deployed.step("the volume, and nothing else, can be written", f"kubectl exec … -- bash -c '{write}'") as said:
        said.extend(in_pod(deployed, write).splitlines())
    user, refused = said
    assert user == "10001"
    assert "Read-only" in refused


def in_pod(kube: Node, script: str) -> str:
    """Run a script in the service's pod; return all it says."""
    return kube.kubectl(
        "-n", "kd", "exec", "deployment/kafka-discovery", "--", "bash", "-euo", "pipefail", "-c", script
    )


def test_given_a_private_authority_when_a_command_asks_the_service_then_it_is_answered_over_tls(deployed: Node) -> None:
    ask = "kafka-discovery status --url https://127.0.0.1:9463 --token-file /run/secrets/kafka-discovery/token"
    trust = f"{ask} --ca-file /run/secrets/kafka-discovery-tls/tls.crt"
    with deployed.step("a question over TLS from within the pod", f"kubectl exec … -- {trust}") as said:
        trusting = in_pod(deployed, f"{trust} 2>&1 || echo $?")
        said += [trusting.splitlines()[0], f"exit code {trusting.split()[-1]}"]
    assert "no broker answered within" in trusting, trusting
    assert trusting.endswith("\n3\n"), "no broker answers, but the service does"
    with deployed.step("the same without --ca-file", f"kubectl exec … -- {ask}") as said:
        refused = in_pod(deployed, f"{ask} 2>&1 || true")
        said += [refused.splitlines()[0]]
    assert "certificate" in refused, refused


def of_pod(block: Block) -> str:
    """Return the lines of a block that want a shell in the pod, as deploy/runbooks/README.md divides them."""
    if not any(word in block.text for word in ("STATE_DIR", "CONFIG", "/proc")):
        return ""
    return "".join(line for line in block.text.splitlines(keepends=True) if not line.startswith("curl"))


def test_given_the_deployment_when_what_wants_a_shell_in_the_pod_is_run_there_then_it_answers(deployed: Node) -> None:
    (known,) = (b.text for b in blocks(RUNBOOKS / "README.md") if b.language == "sh")
    wanted = [(name, script) for name in SAYS for block in sh_blocks(name) if (script := of_pod(block))]
    assert len(wanted) > 10
    with deployed.step("runbooks, what wants a shell in the pod", "kubectl -n NAMESPACE exec -it POD -- bash") as said:
        for name, script in wanted:
            answer = in_pod(deployed, f"exec 2>&1; export PID=1 CLUSTER=main\n{known}\n{script}")
            assert answer, f"{name}: {script}"
        said += [f"{len(wanted)} blocks answered"]


def test_given_the_chart_when_installed_and_tested_then_another_pod_reaches_its_service(
    kube: Node, tmp_path: Path
) -> None:
    helm = str(find("helm"))
    prepare(kube, "by-helm", tmp_path)
    chart = str(Path("deploy/helm/kafka-discovery").resolve())
    own = ("--set", "monitoring.enabled=true")
    with kube.step("the chart", f"helm install kafka-discovery deploy/helm/kafka-discovery {' '.join(own)}") as said:
        kube.run(helm, "install", "kafka-discovery", chart, "-n", "by-helm", *own)
        eventually(lambda: started(kube, "by-helm"), 120, "the service of the chart")
        said += ["pod started and not ready"]
    with kube.step("its test, on a node without DNS", "helm test kafka-discovery") as said:
        tested = kube.run("bash", "-c", f"{helm} test kafka-discovery -n by-helm --timeout 60s 2>&1 || true")
        logged = kube.kubectl("-n", "by-helm", "logs", "kafka-discovery-test")
        said += [tested.rpartition("* ")[2].strip(), logged.splitlines()[0]]
    assert "kafka-discovery-test failed" in tested, f"the node has no DNS: {tested}"
    assert "kafka-discovery.by-helm" in logged
    with kube.step("the pod of that test, with the address", "helm get hooks kafka-discovery") as said:
        another = ("-n", "by-helm", "get", "pod/another", "-o", "jsonpath={.status.phase}")
        kube.kubectl("-n", "by-helm", "apply", "--validate=strict", "-f", "-", text=with_the_address(kube, helm))
        eventually(lambda: kube.kubectl(*another) == "Failed", 120, "an answer, which without Kafka is no view")
        answer = kube.kubectl("-n", "by-helm", "logs", "another")
        said.extend(answer.splitlines())
    assert "no broker answered within" in answer
    kube.kubectl("-n", "by-helm", "delete", "pod", "another", "kafka-discovery-test")
    with kube.step("away with the chart", "helm uninstall kafka-discovery") as said:
        kube.run(helm, "uninstall", "kafka-discovery", "-n", "by-helm")
        eventually(lambda: not kube.kubectl("-n", "by-helm", "get", "pods", "-o", "name"), 60, "the end of the pod")
        said += ["no pod is left"]


def with_the_address(kube: Node, helm: str) -> str:
    """Return the pod of `helm test` under another name, with the service's address in its hosts file."""
    where = ("-n", "by-helm", "get", f"pod/{pod_of(kube, 'by-helm')}", "-o", "jsonpath={.status.podIP}")
    pod = yaml.safe_load(kube.run(helm, "get", "hooks", "kafka-discovery", "-n", "by-helm"))
    pod["metadata"]["name"] = "another"
    pod["spec"]["hostAliases"] = [{"ip": kube.kubectl(*where), "hostnames": ["kafka-discovery.by-helm"]}]
    return str(yaml.safe_dump(pod))
