"""The Kubernetes objects, once: written out plain for Kustomize, and with places for values as a Helm chart.

The rules behind them: nothing in a driver's pod may become unready because of Kafka (the driver's service would lose
its name), the startup probe waits for a listener and never for Kafka, the API is on loopback beside a driver.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]
NAME = "kafka-discovery"
DRIVER_STATE = f"{NAME}-driver-state"
"""The claim of a pod template: of one application, for two sidecars never share a state folder."""
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
    """What differs between installations: plain values, or the places where Helm puts them; None leaves a field out."""

    name: Any = NAME
    """Of every object; two releases in one namespace differ by it."""
    release: Any = NAME
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
    state_claim: Any = f"{NAME}-state"
    monitoring_namespace: Any = "monitoring"
    egress_ports: Any = (
        {"protocol": "TCP", "port": 9092, "endPort": 9098},
        {"protocol": "TCP", "port": 9192, "endPort": 9198},  # public listeners of managed brokers
        {"protocol": "TCP", "port": 443},  # a token endpoint of OIDC
    )
    max_unavailable: Any = 1
    annotations: Any = None
    pod: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the pod: where it runs, as whom."""
    more_labels: Mapping[str, Any] = field(default_factory=dict)
    pull_policy: Any = None
    more_arguments: tuple[Any, ...] = ()
    environment: Any = None
    more_mounts: tuple[Any, ...] = ()
    more_volumes: tuple[Any, ...] = ()
    monitor_labels: Any = None

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


def driver_template(values: Values, *, native: bool = True, claim: str = DRIVER_STATE) -> Document:
    """Return the pod template of a driver: for `spark.kubernetes.driver.podTemplateFile` or Kubeflow's `template`.

    `claim` outlives the pod: the next driver's sidecar begins with the last good view, whoever has died meanwhile.
    """
    driver: Document = {"name": "spark-kubernetes-driver"}
    volumes: list[Document] = [
        {"name": "discovery-config", "configMap": {"name": f"{NAME}-sidecar"}},
        # Shared by user 10001 of the sidecar and 185 of Spark's images, by the group below.
        {"name": "discovery-state", "persistentVolumeClaim": {"claimName": claim}},
    ]
    if native:
        containers = {"initContainers": [sidecar(values)], "containers": [driver]}
    else:
        driver["volumeMounts"] = [{"name": "discovery-exit", "mountPath": "/run/kafka-discovery"}]
        containers = {"containers": [driver, sidecar(values, native=False)]}
        volumes.append({"name": "discovery-exit", "emptyDir": {}})
    return {
        # A PodMonitor of that release scrapes it, and no other one.
        "metadata": {"labels": {**_instance(values), "app.kubernetes.io/component": "driver"}},
        "spec": {"securityContext": {"fsGroup": 185}, **containers, "volumes": volumes},
    }


def pod_template(values: Values, *, native: bool = True) -> Document:
    """Return the file for spark-submit."""
    template = driver_template(values, native=native)
    named = {"name": "spark-driver", **template["metadata"]}  # Spark gives the pod a name of its own
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}


def spark_application(values: Values) -> Document:
    """Return an application for the Kubeflow Spark operator."""
    data = {"name": "data", "mountPath": "/data"}
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
                          "--state-dir", "/data/state", "--source-option", "discoveryUrl=http://127.0.0.1:9463"],
            "sparkConf": {"spark.kubernetes.driver.podTemplateContainerName": "spark-kubernetes-driver"},
            "restartPolicy": {"type": "OnFailure", "onFailureRetries": 10, "onFailureRetryInterval": 10},
            # Checkpoint, result and ledger: executors write state there too, so all pods mount one volume. An object
            # store does as well for the checkpoint; the ledger then belongs into Kafka (cutLedger=kafka).
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "dau-data"}}],
            "driver": {"cores": 1, "memory": "1g", "serviceAccount": "spark", "volumeMounts": [data],
                       "template": driver_template(values, claim="dau-discovery-state")},
            "executor": {"instances": 2, "cores": 1, "memory": "1g", "volumeMounts": [data],
                         "podSecurityContext": {"fsGroup": 185}},
        },
    }  # fmt: skip


def application_data(values: Values) -> Document:
    """Return the volume of the application above."""
    return claim(values, name="dau-data", storage="10Gi", access="ReadWriteMany")


