"""A real Prometheus and a real Alertmanager over one service, and the webhook that hears what they send."""

import contextlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy.generate import as_yaml
from deploy.source.rules import groups, sixtieth
from discovery.localkafka.ports import reserve_ports
from tests.support.debian_tools import tool
from tests.support.helpers import eventually

EXTERNAL = "production-eu"
"""The cluster of machines, as Prometheus' operator names it in `external_labels`."""
_TEMPLATES = Path("/usr/share/prometheus/alertmanager/default.tmpl")


@dataclass(slots=True)
class Heard:
    """What was delivered, by alert and fingerprint. Thread-safe for one writer."""

    firing: dict[str, dict[str, float]] = field(default_factory=dict)
    """Alert -> fingerprint -> when its last firing was first notified."""
    resolved: dict[str, dict[str, float]] = field(default_factory=dict)
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    prometheus: str = ""

    def take(self, message: dict[str, Any]) -> None:
        """Note one message of Alertmanager."""
        for alert in message["alerts"]:
            name, key = alert["labels"]["alertname"], alert["fingerprint"]
            self.annotations[name], self.labels[name] = alert["annotations"], alert["labels"]
            if alert["status"] == "firing":
                again = self.resolved.get(name, {}).pop(key, None) is not None
                if again or key not in self.firing.get(name, {}):
                    self.firing.setdefault(name, {})[key] = time.monotonic()
            else:
                self.resolved.setdefault(name, {})[key] = time.monotonic()

    def fired(self, name: str, since: float) -> float | None:
        """Return when it was first notified to fire after a moment; None while it was not."""
        return min((at for at in list(self.firing.get(name, {}).values()) if at >= since), default=None)

    def federated(self, metric: str) -> list[dict[str, str]]:
        """Return the labels of each series of a metric that another Prometheus gets."""
        wanted = {"match[]": f'{{__name__="{metric}"}}'}
        text = httpx.get(f"http://{self.prometheus}/federate", params=wanted, timeout=5, trust_env=False).text
        return [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in text.splitlines() if line.startswith(metric)]

    def is_over(self, name: str) -> bool:
        """Tell whether all of it that fired is resolved."""
        return name in self.firing and self.firing[name].keys() <= self.resolved.get(name, {}).keys()


@contextlib.contextmanager
def monitoring(target: str, folder: Path) -> Iterator[Heard]:
    """Watch a service, every second, by the rules with minutes shortened to seconds."""
    if not _TEMPLATES.exists():  # unpacked by `make tools`, not installed
        pytest.skip("Alertmanager's templates are not installed: apt-get install prometheus-alertmanager")
    heard = Heard()
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(_webhook(heard))
        ports = reserve_ports(2)
        for port in ports:
            stack.callback(port.release)
        own, manager = (f"127.0.0.1:{port.port}" for port in ports)
        _write(folder, target=target, manager=manager, receiver=receiver)
        stack.enter_context(
            _running("prometheus-alertmanager", folder, f"--config.file={folder}/alertmanager.yml",
                     f"--storage.path={folder}/alertmanager", f"--web.listen-address={manager}",
                     "--cluster.listen-address=", "--log.level=warn")
        )  # fmt: skip
        stack.enter_context(
            _running("prometheus", folder, f"--config.file={folder}/prometheus.yml",
                     f"--storage.tsdb.path={folder}/tsdb",
                     f"--web.listen-address={own}", "--rules.alert.resend-delay=2s", "--log.level=warn")
        )  # fmt: skip
        for address in (own, manager):
            eventually(partial(_is_ready, address), 60, f"an answer of {address}")
        heard.prometheus = own
        yield heard


def _write(folder: Path, *, target: str, manager: str, receiver: str) -> None:
    job = {"job_name": "kafka-discovery", "scrape_timeout": "1s", "static_configs": [{"targets": [target]}]}
    prometheus = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s", "external_labels": {"cluster": EXTERNAL}},
        "rule_files": ["rules.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager]}]}]},
        "scrape_configs": [job],
    }
    route = {
        "receiver": "test",
        "group_by": ["..."],
        "group_wait": "1s",
        "group_interval": "1s",
        "repeat_interval": "1h",
    }
    alertmanager = {
        "route": route,
        "receivers": [{"name": "test", "webhook_configs": [{"url": receiver, "send_resolved": True}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(prometheus), encoding="utf-8")
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(alertmanager), encoding="utf-8")
    (folder / "rules.yml").write_text(as_yaml(groups(sixtieth, interval_seconds=1)), encoding="utf-8")


@contextlib.contextmanager
def _webhook(heard: Heard) -> Iterator[str]:
    class Hook(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            heard.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            serving.join()


@contextlib.contextmanager
def _running(program: str, folder: Path, *arguments: str) -> Iterator[None]:
    with (folder / f"{program}.log").open("w") as log:
        process = subprocess.Popen([tool(program), *arguments], stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/-/ready", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
