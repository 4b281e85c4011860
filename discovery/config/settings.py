"""The service's configuration as frozen values that check themselves and each other.

The names here are the names of the file; environment and command line spell the same names. `load.py` brings the
layers together, `provenance.py` remembers who said what, `reference.py` writes the page.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import ClientOptions, map_client_options
from discovery.config.durations import seconds
from discovery.config.hosts import is_loopback
from discovery.config.option_values import is_uri
from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress, ClusterId, TopicName, parse_bootstrap_servers
from discovery.core.policy import Policy

_T = TypeVar("_T")
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
RESERVED = frozenset({"default"})
"""Means "the only one" in addresses; so it may name a cluster only where there is one."""


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _of_this_machine(value: object) -> object:
    if isinstance(value, str) and is_uri(value):
        raise ValueError("no path of this machine; name a local or mounted one")
    return value


Duration = Annotated[float, BeforeValidator(seconds), Field(gt=0, lt=float("inf"))]
Port = Annotated[int, Field(ge=0, le=65_535)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class Section(BaseModel):
    """A table of the file: unknown names are errors, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class ApiSettings(Section):
    """The listener of the HTTP API and of the status page."""

    host: str = Field(
        default="127.0.0.1", description="Address to listen on. Any but a loopback address needs `token_file`."
    )
    port: Port = Field(default=9463, description="Port of the API and the status page; 0 takes a free one.")
    token_file: Path | None = Field(
        default=None, description="File with the bearer tokens, one per line: every request must carry one of them."
    )
    tls_certificate_file: Path | None = Field(
        default=None, description="PEM file with the certificate chain of the API."
    )
    tls_key_file: Path | None = Field(default=None, description="PEM file with the private key of the certificate.")
    tls_client_ca_file: Path | None = Field(
        default=None, description="PEM file with the authorities of clients: only their certificates are let in."
    )
    waiters_max: int = Field(default=10_000, ge=1, description="Requests that may wait for a change at the same time.")
    connections_max: int = Field(default=12_000, ge=2, description="Connections that may be open at the same time.")
    body_max_bytes: int = Field(default=1_048_576, ge=1_024, description="Largest request body.")
    header_max_bytes: int = Field(default=16_384, ge=1_024, description="Largest request line and headers together.")
    request_timeout_seconds: Duration = Field(
        default=10.0, description="How long a client may take to send a request, headers and body."
    )

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach the API."""
        return is_loopback(self.host)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.is_loopback and self.token_file is None:
            raise ValueError(
                f"host: {self.host!r} is not a loopback address, so a token is required; set api.token_file or use"
                " 127.0.0.1"
            )
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file belong together; set both or none")
        if self.tls_client_ca_file is not None and self.tls_certificate_file is None:
            raise ValueError("tls_client_ca_file needs TLS; set tls_certificate_file and tls_key_file too")
        if self.waiters_max >= self.connections_max:
            raise ValueError(
                f"need waiters_max < connections_max, but waiters_max={self.waiters_max} and"
                f" connections_max={self.connections_max}; change one of them"
            )
        return self


class ProbeSettings(Section):
    """The listener of health probes and metrics: no token, nothing else to be had there."""

    host: str = Field(
        default="127.0.0.1", description="Address to listen on; 0.0.0.0 for Kubernetes probes and Prometheus."
    )
    port: Port = Field(default=9464, description="Port of /livez, /readyz, /startupz and /metrics; 0 takes a free one.")


class EndpointSettings(Section):
    """The local bootstrap endpoint: one address on this host that leads any client to a living broker."""

    enabled: bool = Field(default=False, description="Whether the service offers it.")
    host: str = Field(default="127.0.0.1", description="Loopback address to listen on; others are refused.")
    port: Port = Field(
        default=19092, description="Port that clients use as their bootstrap server; 0 takes a free one."
    )
    cluster: str | None = Field(default=None, description="Which cluster it leads to; the only one if unset.")
    connections_max: int = Field(default=2_000, ge=1, description="Clients that may be connected at the same time.")
    idle_seconds: Duration = Field(
        default=600.0,
        description="Connections idle for so long are closed; above 540 s, when JVM clients close theirs.",
    )


class LogSettings(Section):
    """The log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is written."
    )
    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="`auto`: text on a terminal, else JSON."
    )


class MetricsSettings(Section):
    """Bounds of what a scrape may return."""

    topics_max: int = Field(
        default=1_000, ge=1, description="Topics with series of their own; the rest is `__other__`."
    )
    consumers_max: int = Field(
        default=500, ge=1, description="Consumers with series of their own; the rest is left out."
    )


