"""Joins an endpoint and a discovery loop."""

import errno
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import start_http_server

from discovery.config.certificate_metric import CertificateCollector
from discovery.config.certificates import Certificate, of_client
from discovery.config.client.opened_stores import fresh
from discovery.config.client.options import ClientOptions
from discovery.config.descriptors import OUT_OF, exhausted
from discovery.config.logs import bound, event_log
from discovery.config.metric_families import registry_of
from discovery.config.settings import EndpointSettings, Settings
from discovery.config.threads import in_thread
from discovery.core.answers import ProbeOutcome
from discovery.core.errors import ConfigError
from discovery.core.interest import Interest
from discovery.core.model import BrokerAddress, ClusterId
from discovery.core.policy import Policy
from discovery.endpoint.health_check import checks_names, impostor, unverified, verifying
from discovery.endpoint.limits import Limits
from discovery.endpoint.metrics import EndpointCollector
from discovery.endpoint.race import Resolved
from discovery.endpoint.server import Endpoint
from discovery.feed.base import FeedView, verdicts
from discovery.feed.embedded import EmbeddedFeed
from discovery.kafka.vetting.tcp_check import Reached, Resolver, reach_all
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from discovery.loop.demand import nothing

_log = event_log("discovery.endpoint")


def make_endpoint(
    view: Callable[[], FeedView | None], options: ClientOptions, policy: Policy, limits: Limits | None = None
) -> Endpoint:
    """Return an endpoint, not started, that follows this view and proves brokers with these client options.

    Runs: anywhere; does no I/O.
    """
    return Endpoint(view, KafkaProver(options, policy), limits)


