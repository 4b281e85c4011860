"""The Kubernetes objects, once: written out plain for Kustomize, and with places for values as a Helm chart.

The rules behind them: nothing in a driver's pod may become unready because of Kafka (the driver's service would lose
its name), the startup probe waits for a listener and never for Kafka, the API is on loopback beside a driver.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
NAME = "kafka-discovery"
LABELS = {"app.kubernetes.io/name": NAME}
_USER = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 0}
_STATE = "/var/lib/kafka-discovery"
_PROBES = {
    "startupProbe": {
        "httpGet": {"path": "/startupz", "port": "disc-metrics"}, "periodSeconds": 1, "failureThreshold": 60,
    },
    "livenessProbe": {
        "httpGet": {"path": "/livez", "port": "disc-metrics"}, "periodSeconds": 10, "timeoutSeconds": 5,
        "failureThreshold": 6,
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What differs between installations: plain values, or the places where Helm puts them."""

    image: Any = "kafka-discovery/sidecar:0.1.0"
    config: Any = (
        '[api]\nhost = "0.0.0.0"\ntoken_file = "/run/secrets/kafka-discovery/token"\n'
        'tls_certificate_file = "/run/secrets/kafka-discovery-tls/tls.crt"\n'
        'tls_key_file = "/run/secrets/kafka-discovery-tls/tls.key"\n\n'
        '[clusters.main]\nbootstrap_servers = ["kafka-bootstrap.kafka:9092"]\n'
    )
    sidecar_config: Any = '[clusters.main]\nbootstrap_servers = ["kafka-bootstrap.kafka:9092"]\n'
    token_secret: Any = "kafka-discovery-token"  # noqa: S105 - a name
    tls_secret: Any = "kafka-discovery-tls"  # noqa: S105 - a name
    storage: Any = "64Mi"
    storage_class: Any = None
    resources: Any = None
    monitoring_namespace: Any = "monitoring"
    kafka_port: Any = 9092
    kafka_last_port: Any = 9098

    @property
    def wanted_resources(self) -> Any:
        """What the container asks for: no CPU limit, which would only make it late."""
        return self.resources or {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "384Mi"}}


def sidecar(values: Values, *, native: bool = True) -> Document:
    """Return the container beside a Spark driver; `native`: an init container that goes on running."""
    command = {} if native else {"command": ["/bin/sh", "-c", _UNTIL_THE_DRIVER_ENDS, "kafka-discovery"]}
    # No readiness probe on purpose: it would count for the driver's pod.
    return {
        "name": NAME,
        "image": values.image,
        **({"restartPolicy": "Always"} if native else {}),
        **command,
        "args": ["serve", "--config", "/etc/kafka-discovery/config.toml", "--probe-host", "0.0.0.0",  # noqa: S104
                 "--state-dir", _STATE],
        "ports": [{"name": "disc-metrics", "containerPort": 9464}],
        **(_PROBES if native else {"livenessProbe": {**_PROBES["livenessProbe"], "initialDelaySeconds": 30}}),
        "resources": values.wanted_resources,
        "securityContext": _hardened(),
        "volumeMounts": [
            {"name": "discovery-config", "mountPath": "/etc/kafka-discovery", "readOnly": True},
            {"name": "discovery-state", "mountPath": _STATE},
            *([] if native else [{"name": "discovery-exit", "mountPath": "/run/kafka-discovery"}]),
        ],
    }  # fmt: skip


# Its end is the driver's, whatever the service says of it: one asked to end while it starts leaves with 143.
_UNTIL_THE_DRIVER_ENDS = (
    'kafka-discovery "$@" & service=$!\n'
    "until [ -e /run/kafka-discovery/driver-ended ]; do sleep 1; done\n"
    'kill "$service"; wait "$service" || true'
)


def driver_template(values: Values, *, native: bool = True) -> Document:
    """Return the pod template of a driver: for `spark.kubernetes.driver.podTemplateFile` or Kubeflow's `template`."""
    driver: Document = {"name": "spark-kubernetes-driver"}
    volumes: list[Document] = [
        {"name": "discovery-config", "configMap": {"name": f"{NAME}-sidecar"}},
        # Shared by user 10001 of the sidecar and 185 of Spark's images, by the group below.
        {"name": "discovery-state", "emptyDir": {"sizeLimit": "64Mi"}},
    ]
    if native:
        containers = {"initContainers": [sidecar(values)], "containers": [driver]}
    else:
        driver["volumeMounts"] = [{"name": "discovery-exit", "mountPath": "/run/kafka-discovery"}]
        containers = {"containers": [driver, sidecar(values, native=False)]}
        volumes.append({"name": "discovery-exit", "emptyDir": {}})
    return {
        "metadata": {"labels": {**LABELS, "app.kubernetes.io/component": "driver"}},
        "spec": {"securityContext": {"fsGroup": 185}, **containers, "volumes": volumes},
    }


def pod_template(values: Values, *, native: bool = True) -> Document:
    """Return the file for spark-submit."""
    template = driver_template(values, native=native)
    named = {"name": "spark-driver", **template["metadata"]}  # Spark gives the pod a name of its own
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}


