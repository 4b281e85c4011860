"""What the listeners share: the followed clusters, their hubs, the consumers, and how all of it changes on a reload."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from discovery.config.provenance import Effective
from discovery.config.settings import Settings
from discovery.core.clock import Clock
from discovery.core.errors import ConfigError, DiscoveryError
from discovery.core.model import LoopState
from discovery.service.cluster import Cluster, FeedMaker
from discovery.service.consumers import Registry
from discovery.service.documents import age_of
from discovery.service.health import ClusterHealth
from discovery.service.hub import Hub, Waiters
from discovery.service.limits import read_token
from discovery.service.respond import ApiError
from discovery.service.workers import SingleFlight, Workers
from discovery.store.files import FileLock
from discovery.store.locations import default_state_dir

_FIXED_FOR_LIFE = (
    "api.host",
    "api.port",
    "api.tls_certificate_file",
    "api.tls_key_file",
    "api.waiters_max",
    "api.connections_max",
    "api.header_max_bytes",
    "api.body_max_bytes",
    "api.request_timeout_seconds",
    "probes.host",
    "probes.port",
    "state_dir",
)
_log = structlog.get_logger("discovery.service")


@dataclass(slots=True)
class Reloads:
    """How the last reload went."""

    ok: bool = True
    wall: float = 0.0
    error: str = ""


class Service:
    """Everything behind the listeners. Event loop's thread, except where said otherwise."""

    def __init__(
        self,
        effective: Effective,
        *,
        clock: Clock,
        maker: FeedMaker,
        reload_from: Callable[[], Effective] | None = None,
        lock_patience_seconds: float = 5.0,
    ) -> None:
        """Wire the parts; follows nobody yet, touches no file."""
        self.settings = effective.settings
        self.clock = clock
        self.waiters = Waiters(self.settings.api.waiters_max)
        self.workers = Workers()
        self.refreshes = SingleFlight(self.workers)
        self.registry = Registry(self.settings.silence_seconds)
        self.reloads = Reloads(wall=clock.wall())
        self.requests: dict[tuple[str, str], int] = {}
        """(route, status) -> answers given."""
        self.listening = False
        self.started = False
        self.token: bytes | None = None
        self._effective = effective
        self._reload_from = reload_from
        self._maker = maker
        self._hubs: dict[str, Hub] = {}
        self._reloading = asyncio.Lock()
        state_dir = self.settings.state_dir or default_state_dir()
        self.state_dir: Path = state_dir / "service"
        self._lock = FileLock(self.state_dir / "writer.lock")
        self._lock_patience_seconds = lock_patience_seconds

    @property
    def hubs(self) -> dict[str, Hub]:
        """The followed clusters by name."""
        return self._hubs

    async def open(self) -> None:
        """Read the token and take the lock: what can be wrong before anything listens.

        Raises:
            ConfigError: the token cannot be read.
            StateError: another service writes to this state folder.
            OSError: the folder cannot be made.
        """
        self.token = read_token(self.settings.api.token_file) if self.settings.api.token_file else None
        deadline = self.clock.monotonic() + self._lock_patience_seconds
        while True:
            try:
                self._lock.acquire()
            except DiscoveryError as error:
                if self.clock.monotonic() >= deadline:
                    text = f"state_dir: {error}; stop that service or give this one its own --state-dir"
                    raise type(error)(text) from error
            else:
                return
            await asyncio.sleep(0.1)  # one that is being stopped may still be at it

    async def start(self) -> None:
        """Begin to follow every cluster; the listeners answer already.

        Raises:
            ConfigError: librdkafka refuses a cluster's client options.
        """
        for name, settings in self.settings.clusters.items():
            await self._follow(name, self.settings)
            _log.info("following", cluster=name, bootstrap=[str(a) for a in settings.bootstrap_servers])
        self.started = True

    async def stop(self, seconds: float) -> None:
        """Answer all waiters and stop the loops; what does not end in time is left to the end of the process."""
        self.release_waiters()
        stops = [asyncio.ensure_future(asyncio.to_thread(hub.cluster.stop)) for hub in self._hubs.values()]
        if stops:
            await asyncio.wait(stops, timeout=seconds)
        self._lock.release()

    def release_waiters(self) -> None:
        """Answer everybody who waits, and let nobody wait any more."""
        self.waiters.stopping = True
        for hub in self._hubs.values():
            hub.close()

    def hub(self, name: str) -> Hub:
        """Return a cluster by name; `default` is the only one.

        Raises:
            ApiError: 404 with the names there are; 503 while the loops are being started.
        """
        if name == "default" and name not in self._hubs and len(self._hubs) == 1:
            return next(iter(self._hubs.values()))
        if name in self._hubs:
            return self._hubs[name]
        if not self.started:
            raise ApiError(503, "the service is starting; try again in a moment")
        names = ", ".join(sorted(self._hubs))
        raise ApiError(404, f"cluster {name[:100]!r} is not followed here; there are: {names}")

    def health(self) -> list[ClusterHealth]:
        """Return what probes need to know, from memory."""
        return [_health(hub.cluster) for hub in self._hubs.values()]

    async def reload(self) -> None:
        """Read the configuration again and bring it in, or keep the old one and say why.

        Raises:
            ConfigError: the new one is wrong, or changes what only a restart can change.
        """
        async with self._reloading:
            try:
                if self._reload_from is None:
                    raise ConfigError("this service was not started from a configuration that can be read again")
                effective = await asyncio.to_thread(self._reload_from)
                _refuse_restarts(self.settings, effective.settings)
                token_file = effective.settings.api.token_file
                token = await asyncio.to_thread(read_token, token_file) if token_file else None
                await self._swap(effective.settings)
            except (DiscoveryError, OSError) as error:
                self.reloads = Reloads(ok=False, wall=self.clock.wall(), error=str(error))
                _log.error("reload_refused", error=str(error), consequence="the old configuration stays in force")
                raise
            self.token = token
            self.settings, self._effective = effective.settings, effective
            self.registry.silence_seconds = effective.settings.silence_seconds
            self.reloads = Reloads(wall=self.clock.wall())
            _log.info("reloaded", clusters=sorted(self._hubs))

    async def _swap(self, new: Settings) -> None:
        """Check every new cluster before the first old one is touched."""
        changed = {
            name
            for name in new.clusters
            if name not in self._hubs
            or new.clusters[name] != self.settings.clusters[name]
            or new.policy(name) != self.settings.policy(name)
        }
        for name in changed:
            make = partial(self._maker, on_picture=lambda _: None, is_idle=lambda: True)
            make(new.clusters[name], new.policy(name), state_dir=None, name=name).check()
        for name in set(self._hubs) - set(new.clusters):
            hub = self._hubs.pop(name)
            hub.close()
            await asyncio.to_thread(hub.cluster.stop)
        for name in sorted(changed):
            await self._follow(name, new)

    async def _follow(self, name: str, settings: Settings) -> None:
        wanted, policy = settings.clusters[name], settings.policy(name)
        hub = self._hubs.get(name)
        if hub is not None:
            await asyncio.to_thread(hub.cluster.change, wanted, policy, self.state_dir)
            return
        cluster = Cluster(name, wanted, policy, clock=self.clock, maker=self._maker, events_max=settings.events_max)
        hub = self._hubs[name] = Hub(cluster, self.waiters, asyncio.get_running_loop())
        await asyncio.to_thread(cluster.start, self.state_dir)


def _refuse_restarts(old: Settings, new: Settings) -> None:
    for name in _FIXED_FOR_LIFE:
        before, after = _at(old, name), _at(new, name)
        if before != after:
            raise ConfigError(f"{name}: {before} became {after}, which needs a restart; nothing was changed")


def _at(settings: Settings, name: str) -> object:
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _health(cluster: Cluster) -> ClusterHealth:
    shown = cluster.shown()
    view = shown.view if shown else None
    return ClusterHealth(
        name=cluster.name,
        idle_seconds=cluster.vitals().idle_seconds,
        interval_seconds=cluster.policy.interval_seconds,
        generation=view.generation if view else 0,
        state=view.state if view else LoopState.COLD,
        age_seconds=age_of(view),
    )
