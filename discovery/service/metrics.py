"""The metrics: made from memory at each scrape, one moment per cluster, never asking anybody.

The families are a table, so that the reference page cannot drift. Series exist only for what exists now: brokers and
topics that are gone take their series with them. `python -m discovery.service.metrics` renews the page.
"""

import platform
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from discovery import __version__
from discovery.config.certificate_metric import EXPIRY, expiry
from discovery.config.metric_families import CLUSTER_LABEL, Family, by_name, cumulated, empty, registry_of
from discovery.core.model import LoopState
from discovery.core.state import State
from discovery.endpoint.metrics import EndpointCollector
from discovery.feed.base import FeedView
from discovery.service.api.documents import CONDITIONS, bad_addresses, condition, lags_of
from discovery.service.cluster import Cluster
from discovery.service.counting import BUCKETS_SECONDS, DISAGREEMENTS, OUTCOMES, Counts
from discovery.service.service import Service

OTHER = "__other__"


FAMILIES = by_name(
    Family("cycles", "counter", ("outcome",), "Metadata rounds by outcome: success, or the kind of failure."),
    Family("cycle_duration_seconds", "histogram", (), "How long metadata rounds took."),
    Family("cycle_deadline_exceeded", "counter", (), "Metadata rounds that took longer than the request timeout."),
    Family("last_success_timestamp_seconds", "gauge", (), "When metadata was last answered."),
    Family("last_cycle_timestamp_seconds", "gauge", (), "When the loop last turned, whatever came of it."),
    Family(
        "loop_interval_seconds",
        "gauge",
        (),
        "Planned seconds between two rounds of questions to all brokers; cycles come more often.",
    ),
    Family("snapshot_timestamp_seconds", "gauge", (), "When a trusted answer last confirmed the view served."),
    Family("snapshot_generation", "gauge", (), "Number of the view served; it only grows."),
    Family("state", "gauge", ("state",), "1 for the state the loop is in, 0 for the others."),
    Family(
        "brokers",
        "gauge",
        ("condition",),
        "All addresses that are known: each is either healthy, quarantined, rejected or unasked.",
    ),
    Family("configured_brokers", "gauge", ("condition",), "The addresses of the bootstrap list, in the same way."),
    Family("advertised_brokers", "gauge", (), "Brokers that the view names."),
    Family("broker_attempts", "counter", ("broker", "result"), "Probes of an address by result."),
    Family("broker_quarantine_seconds", "gauge", ("broker",), "How long an address stays quarantined; only while so."),
    Family("broker_up", "gauge", ("broker",), "1 for an address that clients may be sent to, 0 for any other."),
    Family("topic_partitions", "gauge", ("topic",), "Partitions of a followed topic."),
    Family("topic_parked_partitions", "gauge", ("topic",), "Partitions of a topic that cannot be read now."),
    Family("partitions_added", "counter", ("topic",), "Partitions that topics already known have grown by."),
    Family("shrink_blocked", "counter", ("reason",), "Losses held back until confirmed: of brokers, of partitions."),
    Family("metadata_disagreement", "counter", ("kind",), "Answers that contradict: cluster_id, broker_set."),
    Family("stuck_calls", "gauge", (), "Abandoned calls whose threads have not ended."),
    Family("stuck_calls_abandoned", "counter", (), "Calls given up because they did not return."),
    Family("client_rebuilds", "counter", (), "Clients built, the first one included."),
    Family("unexpected_errors", "counter", (), "Exceptions nobody expected; each has a traceback in the log."),
    Family("state_write_failures", "counter", (), "Views that could not be written to the state folder."),
    Family(
        "state_write_failing", "gauge", (), "1 while the newest view could not be written; tried again, 0 once it is."
    ),
    Family(
        "consumer_acked_generation", "gauge", ("consumer",), "The newest generation a consumer has reported as applied."
    ),
    Family("consumer_lag_records", "gauge", ("consumer",), "Records between a consumer's positions and the ends."),
    Family("consumer_fallback", "gauge", ("consumer",), "1 while a consumer's embedded loop leads in our place."),
    Family("consumer_parked_partitions", "gauge", ("consumer",), "Partitions a consumer leaves out for now."),
    Family(
        "consumer_bad_bootstrap_servers",
        "gauge",
        ("consumer",),
        "Addresses in a consumer's own list that are not alive: who still lists a removed broker?",
    ),
)
PROCESS = by_name(
    Family("build", "info", ("version", "python"), "What runs here."),
    Family("api_requests", "counter", ("route", "code"), "Answers of the API; route `refused`: not let in."),
    Family("connections", "gauge", ("listener",), "Connections open now, TLS handshakes included: api, probes."),
    Family(
        "connections_closed",
        "counter",
        ("listener", "reason"),
        "Connections closed for want of room: idle ones evicted, new ones refused where all others were being served.",
    ),
    Family("api_waiters", "gauge", (), "Requests that wait for a change now."),
    Family("config_reload_success", "gauge", (), "1 if the last reload was taken, or none was tried."),
    Family("config_reload_timestamp_seconds", "gauge", (), "When the configuration was last read."),
    Family(
        "config_reloads", "counter", ("outcome",), "Reloads by outcome, taken or refused: by request, signal or file."
    ),
    EXPIRY,
)


