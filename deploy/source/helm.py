"""The same objects as a Helm chart: marked values become places, and some files are there only if wanted."""

import json
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
VALUES: dict[str, Any] = {
    "image": _PLAIN.image,
    "imagePullPolicy": "IfNotPresent",
    "imagePullSecrets": [],
    "config": _PLAIN.config,
    "sidecarConfig": _PLAIN.sidecar_config,
    "tokenSecret": _PLAIN.token_secret,
    "tlsSecret": _PLAIN.tls_secret,
    "persistence": {"storage": _PLAIN.storage, "storageClass": "", "existingClaim": ""},
    "resources": _PLAIN.wanted_resources,
    "podAnnotations": {},
    "podLabels": {},
    "serviceAccountName": "",
    "priorityClassName": "",
    "nodeSelector": {},
    "tolerations": [],
    "affinity": {},
    "extraArguments": [],
    "extraEnvironment": [],
    "extraVolumes": [],
    "extraVolumeMounts": [],
    "service": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "monitoringNamespace": "monitoring",
        "egressPorts": list(_PLAIN.egress_ports),
    },
    "podDisruptionBudget": {"enabled": True, "maxUnavailable": 1},
    "monitoring": {"enabled": False, "labels": {}, "runbookUrl": ""},
}
_TEXT, _FLAG = {"type": "string"}, {"type": "boolean"}
_NAMED = {"type": "string", "minLength": 1}
_TABLE, _LIST = {"type": "object"}, {"type": "array"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_OBJECTS = {"type": "array", "items": _TABLE}


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **_closed(
        image=_NAMED,
        imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
        imagePullSecrets=_OBJECTS,
        config=_NAMED,
        sidecarConfig=_NAMED,
        tokenSecret=_NAMED,
        tlsSecret=_NAMED,
        persistence=_closed(
            storage={"type": "string", "pattern": r"^[0-9.]+([EPTGMk]i?|m)?$"}, storageClass=_TEXT, existingClaim=_TEXT
        ),
        resources=_TABLE,
        podAnnotations=_TEXTS,
        podLabels=_TEXTS,
        serviceAccountName=_TEXT,
        priorityClassName=_TEXT,
        nodeSelector=_TEXTS,
        tolerations=_OBJECTS,
        affinity=_TABLE,
        extraArguments={"type": "array", "items": _TEXT},
        extraEnvironment=_OBJECTS,
        extraVolumes=_OBJECTS,
        extraVolumeMounts=_OBJECTS,
        service=_closed(enabled=_FLAG),
        networkPolicy=_closed(enabled=_FLAG, monitoringNamespace=_NAMED, egressPorts={**_OBJECTS, "minItems": 1}),
        podDisruptionBudget=_closed(enabled=_FLAG, maxUnavailable={"type": ["integer", "string"]}),
        monitoring=_closed(enabled=_FLAG, labels=_TEXTS, runbookUrl=_TEXT),
    ),
}
_FULLNAME = 'include "kafka-discovery.fullname" .'
_PLACES = {
    "image": ".Values.image | quote",
    "config": ".Values.config | toJson",
    "sidecar_config": ".Values.sidecarConfig | toJson",
    "token_secret": ".Values.tokenSecret | quote",
    "tls_secret": ".Values.tlsSecret | quote",
    "storage": ".Values.persistence.storage | quote",
    "state_claim": f'.Values.persistence.existingClaim | default (printf "%s-state" ({_FULLNAME})) | quote',
    "resources": ".Values.resources | toJson",
    "monitoring_namespace": ".Values.networkPolicy.monitoringNamespace | quote",
    "egress_ports": ".Values.networkPolicy.egressPorts | toJson",
    "max_unavailable": ".Values.podDisruptionBudget.maxUnavailable | toJson",
    "release": ".Release.Name | quote",
    "annotations": 'merge (dict "checksum/config" (.Values.config | sha256sum)) .Values.podAnnotations | toJson',
    "pull_policy": ".Values.imagePullPolicy | quote",
    "monitor_labels": (
        'merge (dict "app.kubernetes.io/name" "kafka-discovery" "app.kubernetes.io/instance" .Release.Name) '
        ".Values.monitoring.labels | toJson"
    ),
}
_OPTIONAL = {
    "storage_class": "persistence.storageClass",
    "pull_secrets": "imagePullSecrets",
    "account": "serviceAccountName",
    "priority": "priorityClassName",
    "nodes": "nodeSelector",
    "tolerated": "tolerations",
    "affinity": "affinity",
    "environment": "extraEnvironment",
}
"""A field that is left out where its value is empty."""
_MORE = {"arguments": "extraArguments", "mounts": "extraVolumeMounts", "volumes": "extraVolumes"}
"""Items added to a list."""
_WANTED = {
    "networkpolicy": "and .Values.service.enabled .Values.networkPolicy.enabled",
    "poddisruptionbudget": "and .Values.service.enabled .Values.podDisruptionBudget.enabled",
    "claim": "and .Values.service.enabled (not .Values.persistence.existingClaim)",
    "podmonitor": ".Values.monitoring.enabled",
    "prometheusrule": ".Values.monitoring.enabled",
    "configmap-sidecar": "",
}
_NO_SECRETS = (
    # The last ones are keys of tables of their own: [clusters.main.client.ssl.keystore] and then key = "…".
    r"{{- $secret := `(?im)^[ \t]*(([^#\s][^\n]*)?"
    r"(password|passphrase|jaas\.config|oauthbearer\.config|keystore\.key|key\.pem|client\.secret)"
    r"""|["']?(key|pem))["']?[ \t]*=` }}
{{- if or (regexMatch $secret .Values.config) (regexMatch $secret .Values.sidecarConfig) }}
{{- fail "config: a credential would be in a ConfigMap; mount a Secret by extraVolumes, name it by <option>_file" }}
{{- end }}
"""
)
_HELPERS = """\
{{- define "kafka-discovery.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}
"""
_TEST = """\
{{- if .Values.service.enabled }}
# `helm test`: the API answers under its name, with the token, over TLS.
apiVersion: v1
kind: Pod
metadata:
  name: "{{ include "kafka-discovery.fullname" . }}-test"
  labels: {spark-role: driver}
  annotations: {helm.sh/hook: test, helm.sh/hook-delete-policy: "before-hook-creation,hook-succeeded"}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {fsGroup: 10001, runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
{{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ . | toJson }}
{{- end }}
  containers:
  - name: status
    image: {{ .Values.image | quote }}
    imagePullPolicy: {{ .Values.imagePullPolicy | quote }}
    command:
    - /bin/sh
    - -c
    - |
      ca=/run/secrets/tls/ca.crt
      [ -s "$ca" ] || ca=/run/secrets/tls/tls.crt  # a certificate that signs itself
      exec kafka-discovery status --url "$0" --token-file /run/secrets/token/token --ca-file "$ca"
    - "https://{{ include "kafka-discovery.fullname" . }}.{{ .Release.Namespace }}:9463"
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
    volumeMounts:
    - {name: token, mountPath: /run/secrets/token, readOnly: true}
    - {name: tls, mountPath: /run/secrets/tls, readOnly: true}
  volumes:
  - {name: token, secret: {secretName: {{ .Values.tokenSecret | quote }}}}
  - name: tls
    secret:
      secretName: {{ .Values.tlsSecret | quote }}
      optional: true  # ca.crt is not in every one
      items: [{key: ca.crt, path: ca.crt}, {key: tls.crt, path: tls.crt}]
{{- end }}
"""