def limits_of(wanted: EndpointSettings) -> Limits:
    """Return the limits that a configuration asks for.

    Raises:
        ConfigError: a value is out of range.

    Runs: anywhere (pure).
    """
    return Limits(
        host=wanted.host, port=wanted.port, connections_max=wanted.connections_max, idle_seconds=wanted.idle_seconds
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """An endpoint with a discovery loop of its own."""

    feed: EmbeddedFeed
    endpoint: Endpoint
    cluster: str = "default"
    certificates: Callable[[], Iterable[Certificate]] = tuple
    """Returns those in use now; any thread."""

    def start(self) -> str:
        """Listen and begin to look for brokers; returns the address. Runs: once; blocks for local files only.

        Raises:
            ConfigError: the address cannot be listened on, or librdkafka refuses the client options.
        """
        self.feed.start()
        try:
            with bound(cluster=self.cluster):
                return self.endpoint.start()
        except BaseException:
            self.feed.stop()
            raise

    def stop(self) -> None:
        """Let exchanges under way end and stop; blocks <= 10 s."""
        self.endpoint.stop()
        self.feed.stop()

    def complain(self, seconds: float) -> None:
        """Say in the log that nobody was found."""
        facts = {"waited_seconds": seconds, "addresses": verdicts(self.feed.view())}
        _log.warning("no_upstream_yet", cluster=self.cluster, **facts, consequence="clients are turned away")

    def serve_metrics(self, port: int) -> None:
        """Serve `/metrics` on loopback, from memory and, where certificates are configured, their files.

        Raises:
            ConfigError: the port cannot be listened on.
        """
        registry = registry_of(EndpointCollector(self.endpoint, self.cluster), CertificateCollector(self.certificates))
        try:
            start_http_server(port, addr="127.0.0.1", registry=registry)
        except OSError as error:
            raise ConfigError(f"--metrics-port: {port} cannot be listened on: {error.strerror or error}") from error


def followed(settings: Settings, *, state_dir: Path | None) -> Followed:
    """Return an endpoint for the cluster a configuration names, not started.

    Raises:
        ConfigError: a limit is out of range, or key and trust stores cannot be read.
    """
    cluster = settings.endpoint_cluster
    one, policy = settings.clusters[cluster], settings.policy(cluster)
    options = one.client_options
    context = {"cluster": cluster}
    feed = brokers_feed(one.bootstrap_servers, options, policy, state_dir=state_dir, pin=one.pin, log_context=context)
    made = make_endpoint(feed.view, options, policy, limits_of(settings.endpoint))
    return Followed(
        feed=feed,
        endpoint=made,
        cluster=cluster,
        certificates=lambda: of_client(options, f"clusters.{cluster}.client"),
    )


def brokers_feed(
    bootstrap: Sequence[BrokerAddress],
    options: ClientOptions,
    policy: Policy,
    *,
    state_dir: Path | None,
    pin: ClusterId | None = None,
    log_context: Mapping[str, str] | None = None,
) -> EmbeddedFeed:
    """Return a loop, not started, that follows the brokers of a cluster and no topic.

    Its view is saved per cluster, shared with all that follow brokers alone: so a list of removed brokers is enough,
    if one of them was ever met. Views that hold topics are kept elsewhere, for this one would empty them.
    """
    return EmbeddedFeed(
        bootstrap=bootstrap,
        interest=Interest(brokers_only=True),
        client_options=options,
        policy=policy,
        state_dir=state_dir / "brokers" if state_dir is not None else None,
        cluster_id=pin,
        demand=nothing,
        log_context=log_context,
    )


class KafkaProver:
    """See `Prover`: proves by a metadata request through librdkafka, as the loop does. Holds no connection.

    Each proof takes what the key and trust stores hold then; health checks take what the last proof took.
    """

    def __init__(self, options: ClientOptions, policy: Policy) -> None:
        protocol = str(options.connection.get("security.protocol", "")).upper()
        self._is_tls = protocol in {"SSL", "SASL_SSL"}
        self._options = options
        self._tls: ssl.SSLContext | None = None
        self._vetter = LibrdkafkaVetter(options, policy)
        self._policy = policy
        self._resolver = Resolver()

    @property
    def tls(self) -> ssl.SSLContext | None:
        """See `Prover.tls`."""
        if self._is_tls and self._tls is None:
            self._tls = unverified(self._options.connection)
        return self._tls

    async def resolve(self, address: BrokerAddress) -> Resolved:
        """See `Prover.resolve`."""
        found: list[Reached] = []
        timeout = self._policy.connect_timeout_seconds
        await reach_all((address,), self._resolver, timeout_seconds=timeout, on_reached=lambda _, r: found.append(r))
        if not found or found[0].endpoint is None:
            if found and found[0].ours:
                raise OSError(errno.EMFILE, OUT_OF)
            raise OSError(found[0].detail if found else f"no answer within {timeout:g} s")
        host, port = found[0].endpoint
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return Resolved(family, (host, port))

    async def prove(self, address: BrokerAddress, resolved: Resolved, cluster_id: ClusterId) -> str | None:
        """See `Prover.prove`.

        Plain listeners are asked by number, for another lookup of the name might lead elsewhere. Behind TLS the name is
        asked: routers by SNI need it, and no login goes to who has not shown it. Where names are checked, the number
        must show it too.
        """
        asked = address if self._is_tls else BrokerAddress(*resolved.address)
        outcome = await in_thread(lambda: self._vet(asked))
        if outcome is not None and outcome.tcp_only and exhausted():
            raise OSError(errno.EMFILE, OUT_OF)
        if outcome is None or outcome.tcp_only:
            return "it gave no answer that proves its cluster"
        if outcome.failure is not None:
            return f"{outcome.failure.value}: {outcome.detail}"
        if outcome.cluster_id != cluster_id:
            return f"it belongs to cluster {outcome.cluster_id}, not to {cluster_id}"
        if self._is_tls:
            return await self._shows_its_name(address, resolved)
        return None

    async def _shows_its_name(self, address: BrokerAddress, resolved: Resolved) -> str | None:
        connection = (await in_thread(lambda: fresh(self._options))).connection
        self._tls = unverified(connection)
        if not checks_names(connection):
            return None
        limit = self._policy.connect_timeout_seconds
        return await impostor(resolved, address.host, tls=verifying(connection), timeout_seconds=limit)

    def _vet(self, address: BrokerAddress) -> ProbeOutcome | None:
        judged: list[ProbeOutcome] = []
        self._vetter.vet(
            (address,),
            connect_timeout_seconds=self._policy.connect_timeout_seconds,
            request_timeout_seconds=self._policy.request_timeout_seconds,
            full=(address,),
            on_outcome=judged.append,
        )
        return judged[0] if judged else None
