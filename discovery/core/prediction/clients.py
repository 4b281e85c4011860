"""What is known of the JVM client by its version: timeouts, what it does with dead addresses, who brings it. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

from discovery.core.errors import ConfigError
from discovery.core.plural import counted
from discovery.core.prediction.forecast import Limits

NEWEST = (4, 1)
_ADMIN_API_TIMEOUT = (2, 5)
_SETUP_TIMEOUTS = (2, 7)
_LEAVES_SILENCE = (3, 1)
_WAITS_LONGER = (3, 7)
_RECOVERY = (3, 8)
_RECOVERS = (4, 0)
_API_TIMEOUT = "default.api.timeout.ms"
_REQUEST_TIMEOUT = "request.timeout.ms"
_SETUP = "socket.connection.setup.timeout.ms"
_SETUP_MOST = "socket.connection.setup.timeout.max.ms"
_BACKOFF_MOST = "reconnect.backoff.max.ms"
_RETRY, _RETRY_MOST = "retry.backoff.ms", "retry.backoff.max.ms"
_STRATEGY = "metadata.recovery.strategy"
CLIENTS_OF_SPARK = {
    (2, 4): (2, 0), (3, 0): (2, 4), (3, 1): (2, 6), (3, 2): (2, 8), (3, 3): (2, 8), (3, 4): (3, 3), (3, 5): (3, 4),
    (4, 0): (3, 9), (4, 1): (3, 9), (4, 2): (3, 9),
}  # fmt: skip
"""Which client comes with Spark's own connector, by the connector's version."""


@dataclass(frozen=True, slots=True, order=True)
class ClientVersion:
    """A version of `kafka-clients`, as far as it matters: major and minor."""

    major: int
    minor: int

    def __str__(self) -> str:
        """Write it as Maven would."""
        return f"kafka-clients {self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str, *, option: str = "--client-version") -> Self:
        """Read `3.9.1`, `3.9` or `2.6`.

        Raises:
            ConfigError: it is no version of 0.11 to 9.x; names `option`.
        """
        found = re.fullmatch(r"(\d)\.(\d{1,2})(\.\d+)*(-\S+)?", text.strip())
        if found is None:
            raise ConfigError(f"{option}: {text.strip()!r} is not a version of kafka-clients; write 2.6, 3.9 or 4.1")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def of_spark(cls, text: str) -> Self | None:
        """Return what the Kafka connector in Spark's `spark.jars.packages` brings; None where it names none."""
        found = re.search(r"spark-(?:sql|streaming)-kafka-0-10_[\d.]+:(\d+)\.(\d+)", text)
        known = CLIENTS_OF_SPARK.get((int(found[1]), int(found[2]))) if found else None
        return cls(*known) if known else None

    @property
    def has_setup_timeout(self) -> bool:
        """Tell whether it gives up a connection by itself (2.7, KIP-601)."""
        return (self.major, self.minor) >= _SETUP_TIMEOUTS

    @property
    def admin_leaves_silence(self) -> bool:
        """Tell whether its admin client can leave a broker that accepts and stays silent (seen from 3.1 on)."""
        return (self.major, self.minor) >= _LEAVES_SILENCE

    @property
    def waits_longer(self) -> bool:
        """Tell whether it waits twice as long after each failure (3.7, KIP-580)."""
        return (self.major, self.minor) >= _WAITS_LONGER

    @property
    def has_recovery(self) -> bool:
        """Tell whether it knows `metadata.recovery.strategy` (3.8, KIP-899)."""
        return (self.major, self.minor) >= _RECOVERY

    @property
    def recovers_by_default(self) -> bool:
        """Tell whether it goes back to its list by itself (4.0, KIP-1102)."""
        return (self.major, self.minor) >= _RECOVERS


class ClientKind(Enum):
    """Which of the JVM's clients: they leave a dead broker in different ways."""

    ADMIN = "admin"
    """Finds partitions for Spark from 3.1 on and for Flink's KafkaSource."""
    CONSUMER = "consumer"
    """Reads: in executors and tasks; in older Spark and Flink it finds partitions, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client as configured."""

    version: ClientVersion
    kind: ClientKind
    limits: Limits
    given: Mapping[str, str]
    """The properties that say so, without prefix."""

    @property
    def has_api_timeout(self) -> bool:
        """Tell whether a call has a limit of its own; an admin client before 2.5 takes that of a request (KIP-533)."""
        return _has_api_timeout(self.version, self.kind)

    @property
    def api_option(self) -> str:
        """Name the option that limits a call."""
        return _API_TIMEOUT if self.has_api_timeout else _REQUEST_TIMEOUT

    def patient(self, api_seconds: float) -> Limits:
        """Return its limits with another limit of a call."""
        request = self.limits.request_seconds if self.has_api_timeout else api_seconds
        return replace(self.limits, api_seconds=api_seconds, request_seconds=request)


