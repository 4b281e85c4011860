"""Prometheus metrics of the sources of one driver, made from their reports at each scrape."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from discovery.config.certificate_metric import expiry
from discovery.core.model import LoopState
from discovery.spark.progress.reports import SourceReport

_PREFIX = "kafka_discovery_source_"
_LABELS = ("source", "query")


class SourceCollector(Collector):
    """Register it: `prometheus_client.REGISTRY.register(SourceCollector(...))`. A scrape does no I/O.

    Labels are `source` (the sourceId, else the subscription) and `query` (the query's name or id; empty until its
    first batch).
    """

    def __init__(
        self, reports: Callable[[], Iterable[tuple[str, SourceReport]]], late: Callable[[], Mapping[str, int]]
    ) -> None:
        """Take reports with the names of their queries, and how many rows came too late, from there."""
        self._reports = reports
        self._late = late

    def collect(self) -> Iterable[Metric]:
        """Make all families from one look."""
        reports = list(self._reports())
        yield _gauge("lag_records", "Records between the sink and the ends of all partitions.", reports, _lag)
        yield _gauge("partitions", "Partitions the source follows.", reports, lambda r: r.partitions)
        yield _gauge("parked_partitions", "Partitions left out because they cannot be read.", reports, _parked)
        yield _gauge("lag_unknown_partitions", "Partitions whose lag is not known.", reports, _unknown)
        yield _gauge(
            "snapshot_generation", "Number of the view in use; it only grows.", reports, lambda r: r.generation
        )
        yield _gauge("report_timestamp_seconds", "When the source last reported.", reports, lambda r: r.written_at)
        yield _gauge("batch_started_timestamp_seconds", "When the running batch began; 0: none runs.", reports, _batch)
        yield _gauge("plain_engine", "1: its workers read with the plain engine.", reports, _plain)
        yield _gauge("snapshot_timestamp_seconds", "When a broker last confirmed the view.", reports, _confirmed)
        yield _gauge("waiting_partitions", "Partitions that tasks of the running batch wait for.", reports, _waiting)
        yield _gauge("fallback", "1 while an embedded loop stands in for the service.", reports, _fallback)
        yield _gauge("engine_fallback", "1 where a worker reads with the plain engine, unasked.", reports, _engine)
        yield _gauge("ledger_failing", "1 while the ledger of cuts cannot be written.", reports, _ledger)
        yield _counter("cuts", "Ranges that ended early, without their leaders.", reports, lambda r: r.cuts)
        yield _counter("rewinds", "Partitions that were set back to where they were cut.", reports, lambda r: r.rewinds)
        yield _counter("late_records", "Records that came after their partition had been parked.", reports, _late)
        yield _behind(reports)
        yield _state(reports)
        yield _brokers(reports)
        yield _commits(reports)
        yield expiry(one for _, report in reports for one in report.certificates)
        meaning = "Rows behind the watermark, which a query left out; Spark counts them after a partial aggregation."
        family = CounterMetricFamily("kafka_discovery_query_late_rows_dropped", meaning, labels=("query",))
        for query, rows in self._late().items():
            family.add_metric((query,), rows)
        yield family


_Reports = list[tuple[str, SourceReport]]


def _lag(report: SourceReport) -> float:
    return report.lag_records


def _parked(report: SourceReport) -> float:
    return report.parked_partitions


def _unknown(report: SourceReport) -> float:
    return report.lag_unknown_partitions


def _confirmed(report: SourceReport) -> float:
    return report.confirmed_at or 0.0


def _plain(report: SourceReport) -> float:
    return float(report.plain_engine)


def _batch(report: SourceReport) -> float:
    return report.batch_since or 0.0


def _waiting(report: SourceReport) -> float:
    return report.waiting_partitions


def _fallback(report: SourceReport) -> float:
    return float(bool(report.fallback))


def _engine(report: SourceReport) -> float:
    return float(bool(report.engine_fallback))


def _ledger(report: SourceReport) -> float:
    return float(bool(report.ledger_trouble))


def _late(report: SourceReport) -> float:
    return report.late_records


def _counter(name: str, meaning: str, reports: _Reports, value: Callable[[SourceReport], float]) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, meaning, labels=_LABELS)
    for query, report in reports:
        family.add_metric((report.source, query), value(report))
    return family


def _behind(reports: _Reports) -> Metric:
    family = GaugeMetricFamily(
        f"{_PREFIX}offsets_behind_latest",
        "Lag of one partition, as Spark's own source sums it.",
        labels=(*_LABELS, "stat"),
    )
    for query, report in reports:
        for name, text in report.metrics.items():
            family.add_metric((report.source, query, name.removesuffix("OffsetsBehindLatest")), float(text))
    return family


def _gauge(name: str, meaning: str, reports: _Reports, value: Callable[[SourceReport], float]) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, meaning, labels=_LABELS)
    for query, report in reports:
        family.add_metric((report.source, query), value(report))
    return family


def _state(reports: _Reports) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}state", "1 for the state of discovery.", labels=(*_LABELS, "state"))
    for query, report in reports:
        for state in LoopState:
            family.add_metric((report.source, query, state.value), float(report.state == state.value))
    return family


def _brokers(reports: _Reports) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}brokers", "Addresses by condition.", labels=(*_LABELS, "condition"))
    for query, report in reports:
        for condition, count in report.brokers.items():
            family.add_metric((report.source, query, condition), count)
    return family


def _commits(reports: _Reports) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}group_commits", "Commits to a group.", labels=(*_LABELS, "result"))
    for query, report in reports:
        if report.group is not None:
            family.add_metric((report.source, query, "success"), report.commits_succeeded)
            family.add_metric((report.source, query, "failure"), report.commits_failed)
    return family