def registry(service: Service) -> CollectorRegistry:
    """Return a registry of our own with this service's metrics alone."""
    return registry_of(ServiceCollector(service))


class ServiceCollector(Collector):
    """Makes all families from one look at each cluster. Event loop's thread; O(brokers + topics + partitions)."""

    def __init__(self, service: Service) -> None:
        """Collect from this service."""
        self._service = service

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: the service may follow nobody yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return every family with the series of this moment."""
        made = {name: empty(family, (CLUSTER_LABEL, *family.labels)) for name, family in FAMILIES.items()}
        for name, hub in self._service.hubs.items():
            _Scrape(self._service, name, hub.cluster, made).fill()
        yield from made.values()
        if self._service.endpoint is not None:
            yield from EndpointCollector(self._service.endpoint, self._service.endpoint_cluster).collect()
        yield from self._process()

    def _process(self) -> Iterator[Metric]:
        made = {name: empty(family, family.labels) for name, family in PROCESS.items()}
        made["build"].add_metric([], {"version": __version__, "python": platform.python_version()})
        for (route, code), count in self._service.requests.items():
            made["api_requests"].add_metric([route, code], count)
        for listener in (self._service.api_listener, self._service.probe_listener):
            made["connections"].add_metric([listener.name], listener.connections)
            made["connections_closed"].add_metric([listener.name, "evicted"], listener.evicted)
            made["connections_closed"].add_metric([listener.name, "refused"], listener.refused)
        made["api_waiters"].add_metric([], self._service.waiters.now)
        made["config_reload_success"].add_metric([], self._service.reloads.ok)
        made["config_reload_timestamp_seconds"].add_metric([], self._service.reloads.wall)
        made["config_reloads"].add_metric(["taken"], self._service.reloads.taken)
        made["config_reloads"].add_metric(["refused"], self._service.reloads.refused)
        made[EXPIRY.name] = expiry(self._service.certificates)
        yield from made.values()


class _Scrape:
    """One cluster, one moment."""

    def __init__(self, service: Service, name: str, cluster: Cluster, made: dict[str, Any]) -> None:
        shown = cluster.shown()
        self._service = service
        self._name = name
        self._cluster = cluster
        self._made = made
        self._view = shown.view if shown else None
        self._state = shown.decision.state if shown and shown.decision else None
        self._counts: Counts = cluster.counts

    def fill(self) -> None:
        self._loop()
        self._counted()
        self._consumers()
        if self._view is not None:
            self._brokers(self._view, self._state)
            self._topics(self._view)

    def _add(self, family: str, value: float | None, *labels: str) -> None:
        if value is not None:
            self._made[family].add_metric([self._name, *labels], value)

    def _loop(self) -> None:
        vitals, wall, view = self._cluster.vitals(), self._service.clock.wall(), self._view
        if vitals.idle_seconds is not None:
            self._add("last_cycle_timestamp_seconds", wall - vitals.idle_seconds)
        self._add("loop_interval_seconds", self._cluster.policy.interval_seconds)
        self._add("last_success_timestamp_seconds", self._counts.last_success_wall)
        if view is not None and view.age_seconds != float("inf"):
            self._add("snapshot_timestamp_seconds", wall - view.age_seconds)
        elif self._state is not None and self._state.snapshot is not None:
            self._add("snapshot_timestamp_seconds", self._state.snapshot.confirmed_wall)
        self._add("snapshot_generation", view.generation if view else 0)
        for state in LoopState:
            self._add("state", (view.state if view else LoopState.COLD) is state, state.value)
        self._add("stuck_calls", vitals.stuck_calls)
        self._add("stuck_calls_abandoned", vitals.stuck_calls_total)
        self._add("client_rebuilds", vitals.clients_built)
        self._add("unexpected_errors", vitals.bugs)
        self._add("state_write_failures", vitals.state_write_failures)
        self._add("state_write_failing", vitals.state_write_failing)

    def _counted(self) -> None:
        counts = self._counts
        for outcome in OUTCOMES:
            self._add("cycles", counts.cycles[outcome], outcome)
        self._add("cycle_deadline_exceeded", counts.deadline_exceeded)
        for reason in ("brokers", "partitions"):
            self._add("shrink_blocked", counts.shrink_blocked[reason], reason)
        for kind in DISAGREEMENTS:
            self._add("metadata_disagreement", counts.disagreements[kind], kind)
        for (broker, result), count in sorted(counts.attempts.copy().items()):
            self._add("broker_attempts", count, broker, result)
        buckets = cumulated(BUCKETS_SECONDS, counts.duration_buckets)
        self._made["cycle_duration_seconds"].add_metric([self._name], buckets, sum_value=counts.duration_seconds_sum)

    def _brokers(self, view: FeedView, state: State | None) -> None:
        conditions = {address: condition(report.verdict) for address, report in view.addresses.items()}
        listed = [conditions[address] for address, report in view.addresses.items() if report.configured]
        every = list(conditions.values())
        for name in CONDITIONS:
            self._add("brokers", every.count(name), name)
            self._add("configured_brokers", listed.count(name), name)
        self._add("advertised_brokers", len(state.snapshot.brokers) if state and state.snapshot else 0)
        now = self._service.clock.monotonic()
        for address, one in conditions.items():
            self._add("broker_up", one == "healthy", str(address))
            until = state.addresses[address].quarantined_until if state and address in state.addresses else None
            if until is not None and until > now:
                self._add("broker_quarantine_seconds", until - now, str(address))

    def _topics(self, view: FeedView) -> None:
        sizes: dict[str, int] = {}
        parked: dict[str, int] = {}
        for tp, one in view.partitions.items():
            if not one.gone:
                sizes[tp.topic] = sizes.get(tp.topic, 0) + 1
                parked[tp.topic] = parked.get(tp.topic, 0) + (one.parked_reason is not None)
        for family, values in (
            ("topic_partitions", sizes),
            ("topic_parked_partitions", parked),
            ("partitions_added", {topic: self._counts.partitions_added[topic] for topic in sizes}),
        ):
            for topic, value in self._capped(values).items():
                self._add(family, value, topic)

    def _capped(self, values: dict[str, int]) -> dict[str, int]:
        """Keep the first topics by name; the rest becomes one series, so that their number is bounded."""
        limit = self._service.settings.metrics.topics_max
        names = sorted(values)
        kept = {name: values[name] for name in names[:limit]}
        return {**kept, OTHER: sum(values[name] for name in names[limit:])} if len(names) > limit else kept

    def _consumers(self) -> None:
        now = self._service.clock.monotonic()
        living = self._service.registry.all(now, self._name)
        for consumer in living[: self._service.settings.metrics.consumers_max]:
            lags = lags_of(consumer, self._view)
            self._add("consumer_acked_generation", consumer.acked_generation, consumer.id)
            self._add("consumer_lag_records", sum(lags.values()) if lags else None, consumer.id)
            self._add("consumer_fallback", bool(consumer.fallback), consumer.id)
            self._add("consumer_parked_partitions", len(consumer.parked), consumer.id)
            self._add("consumer_bad_bootstrap_servers", len(bad_addresses(consumer, self._view)), consumer.id)