def configured(
    version: ClientVersion,
    properties: Mapping[str, str],
    *,
    kind: ClientKind = ClientKind.ADMIN,
    system_seconds: float = 127.0,
) -> Client:
    """Join a version's defaults with what was configured.

    Args:
        version: Of the client.
        properties: JVM client properties without prefix; those that do not matter here are kept and not looked at.
        kind: Which client.
        system_seconds: How long this operating system tries to connect.

    Raises:
        ConfigError: a timeout is not a whole number above 0; names it.

    Runs: anywhere (pure).
    """
    own_limit = _has_api_timeout(version, kind)
    request = _seconds(properties, _REQUEST_TIMEOUT, 30_000 if own_limit else 120_000)
    setup = _seconds(properties, _SETUP, 10_000) if version.has_setup_timeout else None
    # A default below a wanted request timeout is lifted to it by the admin client, a wanted one is refused.
    limits = Limits(
        api_seconds=_seconds(properties, _API_TIMEOUT, max(60_000, round(request * 1000))) if own_limit else request,
        request_seconds=request,
        setup_seconds=setup,
        setup_most_seconds=_seconds(properties, _SETUP_MOST, 30_000),
        system_seconds=system_seconds,
        **_ways_of(version, properties, kind),
    )
    return Client(version=version, kind=kind, limits=limits, given=dict(properties))


def _has_api_timeout(version: ClientVersion, kind: ClientKind) -> bool:
    return kind is not ClientKind.ADMIN or (version.major, version.minor) >= _ADMIN_API_TIMEOUT


def _ways_of(version: ClientVersion, properties: Mapping[str, str], kind: ClientKind) -> dict[str, float]:
    if kind is ClientKind.ADMIN:
        return {"silent_escape": 0.5 if version.admin_leaves_silence else 0.0}
    wait = _seconds(properties, _RETRY, 100)
    most = _seconds(properties, _RETRY_MOST, 1_000) if version.waits_longer else wait
    return {"retry_seconds": wait, "retry_most_seconds": max(wait, most)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two settings that work against each other."""

    code: str
    sentence: str
    fatal: bool = False
    """The client refuses to start."""


def contradictions(client: Client, *, entries: int) -> tuple[Contradiction, ...]:
    """Name timeouts that contradict each other, the worst first.

    Args:
        client: As configured.
        entries: How many addresses its list has.

    Runs: anywhere (pure).
    """
    return tuple(one for one in _all(client, entries) if one is not None)


def _all(client: Client, entries: int) -> tuple[Contradiction | None, ...]:
    limits, version = client.limits, client.version
    api, request, setup = limits.api_seconds, limits.request_seconds, limits.setup_seconds
    return (
        Contradiction(
            code="api-below-request",
            fatal=True,
            sentence=f"{_API_TIMEOUT} ({api:g} s) is below {_REQUEST_TIMEOUT} ({request:g} s): the admin client, which "
            "Spark and Flink use to find partitions, refuses to start. Raise the first or lower the second.",
        )
        if api < request
        else None,
        Contradiction(
            code="setup-eats-api",
            sentence=f"{_SETUP} ({setup:g} s) leaves no time for a second attempt within {_API_TIMEOUT} ({api:g} s): "
            f"the first black hole ends the call. Set {_SETUP} to {max(1.0, api / 10):g} s.",
        )
        if setup is not None and (setup if not limits.varies else 0.8 * setup) >= api
        else None,
        Contradiction(
            code="request-eats-api",
            sentence=f"{_REQUEST_TIMEOUT} ({request:g} s) is as long as {_API_TIMEOUT} ({api:g} s): the first broker "
            "that accepts and stays silent ends the call. Set the first to a third of the second or less.",
        )
        if request == api and client.has_api_timeout
        else None,
        Contradiction(
            code="no-setup-timeout",
            sentence=f"{_SETUP} is set, but {version} does not know it (it came with 2.7) and waits for the operating "
            f"system, {limits.system_seconds:g} s. Upgrade the client.",
        )
        if _SETUP in client.given and not version.has_setup_timeout
        else None,
        Contradiction(
            code="recovery-unknown",
            sentence=f"{_STRATEGY} is set, but {version} does not know it (it came with 3.8). Upgrade the client.",
        )
        if _STRATEGY in client.given and not version.has_recovery
        else None,
        _useless_recovery(client, entries),
    )


def _useless_recovery(client: Client, entries: int) -> Contradiction | None:
    version, setup = client.version, client.limits.setup_seconds
    wanted = client.given.get(_STRATEGY, "").strip().lower() == "rebootstrap"
    if not wanted or not version.has_recovery or version.recovers_by_default or setup is None:
        return None
    backoff = _seconds(client.given, _BACKOFF_MOST, 1_000)
    if backoff > entries * setup:
        return None
    return Contradiction(
        code="recovery-never",
        sentence=f"{_STRATEGY}=rebootstrap does nothing against black holes here: {version} goes back to its list only "
        f"while every known broker is in backoff at once, and {_BACKOFF_MOST} ({backoff:g} s) is over long before "
        f"{counted(entries, 'connect')} of {setup:g} s. And it goes back to the same list.",
    )


def _seconds(properties: Mapping[str, str], name: str, default_milliseconds: int) -> float:
    text = properties.get(name, str(default_milliseconds)).strip()
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise ConfigError(f"{name}: {text!r} is not a number of milliseconds of 1..{2**31 - 1}")
    return int(text) / 1000