def config_map(values: Values, name: str, text: Any) -> Document:
    """Return a configuration; a change of it is taken in within a minute or two (the kubelet's), without a restart."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(values, name), "data": {"config.toml": text}}


def deployment(values: Values) -> Document:
    """Return the service for many drivers: one replica, since one process holds the state."""
    container = {
        "name": NAME,
        "image": values.image,
        **_given(imagePullPolicy=values.pull_policy),
        "args": ["serve", "--config", "/etc/kafka-discovery/config.toml", "--probe-host", "0.0.0.0",  # noqa: S104
                 "--state-dir", _STATE, *values.more_arguments],
        **_given(env=values.environment),
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
            *values.more_mounts,
        ],
    }  # fmt: skip
    labels = _selected(values)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(values),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": {**labels, **values.more_labels}, **_given(annotations=values.annotations)},
                "spec": {
                    **_given(**values.pod),
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 10,
                    "securityContext": {"fsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [container],
                    "volumes": [
                        {"name": "config", "configMap": {"name": values.name}},
                        {"name": "token", "secret": {"secretName": values.token_secret}},
                        {"name": "tls", "secret": {"secretName": values.tls_secret}},
                        {"name": "state", "persistentVolumeClaim": {"claimName": values.state_claim}},
                        *values.more_volumes,
                    ],
                },
            },
        },
    }


def claim(
    values: Values, *, name: str | None = None, storage: str | None = None, access: str = "ReadWriteOnce"
) -> Document:
    """Return a volume; the one of the last good views if none is named."""
    wanted: Document = {"accessModes": [access], "resources": {"requests": {"storage": storage or values.storage}}}
    if values.storage_class is not None:
        wanted["storageClassName"] = values.storage_class
    metadata = _metadata(values, name or f"{values.name}-state")
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": wanted}


def service(values: Values) -> Document:
    """Return the address of the service."""
    ports = [{"name": "api", "port": 9463, "targetPort": "api"}]
    spec = {"selector": _selected(values), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(values), "spec": spec}


def network_policy(values: Values) -> Document:
    """Return who may speak to the service, and to whom it may speak."""
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": values.monitoring_namespace}}}
    drivers = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"spark-role": "driver"}}}
    dns = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    brokers = list(values.egress_ports) if isinstance(values.egress_ports, tuple) else values.egress_ports
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(values),
        "spec": {
            "podSelector": {"matchLabels": _selected(values)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [
                {"from": [drivers], "ports": [{"protocol": "TCP", "port": "api"}]},
                {"from": [monitoring], "ports": [{"protocol": "TCP", "port": "disc-metrics"}]},
            ],
            "egress": [{"ports": dns}, {"ports": brokers}],
        },
    }


def disruption_budget(values: Values) -> Document:
    """Return a budget that says the one replica may be moved: `minAvailable: 1` would block every drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(values),
        "spec": {"maxUnavailable": values.max_unavailable, "selector": {"matchLabels": _selected(values)}},
    }


def pod_monitor(values: Values) -> Document:
    """Return what the Prometheus operator scrapes in this namespace: the service and the sidecars of its drivers."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": monitor_metadata(values),
        "spec": {
            "selector": {"matchLabels": _instance(values)},
            "podMetricsEndpoints": [{"port": "disc-metrics", "interval": "15s"}],
        },
    }


BASE: Mapping[str, Callable[[Values], Document]] = {
    "configmap": lambda values: config_map(values, values.name, values.config),
    "claim": claim,
    "deployment": deployment,
    "service": service,
    "networkpolicy": network_policy,
    "poddisruptionbudget": disruption_budget,
}
"""The stand-alone service, file by file."""
SIDECAR: Mapping[str, Callable[[Values], Document]] = {
    "configmap-sidecar": lambda values: config_map(values, f"{values.name}-sidecar", values.sidecar_config),
}


def monitor_metadata(values: Values) -> Document:
    """Return name and labels of what the Prometheus operator reads; it chooses by labels."""
    return (
        _metadata(values) if values.monitor_labels is None else {"name": values.name, "labels": values.monitor_labels}
    )


def _metadata(values: Values, name: str | None = None) -> Document:
    return {"name": name or values.name, "labels": _instance(values)}


def _instance(values: Values) -> Document:
    """Return the labels of everything of one release, the sidecars of its drivers too."""
    return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": values.release}


def _selected(values: Values) -> Document:
    """Return the labels of this installation's own pods."""
    return {**_instance(values), "app.kubernetes.io/component": "service"}


def _given(**fields: Any) -> Document:
    return {name: value for name, value in fields.items() if value is not None}


def _hardened() -> Document:
    return {
        **_USER,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
