"""Prometheus metrics of the sources of one driver, made from their reports at each scrape."""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from discovery.core.model import LoopState
from discovery.spark.progress.reports import SourceReport

_PREFIX = "kafka_discovery_source_"
_LABELS = ("source", "query")


class SourceCollector(Collector):
    """Register it: `prometheus_client.REGISTRY.register(SourceCollector(...))`. A scrape does no I/O.

    Labels are `source` (the sourceId, else the subscription) and `query` (the query's name or id; empty until its
    first batch).
    """

    def __init__(self, reports: Callable[[], Iterable[tuple[str, SourceReport]]]) -> None:
        """Take reports with the names of their queries from there."""
        self._reports = reports

    def collect(self) -> Iterable[Metric]:
        """Make all families from one look."""
        told = list(self._reports())
        yield _gauge("lag_records", "Records between the sink and the ends of all partitions.", told, _lag)
        yield _gauge("partitions", "Partitions the source follows.", told, lambda r: r.partitions)
        yield _gauge("parked_partitions", "Partitions left out because they cannot be read.", told, _parked)
        yield _gauge("lag_unknown_partitions", "Partitions whose lag is not known.", told, _unknown)
        yield _gauge("snapshot_generation", "Number of the view in use; it only grows.", told, lambda r: r.generation)
        yield _gauge("report_timestamp_seconds", "When the source last told.", told, lambda r: r.written_at)
        yield _gauge("batch_started_timestamp_seconds", "When the running batch began; 0: none runs.", told, _batch)
        yield _gauge("snapshot_timestamp_seconds", "When a broker last confirmed the view.", told, _confirmed)
        yield _state(told)
        yield _brokers(told)
        yield _commits(told)


_Told = list[tuple[str, SourceReport]]


def _lag(report: SourceReport) -> float:
    return report.lag_records


def _parked(report: SourceReport) -> float:
    return report.parked_partitions


def _unknown(report: SourceReport) -> float:
    return report.lag_unknown_partitions


def _confirmed(report: SourceReport) -> float:
    return report.confirmed_at or 0.0


def _batch(report: SourceReport) -> float:
    return report.batch_since or 0.0


def _gauge(name: str, meaning: str, told: _Told, value: Callable[[SourceReport], float]) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, meaning, labels=_LABELS)
    for query, report in told:
        family.add_metric((report.source, query), value(report))
    return family


def _state(told: _Told) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}state", "1 for the state of discovery.", labels=(*_LABELS, "state"))
    for query, report in told:
        for state in LoopState:
            family.add_metric((report.source, query, state.value), float(report.state == state.value))
    return family


def _brokers(told: _Told) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}brokers", "Addresses by condition.", labels=(*_LABELS, "condition"))
    for query, report in told:
        for condition, count in report.brokers.items():
            family.add_metric((report.source, query, condition), count)
    return family


def _commits(told: _Told) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}group_commits", "Commits to a group.", labels=(*_LABELS, "result"))
    for query, report in told:
        if report.group is not None:
            family.add_metric((report.source, query, "success"), report.commits_succeeded)
            family.add_metric((report.source, query, "failure"), report.commits_failed)
    return family
