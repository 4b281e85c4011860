"""A Kubernetes node in namespaces made for it: API server, controllers, scheduler, kubelet, containerd."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.debian_tools import find
from tests.support.helpers import eventually

_NODE = Path(__file__).with_name("node.sh").resolve()
_TOOLS = Path("build/tools").resolve()
_NEEDED = ("unshare", "nsenter", "ip", "openssl", "containerd", "ctr", "runc", "kubectl", "mmdebstrap")
_READY = ".status.conditions[?(@.type=='Ready')].status"
_PACKAGES = "containerd runc kubernetes-client mmdebstrap iproute2 openssl"


def missing() -> str | None:
    """Say what this machine lacks to be a node, or None."""
    if os.geteuid() != 0:
        return "only root may make the namespaces of a node"
    if lacking := [name for name in _NEEDED if find(name) is None]:
        return f"no {', '.join(lacking)} here: apt-get install --no-install-recommends {_PACKAGES}"
    if lacking := [name for name in ("kube-node", "helm", "etcd") if find(name) is None]:
        return f"{', '.join(lacking)} not built: make test-kubernetes (16 minutes)"
    return None


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is ready."""

    pid: int
    """Of its process 1, as seen from here."""
    folder: Path
    steps: list[dict[str, str | int]] = field(default_factory=list)
    """What was done on it, for the table of deploy-kubernetes.md."""

    @property
    def around(self) -> tuple[str, ...]:
        """What to put before a command that shall see the node's network and processes."""
        return ("nsenter", "-t", str(self.pid), "-m", "-n", "-p")

    @property
    def environment(self) -> dict[str, str]:
        """What kubectl and helm need."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "KUBECONFIG": str(self.folder / "kubeconfig")}

    def run(self, *command: str, timeout: float = 120, text: str | None = None) -> str:
        """Run a command on the node and return what it says; fail with its words."""
        done = subprocess.run(
            [*self.around, *command],
            input=text, capture_output=True, text=True, timeout=timeout, check=False, env=self.environment,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def kubectl(self, *words: str, text: str | None = None) -> str:
        """Run kubectl."""
        return self.run("kubectl", *words, text=text)

    def get(self, what: str, path: str) -> str:
        """Return one field of an object: `get("pod/x", ".status.phase")`."""
        return self.kubectl("get", what, "-o", f"jsonpath={{{path}}}", "--ignore-not-found")

    @contextlib.contextmanager
    def step(self, what: str, command: str) -> Iterator[list[str]]:
        """Note what is done in the block, by the command as a page has it; its result is what is put into the list."""
        began, result = time.monotonic(), list[str]()
        yield result
        took_seconds = round(time.monotonic() - began)
        self.steps.append({"what": what, "command": command, "result": ", ".join(result), "seconds": took_seconds})

    @property
    def versions(self) -> dict[str, str]:
        """What takes part, and which of it."""
        kubernetes = json.loads(self.kubectl("version", "-o", "json"))
        etcd, containerd, runc = (
            self.run(str(find(name)), "--version").split() for name in ("etcd", "containerd", "runc")
        )
        return {
            "Kubernetes": kubernetes["serverVersion"]["gitVersion"],
            "kubectl": kubernetes["clientVersion"]["gitVersion"],
            "Helm": self.run(str(find("helm")), "version", "--short").strip(),
            "etcd": etcd[2],
            "containerd": containerd[2],
            "runc": runc[2],
        }


@contextlib.contextmanager
def node(folder: Path, images: Path) -> Iterator[Node]:
    """Run a node with these images until the end of the block; skips the test, with the reason, where it cannot."""
    if reason := missing():
        pytest.skip(reason)
    os.link(images, folder / "images.tar")
    tools = [str(_TOOLS / path) for path in ("usr/bin/kube-node", "usr/lib/cni", "usr/bin/etcd")]
    spaces = ["--fork", "--kill-child", "--pid", "--mount", "--net", "--uts", "--ipc", "--mount-proc"]
    with (folder / "node.log").open("w") as log:
        unshared = subprocess.Popen(
            ["unshare", *spaces, str(_NODE), str(folder), *tools], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        eventually(lambda: _first_process(unshared, folder), 30, "process 1 of the node")
        started = Node(_first_process(unshared, folder), folder)
        eventually(lambda: _is_ready(started, unshared, folder), 180, "a node that is ready")
        yield started
    finally:
        unshared.kill()  # its child goes with it, and with that every process and mount of the node
        unshared.wait(30)
        _remove_cgroups()


def _first_process(unshared: "subprocess.Popen[bytes]", folder: Path) -> int:
    assert unshared.poll() is None, f"the node ended: {(folder / 'node.log').read_text()[-2000:]}"
    seen = Path(f"/proc/{unshared.pid}/task/{unshared.pid}/children").read_text(encoding="ascii").split()
    return int(seen[0]) if seen else 0


def _is_ready(started: Node, unshared: "subprocess.Popen[bytes]", folder: Path) -> bool:
    _first_process(unshared, folder)
    asked = subprocess.run(
        [*started.around, "kubectl", "get", "node/node", "-o", f"jsonpath={{{_READY}}}"],
        capture_output=True, text=True, timeout=30, check=False, env=started.environment,
    )  # fmt: skip
    return asked.stdout == "True"


def _remove_cgroups() -> None:
    """Remove what containerd leaves under this name; what is in use cannot be removed, and stays."""
    folders = [path for root in Path("/sys/fs/cgroup").glob("**/k8s.io") for path in (root, *root.glob("*/"))]
    for path in sorted(folders, key=lambda p: len(p.parts), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir()
