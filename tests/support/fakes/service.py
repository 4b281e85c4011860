"""The service over a cluster in memory: everything is real but Kafka."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client import CollectorRegistry

from discovery.config.clock import SystemClock
from discovery.config.provenance import Effective
from discovery.config.settings import Settings
from discovery.service.app import api_app, probe_app
from discovery.service.cluster import FeedMaker
from discovery.service.metrics import registry
from discovery.service.service import Service
from tests.support.fakes.cluster import FakeNetwork
from tests.support.fakes.gateway import FakeGatewayFactory, FakeVetter

FAST = {
    "interval_seconds": 0.05,
    "topics_interval_seconds": 0.02,
    "offsets_interval_seconds": 0.02,
    "topic_ids_interval_seconds": 0.05,
    "settle_seconds": 0.05,
    "quarantine_base_seconds": 0.05,
    "quarantine_cap_seconds": 0.2,
}
"""Rhythms of a loop whose brokers answer in microseconds."""


def maker_over(network: FakeNetwork, kind: type[FeedMaker] = FeedMaker) -> FeedMaker:
    """Look the addresses of the settings up in this network."""
    return kind(factory=FakeGatewayFactory(network), vetter=FakeVetter(network))


def settings_of(clusters: Mapping[str, str], state_dir: Path, **more: object) -> Settings:
    """Make settings of clusters by name and bootstrap list, with fast loops."""
    return Settings.model_validate(
        {
            "state_dir": state_dir,
            "loop": FAST,
            "clusters": {name: {"bootstrap_servers": servers} for name, servers in clusters.items()},
            **more,
        }
    )


@dataclass(frozen=True, slots=True)
class Running:
    """A started service and a client of each of its listeners, without sockets."""

    service: Service
    api: httpx.AsyncClient
    probes: httpx.AsyncClient
    registry: CollectorRegistry


@contextlib.asynccontextmanager
async def running(
    network: FakeNetwork,
    settings: Settings,
    *,
    reload_from: Callable[[], Effective] | None = None,
    maker: FeedMaker | None = None,
) -> AsyncIterator[Running]:
    """Start a service, and stop it at the end."""
    service = Service(
        Effective(settings=settings, origins={}),
        clock=SystemClock(),
        maker=maker or maker_over(network),
        reload_from=reload_from,
        lock_patience_seconds=0,
    )
    await service.open()
    own = registry(service)
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(api_app(service)), base_url="http://localhost") as api,
        httpx.AsyncClient(transport=httpx.ASGITransport(probe_app(service, own)), base_url="http://probes") as probes,
    ):
        try:
            service.listening = True
            await service.start()
            yield Running(service, api, probes, own)
        finally:
            await service.stop(5)
