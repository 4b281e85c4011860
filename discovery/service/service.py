"""What the listeners share: the followed clusters, their hubs, the consumers, and how all of it changes on a reload."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import tenacity

from discovery.config.certificates import Certificate
from discovery.config.descriptors import allow
from discovery.config.logs import bound, event_log, set_level
from discovery.config.opened import Opened, open_files
from discovery.config.provenance import Effective
from discovery.config.rotation import certificates, fingerprints
from discovery.config.settings import Settings
from discovery.config.threads import in_thread
from discovery.core.clock import Clock
from discovery.core.errors import ConfigError, DiscoveryError, StateError
from discovery.core.model import LoopState
from discovery.endpoint.make import KafkaProver, limits_of
from discovery.endpoint.server import Endpoint
from discovery.feed.base import FeedView
from discovery.service.api.documents import age_of
from discovery.service.api.responses import ApiError
from discovery.service.cluster import Cluster, FeedMaker, check_clients
from discovery.service.consumers import Registry
from discovery.service.health import ClusterHealth
from discovery.service.hub import Hub, Waiters
from discovery.service.listener import Listener
from discovery.service.workers import SingleFlight, Workers
from discovery.store.files import FileLock
from discovery.store.locations import default_state_dir

_FIXED_FOR_LIFE = (
    "api.host",
    "api.port",
    "api.tls_certificate_file",
    "api.tls_key_file",
    "api.tls_client_ca_file",
    "api.waiters_max",
    "api.connections_max",
    "api.header_max_bytes",
    "api.body_max_bytes",
    "api.request_timeout_seconds",
    "probes.host",
    "probes.port",
    "endpoint.enabled",
    "endpoint.host",
    "endpoint.port",
    "endpoint.cluster",
    "endpoint.connections_max",
    "endpoint.idle_seconds",
    "state_dir",
    "log.format",
)
_PROBE_CONNECTIONS = 256
_OTHER_FILES = 512
"""Kept free for brokers, state files and name lookups."""
_LEAST_CONNECTIONS = 64
_STARTING = "the service is starting; try again in a moment"
_log = event_log("discovery.service")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Fresh:
    """A configuration that was read and checked, and is not in force yet."""

    settings: Settings
    opened: Opened
    certificates: tuple[Certificate, ...]
    fingerprints: dict[str, str]
    changed: list[str]
    """Clusters whose loops must begin, or begin again."""


@dataclass(slots=True)
class Reloads:
    """How the last reload went, and how many went which way, whatever asked for them."""

    ok: bool = True
    wall: float = 0.0
    error: str = ""
    taken: int = 0
    refused: int = 0


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
        api = self.settings.api
        self.api_listener = Listener("api", api.connections_max, api.request_timeout_seconds)
        self.probe_listener = Listener("probes", _PROBE_CONNECTIONS, api.request_timeout_seconds)
        self.reloads = Reloads(wall=clock.wall())
        self.requests: dict[tuple[str, str], int] = {}
        """(route, status) -> answers given."""
        self.listening = False
        self.opened = Opened()
        """What the files hold, once opened: tokens, the listener's certificate."""
        self.certificates: tuple[Certificate, ...] = ()
        """In use now."""
        self._fingerprints: dict[str, str] = {}
        """Of the files whose contents are in force."""
        self._reload_from = reload_from
        self._maker = maker
        self._hubs: dict[str, Hub] = {}
        self.endpoint: Endpoint | None = None
        """The bootstrap endpoint, once started, if one is wanted."""
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
        """Open all files and take the lock: what can be wrong before anything listens.

        Raises:
            ConfigError: a file cannot be read, or librdkafka refuses a cluster's client options.
            StateError: another service writes to this state folder.
            OSError: the folder cannot be made.
        """
        self._allow_files()
        self._fingerprints = await in_thread(partial(fingerprints, self.settings))
        self.opened = await in_thread(partial(open_files, self.settings.api))
        await in_thread(partial(check_clients, self.settings, self.settings.clusters, self._maker))
        self.certificates = await in_thread(partial(certificates, self.settings))
        try:
            async for attempt in tenacity.AsyncRetrying(  # one that is being stopped may still be at it
                retry=tenacity.retry_if_exception_type(StateError),
                wait=tenacity.wait_fixed(0.1),
                stop=tenacity.stop_after_delay(self._lock_patience_seconds),
                reraise=True,
            ):
                with attempt:
                    self._lock.acquire()
        except StateError as error:
            raise StateError(f"state_dir: {error}; stop that service or give this one its own --state-dir") from error

    def _allow_files(self) -> None:
        """Raise this process's limit of open files to what all listeners may use, or use less than was configured."""
        endpoint = self.settings.endpoint
        others = _PROBE_CONNECTIONS + _OTHER_FILES + (2 * endpoint.connections_max if endpoint.enabled else 0)
        wanted = self.settings.api.connections_max + others
        if (allowed := allow(wanted)) < wanted:
            self.api_listener.limit = max(_LEAST_CONNECTIONS, allowed - others)
            _log.warning(
                "few_files",
                limit=allowed,
                wanted=wanted,
                consequence=f"the API takes {self.api_listener.limit} connections at the same time",
                remedy="raise the limit of open files (ulimit -n), or lower api.connections_max",
            )

    async def start(self) -> None:
        """Begin to follow every cluster, all at once: one that takes its time holds up no other.

        Raises:
            ConfigError: librdkafka refuses a cluster's client options.
        """
        self._hubs = {name: self._new_hub(name, self.settings) for name in self.settings.clusters}
        for hub in self._hubs.values():
            listed = [str(address) for address in hub.cluster.settings.bootstrap_servers]
            _log.info("following", cluster=hub.cluster.name, bootstrap=listed)
        await asyncio.gather(*(in_thread(partial(h.cluster.start, self.state_dir)) for h in self._hubs.values()))

    async def stop(self, seconds: float) -> None:
        """Answer all waiters and stop the loops; what does not end in time is left to the end of the process."""
        self.release_waiters()
        closing = asyncio.ensure_future(in_thread(self.endpoint.stop)) if self.endpoint is not None else None
        with contextlib.suppress(TimeoutError):  # a reload on its way would begin loops behind our back
            await asyncio.wait_for(self._reloading.acquire(), seconds / 2)
        stops = [asyncio.ensure_future(in_thread(hub.cluster.stop)) for hub in self._hubs.values()]
        stops += [closing] if closing is not None else []
        if stops:
            await asyncio.wait(stops, timeout=seconds / 2)
        self._lock.release()

    def release_waiters(self) -> None:
        """Answer everybody who waits, and let nobody wait any more."""
        self.waiters.stopping = True
        for hub in self._hubs.values():
            hub.close()

    def hub(self, name: str) -> Hub:
        """Return a cluster whose loop was started by name; `default` is the only one.

        Raises:
            ApiError: 404 with the names there are; 503 while its loop is being started.
        """
        hub = self.named(name)
        if hub.cluster.feed is None:
            raise ApiError(503, _STARTING)
        return hub

    def named(self, name: str) -> Hub:
        """Return a cluster as `hub` does, also while its loop is being started, once what was kept of it is read.

        Raises:
            ApiError: 404 with the names there are; 503 while it is being read.
        """
        hubs = self.begun()
        if name == "default" and len(hubs) == 1:
            name = next(iter(hubs))
        hub = hubs.get(name)
        if hub is None:
            names = ", ".join(sorted(hubs))
            raise ApiError(404, f"cluster {name[:100]!r} is not followed here; there are: {names}")
        if not hub.cluster.is_read:
            raise ApiError(503, _STARTING)
        return hub

    def begun(self) -> dict[str, Hub]:
        """Return the followed clusters by name, one at least.

        Raises:
            ApiError: 503 before the first one is begun.
        """
        if not self._hubs:
            raise ApiError(503, _STARTING)
        return self._hubs

    @property
    def endpoint_cluster(self) -> str:
        """Name of the cluster that the endpoint leads to."""
        return self.settings.endpoint_cluster

    def open_endpoint(self) -> str:
        """Listen for Kafka clients, if that is wanted; returns the address, empty if not. Call before `start`.

        Raises:
            ConfigError: the address cannot be listened on, or is not a loopback one.
        """
        wanted = self.settings.endpoint
        if not wanted.enabled:
            return ""
        self.endpoint = Endpoint(self._endpoint_view, self._prover(self.settings), limits_of(wanted))
        with bound(cluster=self.endpoint_cluster):
            return self.endpoint.start()

    def _prover(self, settings: Settings) -> KafkaProver:
        cluster = settings.endpoint_cluster
        return KafkaProver(settings.clusters[cluster].client_options, settings.policy(cluster))

    def _endpoint_view(self) -> FeedView | None:
        """Runs: the endpoint's thread, ten times a second; from memory."""
        hub = self._hubs.get(self.endpoint_cluster)
        shown = hub.cluster.shown() if hub is not None else None
        return shown.view if shown is not None else None

    def health(self) -> list[ClusterHealth]:
        """Return what probes need to know, from memory."""
        return [_health(hub.cluster) for hub in self._hubs.values()]

    def look(self, settings: Settings | None = None) -> object:
        """Return what equals an earlier answer while a reload would bring nothing new: settings and files' contents.

        Args:
            settings: Those that were read already; None: read them again.

        Runs: a worker thread; reads the files.
        """
        if self._reload_from is None:
            return None
        try:
            new = settings or self._reload_from().settings
            return new, fingerprints(new)
        except (DiscoveryError, OSError) as error:
            return str(error)

    async def reload(self, asked_by: str) -> None:
        """Read the configuration again and bring it in, or keep the old one and say why.

        Args:
            asked_by: what asked for it, for the log: a signal, a file, a caller's address.

        Raises:
            ConfigError: the new one is wrong, or changes what only a restart can change.
        """
        async with self._reloading:
            try:
                await self._swap(await in_thread(self._read_again))
            except (DiscoveryError, OSError) as error:
                refused, wall = self.reloads.refused + 1, self.clock.wall()
                self.reloads = replace(self.reloads, ok=False, wall=wall, error=str(error), refused=refused)
                _log.error(
                    "reload_refused", error=str(error), asked_by=asked_by,
                    consequence="the old configuration remains active",
                )  # fmt: skip
                raise
            taken, wall = self.reloads.taken + 1, self.clock.wall()
            self.reloads = replace(self.reloads, ok=True, wall=wall, error="", taken=taken)
            _log.warning("reloaded", clusters=sorted(self._hubs), asked_by=asked_by)

    def _read_again(self) -> "_Fresh":
        """Read and check all that can be checked before anything is changed. Runs: a worker thread."""
        if self.waiters.stopping:
            raise ConfigError("this service is ending")
        if self._reload_from is None:
            raise ConfigError("this service was not started from a configuration that can be read again")
        new = self._reload_from().settings
        _refuse_restarts(self.settings, new)
        held = fingerprints(new)  # before the files are opened: what changes meanwhile is noticed at the next look
        changed = self._changed(new, held)
        check_clients(new, changed, self._maker)
        return _Fresh(
            settings=new,
            opened=open_files(new.api),
            certificates=certificates(new),
            fingerprints=held,
            changed=changed,
        )

    def _changed(self, new: Settings, held: Mapping[str, str]) -> list[str]:
        """Return the clusters that are new, or follow other settings, or have other keys or authorities."""
        old = self.settings
        return [
            name
            for name in sorted(new.clusters)
            if name not in self._hubs
            or (new.clusters[name], new.policy(name)) != (old.clusters[name], old.policy(name))
            or held[name] != self._fingerprints[name]
        ]

    async def _swap(self, fresh: "_Fresh") -> None:
        """Bring a configuration in as a whole: begin what is new, then replace, and undo both where a part fails."""
        new, changed = fresh.settings, fresh.changed
        prover = await self._changed_prover(fresh)  # opens stores, which may fail
        begun = {name: self._new_hub(name, new) for name in changed if name not in self._hubs}
        replaced: list[Cluster] = []
        try:
            for hub in begun.values():
                await in_thread(partial(hub.cluster.start, self.state_dir))
            for name in changed:
                if name in self._hubs:
                    cluster = self._hubs[name].cluster
                    change = partial(cluster.change, new.clusters[name], new.policy(name), self.state_dir)
                    await in_thread(change)
                    replaced.append(cluster)
        except Exception:
            await self._undo(begun, replaced)
            raise
        if self.endpoint is not None and prover is not None:
            self.endpoint.use_prover(prover)
        await self._activate(fresh, {**self._hubs, **begun})

    async def _changed_prover(self, fresh: "_Fresh") -> KafkaProver | None:
        """Return what proves the endpoint's brokers under a new configuration; None where nothing of that changes."""
        old, new = self.settings, fresh.settings
        if self.endpoint is None or not (fresh.changed or (old.clusters, old.loop) != (new.clusters, new.loop)):
            return None
        return await in_thread(partial(self._prover, new))

    async def _activate(self, fresh: "_Fresh", hubs: dict[str, Hub]) -> None:
        """Show the new configuration in one step; only then end what it does not name."""
        old, new = self.settings, fresh.settings
        self._hubs = {name: hubs[name] for name in new.clusters}
        self.settings, self.opened = new, fresh.opened
        self.certificates, self._fingerprints = fresh.certificates, fresh.fingerprints
        self.registry.silence_seconds = new.silence_seconds
        for hub in self._hubs.values():
            hub.cluster.timeline.resize(new.events_max)
        if new.log.level != old.log.level:
            set_level(new.log.level)
        for hub in [hub for name, hub in hubs.items() if name not in new.clusters]:
            hub.close()
            await in_thread(hub.cluster.stop)

    async def _undo(self, begun: dict[str, Hub], replaced: list[Cluster]) -> None:
        for hub in begun.values():
            hub.close()
            await in_thread(hub.cluster.stop)
        for cluster in replaced:
            before, policy = self.settings.clusters[cluster.name], self.settings.policy(cluster.name)
            await in_thread(partial(cluster.change, before, policy, self.state_dir))

    def _new_hub(self, name: str, settings: Settings) -> Hub:
        wanted, policy, limit = settings.clusters[name], settings.policy(name), settings.events_max
        cluster = Cluster(name, wanted, policy, clock=self.clock, maker=self._maker, events_max=limit)
        return Hub(cluster, self.waiters, asyncio.get_running_loop())


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