def files(as_yaml: Callable[[Any], str], rule: dict[str, Any]) -> dict[str, str]:
    """Return the chart's files by path.

    Runs: anywhere (pure).
    """
    marked = _marked()
    objects = {name: as_yaml(make(marked)) for name, make in {**k8s.BASE, **k8s.SIDECAR}.items()}
    objects["podmonitor"] = as_yaml(k8s.pod_monitor(marked))
    # The rules have double braces of their own.
    named = as_yaml({**rule, "metadata": k8s.monitor_metadata(marked)})
    objects["prometheusrule"] = re.sub(r"(\{\{.*?\}\})", r"{{`\1`}}", named, flags=re.DOTALL)
    templates = {f"templates/{name}.yaml": _if_wanted(name, _placed(text)) for name, text in objects.items()}
    templates["templates/configmap.yaml"] = _NO_SECRETS + templates["templates/configmap.yaml"]
    return {
        **templates,
        "templates/_helpers.tpl": _HELPERS,
        "templates/tests/status.yaml": _TEST,
        "values.schema.json": json.dumps(SCHEMA, indent=2) + "\n",
    }


def _marked() -> k8s.Values:
    pod = {
        "serviceAccountName": "OPTION-account-",
        "priorityClassName": "OPTION-priority-",
        "imagePullSecrets": "OPTION-pull_secrets-",
        "nodeSelector": "OPTION-nodes-",
        "tolerations": "OPTION-tolerated-",
        "affinity": "OPTION-affinity-",
    }
    return k8s.Values(
        **{name: f"PLACE-{name}-" for name in _PLACES},
        name="PLACE-name-",
        storage_class="OPTION-storage_class-",
        environment="OPTION-environment-",
        pod=pod,
        more_labels={"MORE": "MORE-labels-"},
        more_arguments=("MORE-arguments-",),
        more_mounts=("MORE-mounts-",),
        more_volumes=("MORE-volumes-",),
    )


def _placed(text: str) -> str:
    text = re.sub(r"PLACE-name-(-[a-z-]+)?", lambda found: f'"{{{{ {_FULLNAME} }}}}{found[1] or ""}"', text)
    text = re.sub(r"PLACE-([a-z_]+)-", lambda found: f"{{{{ {_PLACES[found[1]]} }}}}", text)
    text = re.sub(r"^( *)(\w+): OPTION-([a-z_]+)-\n", _optional, text, flags=re.MULTILINE)
    text = re.sub(r"^( *)- MORE-([a-z]+)-\n", _more, text, flags=re.MULTILINE)
    labels = r"{{- with .Values.podLabels }}\n{{ toYaml . | indent 8 }}\n{{- end }}\n"
    text = re.sub(r"^ *MORE: MORE-labels-\n", labels, text, flags=re.MULTILINE)
    runbook = r"runbook: deploy/runbooks/(\w+)\.md"
    url = (
        r"{{ with .Values.monitoring.runbookUrl }}runbook_url: {{ . }}/\1.md"
        r"{{ else }}runbook: deploy/runbooks/\1.md{{ end }}"
    )
    return re.sub(runbook, url, text)


def _optional(found: re.Match[str]) -> str:
    indent, name, value = found[1], found[2], _OPTIONAL[found[3]]
    return f"{{{{- with .Values.{value} }}}}\n{indent}{name}: {{{{ . | toJson }}}}\n{{{{- end }}}}\n"


def _more(found: re.Match[str]) -> str:
    indent, value = found[1], _MORE[found[2]]
    return f"{{{{- range .Values.{value} }}}}\n{indent}- {{{{ . | toJson }}}}\n{{{{- end }}}}\n"


def _if_wanted(name: str, text: str) -> str:
    wanted = _WANTED.get(name, ".Values.service.enabled")
    return f"{{{{- if {wanted} }}}}\n{text}{{{{- end }}}}\n" if wanted else text
