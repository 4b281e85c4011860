"""Until when certificates hold, as the one metric that service, endpoint and drivers share."""

from collections.abc import Callable, Iterable, Iterator
from typing import cast

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from discovery.config.certificates import Certificate
from discovery.config.metric_families import Family, empty

EXPIRY = Family(
    "certificate_expiry_timestamp_seconds",
    "gauge",
    ("use", "file"),
    "When certificates expire: api, api_clients, kafka_identity, kafka_trust, service_identity, service_trust; of"
    " authorities the last one.",
)


def expiry(certificates: Iterable[Certificate]) -> Metric:
    """Return the metric of these certificates; those that several readers share count once.

    Runs: anywhere (pure).
    """
    made = empty(EXPIRY, EXPIRY.labels)
    for labels, expires_wall in {(one.use, one.file): one.expires_wall for one in certificates}.items():
        made.add_metric(labels, expires_wall)
    return cast("Metric", made)


class CertificateCollector(Collector):
    """Makes the metric at each scrape. Any thread."""

    def __init__(self, look: Callable[[], Iterable[Certificate]]) -> None:
        """Collect what this returns."""
        self._look = look

    def collect(self) -> Iterator[Metric]:
        """Return the one family."""
        yield expiry(self._look())