class ClusterSettings(Section):
    """One Kafka cluster to follow."""

    bootstrap_servers: tuple[BrokerAddress, ...] = Field(
        description="First contacts, host:port; any that lives will do."
    )
    cluster_id: str | None = Field(
        default=None, min_length=1, description="The right cluster; else the first one agreed on."
    )
    topics: Names = Field(default=(), description="Topics to follow; all but Kafka's internal ones if none is named.")
    topic_pattern: str | None = Field(
        default=None, description="Follow the topics in which this regular expression is found."
    )
    client: dict[str, str] = Field(
        default_factory=dict,
        description="Client options under their JVM names; `<name>_file` reads the value from a file.",
    )
    loop: dict[str, float | str] = Field(
        default_factory=dict, description="Settings of `[loop]` that differ for this cluster."
    )

    @field_validator("bootstrap_servers", mode="before")
    @classmethod
    def _addresses(cls, value: object) -> object:
        listed = _listed(value)
        if isinstance(listed, (list, tuple)):
            return _parsed(",".join(map(str, listed)))
        return listed

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.topics and self.topic_pattern is not None:
            raise ValueError("topics and topic_pattern exclude each other; keep one")
        try:
            re.compile(self.topic_pattern or "")
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"topic_pattern: {self.topic_pattern!r} is not a regular expression: {error}") from None
        return self

    @property
    def pin(self) -> ClusterId | None:
        """The cluster id the user insists on."""
        return ClusterId(self.cluster_id) if self.cluster_id else None

    @property
    def topic_names(self) -> tuple[TopicName, ...]:
        """The topics by name."""
        return tuple(dict.fromkeys(map(TopicName, self.topics)))

    @property
    def client_options(self) -> ClientOptions:
        """The client options as librdkafka takes them; reads key and trust stores, so ask once."""
        return open_stores(map_client_options(self.client))


class Settings(Section):
    """The service's whole configuration."""

    state_dir: Annotated[Path | None, BeforeValidator(_of_this_machine)] = Field(
        default=None, description="Folder of the last good views; the user's state folder if unset."
    )
    silence_seconds: Duration = Field(
        default=30.0,
        description="A consumer that says nothing for so long is forgotten (its lag is no longer exported).",
    )
    events_max: int = Field(
        default=1_000, ge=10, le=100_000, description="Events kept per cluster for /v1/events, on disk too."
    )
    api: ApiSettings = Field(default_factory=ApiSettings)
    probes: ProbeSettings = Field(default_factory=ProbeSettings)
    endpoint: EndpointSettings = Field(default_factory=EndpointSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    loop: dict[str, float | str] = Field(
        default_factory=dict, description="Rhythms and limits of every cluster's loop."
    )
    clusters: dict[str, ClusterSettings] = Field(min_length=1, description="The clusters, by a name of your choice.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, cluster in self.clusters.items():
            if not _CLUSTER_NAME.fullmatch(name):
                raise ValueError(f"clusters.{name}: a name is 1..63 letters, digits, dots, dashes; choose another")
            if name in RESERVED and len(self.clusters) > 1:
                raise ValueError(f"clusters.{name}: this name means the only cluster; with several choose another")
            _named(f"clusters.{name}.client", partial(map_client_options, cluster.client))
            self.policy(name)
        wanted, names = self.endpoint.cluster, ", ".join(sorted(self.clusters))
        if wanted is not None and wanted not in self.clusters:
            raise ValueError(f"endpoint.cluster: {wanted!r} is not configured; there are: {names}")
        if self.endpoint.enabled and wanted is None and len(self.clusters) > 1:
            raise ValueError(f"endpoint.cluster: which of {names} shall the endpoint lead to? name one")
        if self.api.port == self.probes.port != 0 and self.api.host == self.probes.host:
            raise ValueError(f"api.port and probes.port are both {self.api.port} on {self.api.host}; change one")
        return self

    @property
    def endpoint_cluster(self) -> str:
        """Name of the cluster that the endpoint leads to."""
        return self.endpoint.cluster or next(iter(self.clusters))

    def policy(self, cluster: str) -> Policy:
        """Return the limits of one cluster's loop: its own over the common ones over the defaults.

        Raises:
            ValueError: an unknown name, no duration, or durations in the wrong order; names the place.
        """
        own = _policy_values(self.clusters[cluster].loop, where=f"clusters.{cluster}.loop")
        common = _policy_values(self.loop, where="loop")
        return _named(f"clusters.{cluster}.loop" if own else "loop", lambda: Policy(**{**common, **own}))


def _parsed(text: str) -> tuple[BrokerAddress, ...]:
    try:
        return parse_bootstrap_servers(text, option="bootstrap_servers")
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("bootstrap_servers: ")) from error


def _policy_values(given: Mapping[str, float | str], *, where: str) -> dict[str, Any]:
    known = {field.name: field.type for field in fields(Policy)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{where}.{name}: unknown setting; known are {', '.join(sorted(known))}")
        try:
            number = seconds(value)
        except ValueError as error:
            raise ValueError(f"{where}.{name}: {value!r}: {error}") from None
        values[name] = int(number) if known[name] is int else number
    return values


def _named(where: str, make: Callable[[], _T]) -> _T:
    try:
        return make()
    except ConfigError as error:
        raise ValueError(f"{where}: {error}") from error
