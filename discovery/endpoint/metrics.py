"""The endpoint's metrics: made from memory at each scrape."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from discovery.config.metric_families import CLUSTER_LABEL, Family, by_name, cumulated, empty
from discovery.endpoint.counting import CONNECT_BUCKETS_SECONDS, REASONS
from discovery.endpoint.server import Endpoint

FAMILIES = by_name(
    Family(
        "endpoint_ready_upstreams", "gauge", (), "Brokers that clients of the endpoint may be led to at this moment."
    ),
    Family("endpoint_open_connections", "gauge", ("upstream",), "Connections of clients that are open, by broker."),
    Family("endpoint_connections", "counter", ("upstream",), "Clients that were led to a broker."),
    Family("endpoint_connect_failures", "counter", ("upstream",), "Connects of a client to a broker that failed."),
    Family(
        "endpoint_upstream_losses",
        "counter",
        ("upstream",),
        "Times a broker in use or in reserve stopped being available.",
    ),
    Family("endpoint_bytes", "counter", ("upstream", "direction"), "Bytes moved: to_broker, to_client."),
    Family(
        "endpoint_turned_away", "counter", ("reason",), "Clients closed without a broker: limit, no_upstream, ending."
    ),
    Family("endpoint_connect_seconds", "histogram", (), "From accepting a client until its broker was connected."),
    Family("endpoint_name_mismatches", "gauge", (), "Brokers whose certificate does not name the endpoint's host."),
)


class EndpointCollector(Collector):
    """Makes all families from one look. Any thread; O(upstreams)."""

    def __init__(self, endpoint: Endpoint, cluster: str) -> None:
        """Collect from this endpoint."""
        self._endpoint = endpoint
        self._cluster = cluster

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return every family with the series of this moment."""
        made = {name: empty(family, (CLUSTER_LABEL, *family.labels)) for name, family in FAMILIES.items()}
        shown, counts = self._endpoint.shown(), self._endpoint.counts
        made["endpoint_ready_upstreams"].add_metric([self._cluster], len(shown.ready))
        made["endpoint_name_mismatches"].add_metric([self._cluster], len(shown.findings))
        for name, series in (
            ("endpoint_open_connections", counts.open_now),
            ("endpoint_connections", counts.opened),
            ("endpoint_connect_failures", counts.connect_failures),
            ("endpoint_upstream_losses", counts.lost),
        ):
            for upstream, value in sorted(series.copy().items()):
                made[name].add_metric([self._cluster, upstream], value)
        for (upstream, direction), value in sorted(counts.moved_bytes.copy().items()):
            made["endpoint_bytes"].add_metric([self._cluster, upstream, direction], value)
        for reason in REASONS:
            made["endpoint_turned_away"].add_metric([self._cluster, reason], counts.turned_away[reason])
        buckets = cumulated(CONNECT_BUCKETS_SECONDS, counts.connect_buckets.copy())
        made["endpoint_connect_seconds"].add_metric([self._cluster], buckets, sum_value=counts.connect_seconds_sum)
        yield from made.values()
