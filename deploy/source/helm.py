"""The same objects as a Helm chart: marked values become places, and some files are there only if wanted."""

import re
from collections.abc import Callable
from typing import Any

from deploy.source import kubernetes as k8s

CHART = {
    "apiVersion": "v2",
    "name": "kafka-discovery",
    "description": "Vets Kafka brokers and feeds Spark streams with living ones",
    "type": "application",
    "version": "0.1.0",
    "appVersion": "0.1.0",
    "kubeVersion": ">=1.25.0-0",
}
_PLAIN = k8s.Values()
VALUES = {
    "image": _PLAIN.image,
    "config": _PLAIN.config,
    "sidecarConfig": _PLAIN.sidecar_config,
    "tokenSecret": _PLAIN.token_secret,
    "tlsSecret": _PLAIN.tls_secret,
    "storage": _PLAIN.storage,
    "resources": _PLAIN.wanted_resources,
    "service": {"enabled": True},
    "networkPolicy": {"enabled": True, "monitoringNamespace": "monitoring", "kafkaPort": 9092, "kafkaLastPort": 9098},
    "monitoring": {"enabled": False},
}
_PLACES = {
    "image": ".Values.image | quote",
    "config": ".Values.config | toJson",
    "sidecar_config": ".Values.sidecarConfig | toJson",
    "token_secret": ".Values.tokenSecret | quote",
    "tls_secret": ".Values.tlsSecret | quote",
    "storage": ".Values.storage | quote",
    "resources": ".Values.resources | toJson",
    "monitoring_namespace": ".Values.networkPolicy.monitoringNamespace | quote",
    "kafka_port": ".Values.networkPolicy.kafkaPort | int",
    "kafka_last_port": ".Values.networkPolicy.kafkaLastPort | int",
}
_WANTED = {"networkpolicy": ".Values.networkPolicy.enabled", "podmonitor": ".Values.monitoring.enabled",
           "prometheusrule": ".Values.monitoring.enabled", "configmap-sidecar": ""}  # fmt: skip


def templates(as_yaml: Callable[[Any], str], rule: dict[str, Any]) -> dict[str, str]:
    """Return the chart's templates by file name.

    Runs: anywhere (pure).
    """
    marked = k8s.Values(**{name: f"PLACE-{name}-" for name in _PLACES})
    objects = {name: as_yaml(make(marked)) for name, make in {**k8s.BASE, **k8s.SIDECAR}.items()}
    objects["podmonitor"] = as_yaml(k8s.pod_monitor(marked))
    # The rules have double braces of their own.
    objects["prometheusrule"] = re.sub(r"(\{\{.*?\}\})", r"{{`\1`}}", as_yaml(rule), flags=re.DOTALL)
    return {f"{name}.yaml": _if_wanted(name, _placed(text)) for name, text in objects.items()}


def _placed(text: str) -> str:
    return re.sub(r"PLACE-([a-z_]+)-", lambda found: f"{{{{ {_PLACES[found[1]]} }}}}", text)


def _if_wanted(name: str, text: str) -> str:
    wanted = _WANTED.get(name, ".Values.service.enabled")
    return f"{{{{- if {wanted} }}}}\n{text}{{{{- end }}}}\n" if wanted else text
