"""The Grafana dashboards: fleet, one cluster, one query. Plain JSON: no generator has to keep up with Grafana."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.source.alerts import P

_C = '{kafka_cluster=~"$cluster",instance=~"$instance"}'
_Q = '{kafka_cluster=~"$cluster",instance=~"$instance",consumer=~"$consumer"}'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_INSTANCE = ("instance", f'label_values({P}snapshot_generation{{kafka_cluster=~"$cluster"}}, instance)')
_DURATIONS = f"sum by (le) (rate({P}cycle_duration_seconds_bucket{_C}[$__rate_interval]))"
_REQUESTS = f'sum by (route, code) (rate({P}api_requests_total{{instance=~"$instance"}}[$__rate_interval]))'
_WIDE = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel: a question as its title, and the expressions that answer it."""

    title: str
    queries: tuple[tuple[str, str], ...]
    """(PromQL, legend)."""
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard; `variables` are (name, PromQL of its values)."""

    uid: str
    title: str
    variables: tuple[tuple[str, str], ...]
    panels: Sequence[Panel]


DASHBOARDS = (
    Dashboard(
        uid="fleet",
        title="kafka-discovery: fleet",
        variables=(),
        panels=(
            Panel(title="Services that answer", kind="stat", width=6, height=4,
                  queries=((f"count({P}build_info)", ""),)),
            Panel(title="Clusters not fresh", kind="stat", width=6, height=4,
                  queries=((f'count(max by (kafka_cluster) ({P}state{{state="fresh"}}) == 0) or vector(0)', ""),)),
            Panel(title="Oldest view", kind="stat", unit="s", width=6, height=4,
                  queries=(("max(kafka_cluster:kafka_discovery_snapshot_age_seconds:max)", ""),)),
            Panel(title="Alerts that fire", kind="stat", width=6, height=4,
                  queries=(('count(ALERTS{alertname=~"Discovery.*",alertstate="firing"}) or vector(0)', ""),)),
            Panel(title="Age of the view, by cluster", unit="s",
                  queries=(("kafka_cluster:kafka_discovery_snapshot_age_seconds:max", "{{kafka_cluster}}"),)),
            Panel(title="Share of configured addresses that are healthy", unit="percentunit",
                  queries=(("kafka_cluster:kafka_discovery_brokers_healthy:ratio", "{{kafka_cluster}}"),)),
            Panel(title="Which loop is in which state", kind="table", width=_WIDE,
                  queries=((f"{P}state == 1", ""),)),
            Panel(title="Who still lists a dead or removed broker", kind="table", width=_WIDE,
                  queries=((f"{P}consumer_bad_bootstrap_servers > 0", ""),)),
        ),
    ),
    Dashboard(
        uid="cluster",
        title="kafka-discovery: one cluster",
        variables=(("cluster", f"label_values({P}snapshot_generation, kafka_cluster)"), _INSTANCE),
        panels=(
            Panel(title="State", queries=((f"{P}state{_C} == 1", "{{state}} at {{instance}}"),)),
            Panel(title="Addresses by condition", queries=((f"{P}brokers{_C}", "{{condition}}"),)),
            Panel(title="Which address is not up", kind="table", width=_WIDE,
                  queries=((f"{P}broker_up{_C} == 0", ""),)),
            Panel(title="Probes by result", unit="ops",
                  queries=((f"sum by (result) (rate({P}broker_attempts_total{_C}[$__rate_interval]))", "{{result}}"),)),
            Panel(title="Metadata rounds by outcome", unit="ops",
                  queries=((f"sum by (outcome) (rate({P}cycles_total{_C}[$__rate_interval]))", "{{outcome}}"),)),
            Panel(title="How long metadata rounds take", unit="s", queries=(
                (f"histogram_quantile(0.5, {_DURATIONS})", "p50"),
                (f"histogram_quantile(0.99, {_DURATIONS})", "p99"))),
            Panel(title="Time since the loop turned", unit="s",
                  queries=((f"time() - {P}last_cycle_timestamp_seconds{_C}", "{{instance}}"),)),
            Panel(title="Parked partitions", queries=((f"{P}topic_parked_partitions{_C} > 0", "{{topic}}"),)),
            Panel(title="Held back, contradicted", queries=(
                (f"increase({P}shrink_blocked_total{_C}[$__rate_interval])", "held back: {{reason}}"),
                (f"increase({P}metadata_disagreement_total{_C}[$__rate_interval])", "contradiction: {{kind}}"))),
            Panel(title="Trouble inside", queries=(
                (f"increase({P}unexpected_errors_total{_C}[$__rate_interval])", "unexpected errors"),
                (f"{P}stuck_calls{_C}", "stuck calls"),
                (f"increase({P}state_write_failures_total{_C}[$__rate_interval])", "state not written"))),
            Panel(title="Clients built", queries=((f"increase({P}client_rebuilds_total{_C}[$__rate_interval])",
                                                  "{{instance}}"),)),
        ),
    ),
    Dashboard(
        uid="query",
        title="kafka-discovery: one query",
        variables=(
            ("cluster", f"label_values({P}consumer_acked_generation, kafka_cluster)"),
            _INSTANCE,
            ("consumer", f'label_values({P}consumer_acked_generation{{kafka_cluster=~"$cluster"}}, consumer)'),
        ),
        panels=(
            Panel(title="Lag", queries=((f"{P}consumer_lag_records{_Q}", "{{consumer}}"),)),
            Panel(title="Discovered, and applied", queries=(
                (f"{P}snapshot_generation{_C}", "discovered"),
                (f"{P}consumer_acked_generation{_Q}", "applied by {{consumer}}"))),
            Panel(title="Partitions it leaves out", queries=((f"{P}consumer_parked_partitions{_Q}", "{{consumer}}"),)),
            Panel(title="Dead addresses in its own list",
                  queries=((f"{P}consumer_bad_bootstrap_servers{_Q}", "{{consumer}}"),)),
            Panel(title="Partitions of the topics", queries=((f"{P}topic_partitions{_C}", "{{topic}}"),)),
            Panel(title="Requests of followers", unit="reqps",
                  queries=((_REQUESTS, "{{route}} {{code}}"),)),
        ),
    ),
)  # fmt: skip


def render(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it from a file.

    Runs: anywhere (pure).
    """
    return {
        "uid": f"kafka-discovery-{dashboard.uid}",
        "title": dashboard.title,
        "tags": ["kafka-discovery"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_DATASOURCE, *(_variable(name, query) for name, query in dashboard.variables)]},
        "panels": list(_placed(dashboard.panels)),
    }


def _placed(panels: Iterable[Panel]) -> Iterable[dict[str, Any]]:
    """Lay panels out from left to right, a new row where one does not fit."""
    x = y = row = 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > _WIDE:
            x, y, row = 0, y + row, 0
        yield _panel(number, panel, x, y)
        x, row = x + panel.width, max(row, panel.height)


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    instant = panel.kind != "timeseries"
    shape = {"format": "table"} if panel.kind == "table" else {}
    targets = [
        {"refId": chr(65 + i), "expr": expr, "legendFormat": legend, "instant": instant, "range": not instant, **shape}
        for i, (expr, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }


_DATASOURCE = {
    "name": "datasource",
    "type": "datasource",
    "query": "prometheus",
    "current": {"text": "prometheus", "value": "prometheus"},
}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