def spark_application(values: Values) -> Document:
    """Return an application for the Kubeflow Spark operator."""
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "dau"},
        "spec": {
            "type": "Python",
            "pythonVersion": "3",
            "mode": "cluster",
            "sparkVersion": "4.2.0",
            "image": "kafka-discovery/driver:0.1.0",
            "mainApplicationFile": "local:///opt/kafka-discovery/share/kafka-discovery/spark_jobs/dau.py",
            "arguments": ["--bootstrap-servers", "kafka-bootstrap.kafka:9092", "--topic", "events", "--output",
                          "sqlite:////data/dau.db", "--checkpoint", "/data/checkpoint", "--source-id", "dau",
                          "--source-option", "discoveryUrl=http://127.0.0.1:9463"],
            "sparkConf": {"spark.kubernetes.driver.podTemplateContainerName": "spark-kubernetes-driver"},
            "restartPolicy": {"type": "OnFailure", "onFailureRetries": 10, "onFailureRetryInterval": 10},
            "driver": {"cores": 1, "memory": "1g", "serviceAccount": "spark", "template": driver_template(values)},
            "executor": {"instances": 2, "cores": 1, "memory": "1g"},
        },
    }  # fmt: skip


def config_map(name: str, text: Any) -> Document:
    """Return a configuration; a change of it is taken in within a minute or two, without a restart."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(name), "data": {"config.toml": text}}


def deployment(values: Values) -> Document:
    """Return the service for many drivers: one replica, since one process holds the state."""
    container = {
        "name": NAME,
        "image": values.image,
        "args": ["serve", "--config", "/etc/kafka-discovery/config.toml", "--probe-host", "0.0.0.0",  # noqa: S104
                 "--state-dir", _STATE],
        "ports": [{"name": "api", "containerPort": 9463}, {"name": "disc-metrics", "containerPort": 9464}],
        **_PROBES,
        # A view, fresh or not; here, away from drivers, readiness harms nobody.
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "disc-metrics"}, "periodSeconds": 5},
        "resources": values.wanted_resources,
        "securityContext": _hardened(),
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/kafka-discovery", "readOnly": True},
            {"name": "token", "mountPath": "/run/secrets/kafka-discovery", "readOnly": True},
            {"name": "tls", "mountPath": "/run/secrets/kafka-discovery-tls", "readOnly": True},
            {"name": "state", "mountPath": _STATE},
        ],
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(NAME),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {**LABELS, "app.kubernetes.io/component": "service"}},
            "template": {
                "metadata": {"labels": {**LABELS, "app.kubernetes.io/component": "service"}},
                "spec": {
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 10,
                    "securityContext": {"fsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [container],
                    "volumes": [
                        {"name": "config", "configMap": {"name": NAME}},
                        {"name": "token", "secret": {"secretName": values.token_secret}},
                        {"name": "tls", "secret": {"secretName": values.tls_secret}},
                        {"name": "state", "persistentVolumeClaim": {"claimName": f"{NAME}-state"}},
                    ],
                },
            },
        },
    }


def claim(values: Values) -> Document:
    """Return the volume of the last good views."""
    wanted: Document = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": values.storage}}}
    if values.storage_class is not None:
        wanted["storageClassName"] = values.storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": _metadata(f"{NAME}-state"), "spec": wanted}


def service(_: Values) -> Document:
    """Return the address of the service."""
    ports = [{"name": "api", "port": 9463, "targetPort": "api"}]
    selector = {**LABELS, "app.kubernetes.io/component": "service"}
    spec = {"selector": selector, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(NAME), "spec": spec}


def network_policy(values: Values) -> Document:
    """Return who may speak to the service, and to whom it may speak."""
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": values.monitoring_namespace}}}
    drivers = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"spark-role": "driver"}}}
    dns = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    kafka = [{"protocol": "TCP", "port": values.kafka_port, "endPort": values.kafka_last_port}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(NAME),
        "spec": {
            "podSelector": {"matchLabels": {**LABELS, "app.kubernetes.io/component": "service"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [drivers], "ports": [{"protocol": "TCP", "port": "api"}]},
                {"from": [monitoring], "ports": [{"protocol": "TCP", "port": "disc-metrics"}]},
            ],
            "egress": [{"ports": dns}, {"ports": kafka}],
        },
    }


def disruption_budget(_: Values) -> Document:
    """Return a budget that says the one replica may be moved: `minAvailable: 1` would block every drain."""
    selector = {"matchLabels": {**LABELS, "app.kubernetes.io/component": "service"}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(NAME),
        "spec": {"maxUnavailable": 1, "selector": selector},
    }


def pod_monitor(_: Values) -> Document:
    """Return what the Prometheus operator scrapes: the service and the sidecars of all drivers."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": _metadata(NAME),
        "spec": {
            "namespaceSelector": {"any": True},
            "selector": {"matchLabels": LABELS},
            "podMetricsEndpoints": [{"port": "disc-metrics", "interval": "15s"}],
        },
    }


BASE: Mapping[str, Callable[[Values], Document]] = {
    "configmap": lambda values: config_map(NAME, values.config),
    "claim": claim,
    "deployment": deployment,
    "service": service,
    "networkpolicy": network_policy,
    "poddisruptionbudget": disruption_budget,
}
"""The stand-alone service, file by file."""
SIDECAR: Mapping[str, Callable[[Values], Document]] = {
    "configmap-sidecar": lambda values: config_map(f"{NAME}-sidecar", values.sidecar_config),
}


def _metadata(name: str) -> Document:
    return {"name": name, "labels": LABELS}


def _hardened() -> Document:
    return {
        **_USER,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
