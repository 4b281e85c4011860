"""Serves brokers to jobs: vets each list it hears of, and answers with an endpoint or a vetted list."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import map_client_options
from discovery.config.logs import event_log
from discovery.core.model import BrokerAddress, Verdict, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.endpoint.limits import Limits
from discovery.endpoint.make import Followed, brokers_feed, make_endpoint
from discovery.feed.base import FeedView, verdicts

_CONNECTION = ("security.", "sasl.", "ssl.")
"""Only what decides how a broker is reached concerns the vetting."""
_FIRST_ROUND_SECONDS = 3.0
"""How long a list is looked at before less than all verdicts will do."""
_log = event_log("discovery.spark.supervise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vetted:
    """What is known of a list at one moment."""

    endpoint: str
    """Address of the local endpoint; empty where clients would not believe it (TLS names)."""
    living: tuple[BrokerAddress, ...]
    """Best first; empty: nobody answered."""
    brokers: int
    """How many the cluster has."""
    verdicts: str
    fatal: str | None = None
    """Not None: waiting will not help."""
    notes: tuple[str, ...] = ()

    def servers(self, *, local: bool) -> str:
        """Return the list a client shall use: the endpoint on this host, else the living brokers."""
        return self.endpoint if local and self.endpoint else ",".join(map(str, self.living))


@dataclass(frozen=True, slots=True)
class _Followed:
    configured: tuple[BrokerAddress, ...]
    client: Mapping[str, str]
    running: Followed
    since: float


@dataclass(slots=True)
class ListVetter:
    """Follows every list it was asked about until `close`. Thread-safe; nothing runs before the first question."""

    state_dir: Path | None
    client: Mapping[str, str] = field(default_factory=dict)
    """Connection options (JVM names) for lists that come without: those found on a command line."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set it to end every wait for a living broker."""
    _followed: list[_Followed] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def vet(self, servers: str, *, client: Mapping[str, str] | None = None, wait_seconds: float = 20.0) -> Vetted:
        """Say who of a list, and of the brokers learned through it, is alive now.

        Args:
            servers: A list as a client takes it; an endpoint of ours stands for the list it was made of.
            client: The client's own options; those given to the vetter if None.
            wait_seconds: How long to wait for the first living broker.

        Raises:
            ConfigError: this is no list, or librdkafka refuses the options.

        Runs: any thread; blocks <= wait_seconds + 1.
        """
        listed = parse_bootstrap_servers(servers)
        options = _connection(self.client if client is None else client)
        with self._lock:
            one = self._find(listed, options) or self._follow(listed, options)
        return _shown(one, wait_seconds, self.over)

    def close(self) -> None:
        """Stop everything; blocks <= 10 s per list; a second call does nothing."""
        with self._lock:
            followed, self._followed = self._followed, []
        for one in followed:
            one.running.stop()

    def _find(self, listed: tuple[BrokerAddress, ...], client: Mapping[str, str]) -> _Followed | None:
        return next((one for one in self._followed if one.client == client and _is_of(one, listed)), None) or next(
            (one for one in self._followed if str(listed[0]) == one.running.endpoint.address), None
        )

    def _follow(self, listed: tuple[BrokerAddress, ...], client: Mapping[str, str]) -> _Followed:
        options, policy = open_stores(map_client_options(client)), Policy()
        feed = brokers_feed(listed, options, policy, state_dir=self.state_dir)
        endpoint = make_endpoint(feed.view, options, policy, Limits(port=0))
        running = Followed(feed=feed, endpoint=endpoint)
        running.start()
        made = _Followed(listed, client, running, time.monotonic())
        self._followed.append(made)
        return made


def _connection(client: Mapping[str, str]) -> dict[str, str]:
    plain = {name.lower().removeprefix("kafka."): value for name, value in client.items()}
    return {name: value for name, value in plain.items() if name.startswith(_CONNECTION)}


def _is_of(one: _Followed, listed: tuple[BrokerAddress, ...]) -> bool:
    """Tell whether a list means a cluster that is followed: an address in common, or our endpoint."""
    known = {str(address) for address in one.running.feed.view().addresses} | {str(a) for a in one.configured}
    return any(str(address) in known or str(address) == one.running.endpoint.address for address in listed)


def _shown(one: _Followed, wait_seconds: float, over: threading.Event) -> Vetted:
    feed, endpoint = one.running.feed, one.running.endpoint
    deadline = time.monotonic() + wait_seconds
    view = feed.view()
    while not _enough(view, one.since) and time.monotonic() < deadline and not over.is_set():
        view = feed.wait(view.version, 0.2)
    living = _living(view)
    ready = bool(living) and endpoint.wait_ready(max(1.0, deadline - time.monotonic()))
    findings = endpoint.shown().findings
    if living and not ready:
        _log.warning("endpoint_not_ready", addresses=verdicts(view))
    return Vetted(
        endpoint=endpoint.address if ready and not findings else "",
        living=living,
        brokers=max(len(living), sum(report.verdict is not None for report in view.addresses.values())),
        verdicts=verdicts(view),
        fatal=view.fatal,
        notes=tuple(finding.text for finding in findings),
    )


def _living(view: FeedView) -> tuple[BrokerAddress, ...]:
    """Return who answered: the view's own list falls back to those last known."""
    return tuple(
        address
        for address in view.bootstrap
        if (report := view.addresses.get(address)) is not None and report.verdict is Verdict.ALIVE
    )


def _enough(view: FeedView, since: float) -> bool:
    """All addresses were judged, or somebody lives and the others have had their time."""
    if view.fatal is not None:
        return True
    if not _living(view):
        return False
    return all(r.verdict for r in view.addresses.values()) or time.monotonic() - since > _FIRST_ROUND_SECONDS
