"""The alerts as files: plain rules for Prometheus, the same as a PrometheusRule for its operator."""

from typing import Any

from deploy.source.alerts import ALERTS, RECORDINGS, SOURCE_ALERTS, Alert, Scale, seconds_in

RUNBOOKS = "deploy/runbooks"


def as_they_are(seconds: float) -> float:
    """Scale nothing: the rules of production."""
    return seconds


def sixtieth(seconds: float) -> float:
    """Scale minutes to seconds, for rules that are tried out for real; 5 s at least, else a window holds no scrape."""
    return max(5.0, seconds / 60) if seconds else 0.0


def groups(scale: Scale = as_they_are, *, interval_seconds: int = 15, runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """Return the content of a rules file.

    Args:
        scale: Applied to every duration.
        interval_seconds: How often Prometheus evaluates.
        runbooks: Where the runbooks are: a folder of this tree, or your address of it.

    Runs: anywhere (pure).
    """
    alerts = [_alert(alert, scale, runbooks) for alert in ALERTS]
    sources = [_alert(alert, scale, runbooks) for alert in SOURCE_ALERTS]
    records = [{"record": one.name, "expr": one.expression} for one in RECORDINGS]
    interval = f"{interval_seconds}s"
    return {
        "groups": [
            {"name": "kafka-discovery-recording", "interval": interval, "rules": records},
            {"name": "kafka-discovery", "interval": interval, "rules": alerts},
            {"name": "kafka-discovery-sources", "interval": interval, "rules": sources},
        ]
    }


def prometheus_rule(spec: dict[str, Any]) -> dict[str, Any]:
    """Wrap the rules for the Prometheus operator.

    Runs: anywhere (pure).
    """
    labels = {"app.kubernetes.io/name": "kafka-discovery", "role": "alert-rules"}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "kafka-discovery", "labels": labels},
        "spec": spec,
    }


def _alert(alert: Alert, scale: Scale, runbooks: str) -> dict[str, Any]:
    key = "runbook_url" if "://" in runbooks else "runbook"
    waits = {"for": f"{scale(alert.for_seconds):g}s"} if alert.for_seconds else {}
    return {
        "alert": alert.name,
        "expr": seconds_in(alert.condition, scale),
        **waits,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            key: f"{runbooks.rstrip('/')}/{alert.page}",
        },
    }
