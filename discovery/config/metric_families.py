"""Metric families as values, so that the reference page cannot drift from what a scrape returns."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

PREFIX = "kafka_discovery_"
CLUSTER_LABEL = "kafka_cluster"
"""Not `cluster`: of a label that a series has, Prometheus keeps its own `external_labels` off when it federates."""
_KINDS = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "info": InfoMetricFamily}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric's name without prefix, its kind, its labels after the cluster's, its meaning."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def by_name(*families: Family) -> dict[str, Family]:
    """Return families by their names.

    Runs: anywhere (pure).
    """
    return {family.name: family for family in families}


def registry_of(*collectors: Collector) -> CollectorRegistry:
    """Return a registry of these alone, and of this process's own metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for one in collectors:
        registry.register(one)
    return registry


def empty(family: Family, labels: tuple[str, ...]) -> Any:
    """Return the family without a series, as the client library takes it.

    Runs: anywhere (pure).
    """
    name = PREFIX + family.name
    if family.kind == "histogram":
        return HistogramMetricFamily(name, family.meaning, labels=labels)
    return _KINDS[family.kind](name, family.meaning, labels=() if family.kind == "info" else labels)


def row(family: Family, labels: tuple[str, ...]) -> str:
    """Return its line of the reference page.

    Runs: anywhere (pure).
    """
    suffix = {"counter": "_total", "info": "_info"}.get(family.kind, "")
    shown = ", ".join(f"`{label}`" for label in labels) or "-"
    return f"| `{PREFIX}{family.name}{suffix}` | {family.kind} | {shown} | {family.meaning} |"


def cumulated(bounds: Iterable[float], counts: dict[float, int]) -> list[tuple[str, float]]:
    """Return a histogram's buckets as Prometheus wants them: each with all that is below it.

    Runs: anywhere (pure).
    """
    buckets, total = [], 0
    for bound in (*bounds, float("inf")):
        total += counts.get(bound, 0)
        buckets.append(("+Inf" if bound == float("inf") else f"{bound:g}", float(total)))
    return buckets
