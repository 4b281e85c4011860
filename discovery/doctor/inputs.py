"""Reads what describes a client: Spark's and Flink's configuration files, Java properties, a plain list."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import ClientOptions, map_client_options
from discovery.config.client.tables import COMPOSED, RENAMED, SAME, STORES
from discovery.config.hosts import is_loopback
from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress, parse_bootstrap_servers
from discovery.core.prediction.clients import NEWEST, Client, ClientKind, ClientVersion, configured

_LIST = "bootstrap.servers"
_LINE = re.compile(r"\s*(?P<name>[^\s=:#!][^\s=:]*)(?:\s*[=:]\s*|\s+)(?P<value>.*?)\s*$")
_MAX_BYTES = 4 << 20
_TRIES, _SPARK_TRIES, _MOST_TRIES = "fetchoffset.numretries", 3, 1_000
_CONNECTION = ("security.protocol", "sasl.", "ssl.", "client.dns.lookup")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Described:
    """A client and its surroundings, as files and options describe them. Holds secrets: `repr` shows none."""

    addresses: tuple[BrokerAddress, ...]
    client: Client
    options: ClientOptions
    """For librdkafka: how we connect."""
    origin: str
    """Where the version is known from."""
    remote_executors: bool = False
    """Other hosts than this one will use the list."""
    tries: int = 1
    """How many starts a query makes before it dies: Spark's own source begins again, each time with another client."""
    ignored: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show what is no secret."""
        return f"Described({self.addresses}, {self.client.version}, {self.origin})"


@dataclass(slots=True)
class _Read:
    kafka: dict[str, str] = field(default_factory=dict, repr=False)
    surroundings: dict[str, str] = field(default_factory=dict, repr=False)


def described(
    *,
    bootstrap: str | None = None,
    spark_conf: Path | None = None,
    properties: Path | None = None,
    flink_conf: Path | None = None,
    client_version: str | None = None,
    kind: ClientKind = ClientKind.ADMIN,
    system_seconds: float = 127.0,
) -> Described:
    """Join files and options; what is written later in this list of arguments wins, `bootstrap` wins over all.

    Args:
        bootstrap: `host:port,host:port`.
        spark_conf: `spark-defaults.conf`; every `…kafka.NAME` in it is the client's NAME.
        properties: A Java properties file of the client.
        flink_conf: Flink's YAML or a `WITH` clause's lines; every `…properties.NAME` is the client's NAME.
        client_version: Of kafka-clients; else what Spark's packages bring, else the newest.
        kind: Admin client or consumer.
        system_seconds: How long this system tries to connect.

    Raises:
        ConfigError: a file cannot be read, no list is given, a setting is wrong.

    Runs: the command; reads files, and stores that the options name.
    """
    read = _Read()
    for path, option, mark in (
        (properties, "--properties", None),
        (spark_conf, "--spark-conf", "kafka."),
        (flink_conf, "--flink-conf", "properties."),
    ):
        if path is not None:
            _take(read, _pairs(path, option), mark)
    listed = bootstrap or read.kafka.get(_LIST)
    if listed is None:
        raise ConfigError(
            "doctor: no list of brokers; give --bootstrap host:port,host:port, or a file that holds bootstrap.servers "
            "(--spark-conf: spark.….kafka.bootstrap.servers; --flink-conf: properties.bootstrap.servers)"
        )
    version, origin = _version(client_version, read.surroundings)
    kafka = {name: value for name, value in read.kafka.items() if name != _LIST}
    wanted = {name: value for name, value in kafka.items() if name.startswith(_CONNECTION)}
    known = {name: value for name, value in wanted.items() if _is_ours(name)}
    return Described(
        addresses=parse_bootstrap_servers(listed, option="--bootstrap" if bootstrap else _LIST),
        client=configured(version, kafka, kind=kind, system_seconds=system_seconds),
        options=open_stores(map_client_options(known)),
        origin=origin,
        remote_executors=_is_distributed(read.surroundings),
        tries=_tries(read.surroundings) if spark_conf is not None else 1,
        ignored=tuple(sorted(set(wanted) - set(known))),
    )


def loopback_entries(addresses: tuple[BrokerAddress, ...]) -> tuple[BrokerAddress, ...]:
    """Return the entries that mean another machine on every machine.

    Runs: anywhere (pure).
    """
    return tuple(one for one in addresses if is_loopback(one.host))


def _is_ours(name: str) -> bool:
    return name in SAME or name in RENAMED or name in STORES or name in COMPOSED


def _pairs(path: Path, option: str) -> dict[str, str]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{option}: {path} is larger than 4 MiB; that is no configuration file")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{option}: {path} cannot be read: {reason}; name a text file") from None
    lines = re.sub(r"\\\r?\n\s*", "", text).splitlines()
    found = (_LINE.match(line) for line in lines if not line.lstrip().startswith(("#", "!")))
    return {_bare(one["name"]): _bare(one["value"]) for one in found if one is not None}


def _bare(text: str) -> str:
    """Take away what YAML and SQL put around a word."""
    return text.strip().rstrip(",").strip().strip("'\"").strip()


def _take(read: _Read, pairs: Mapping[str, str], mark: str | None) -> None:
    for name, value in pairs.items():
        before, found, client_name = name.rpartition(mark) if mark and mark in name else ("", "", name)
        if mark is None:
            read.kafka[name] = value
        elif found and (not before or before.endswith(".")):
            read.kafka[client_name] = value
        else:
            read.surroundings[name] = value


def _version(given: str | None, surroundings: Mapping[str, str]) -> tuple[ClientVersion, str]:
    if given is not None:
        return ClientVersion.parse(given), "--client-version"
    brought = ClientVersion.of_spark(surroundings.get("spark.jars.packages", ""))
    if brought is not None:
        return brought, "spark.jars.packages"
    return ClientVersion(*NEWEST), "assumed; say --client-version if yours is older"


def _tries(surroundings: Mapping[str, str]) -> int:
    given = [value for name, value in surroundings.items() if name.lower().endswith(_TRIES)]
    text = given[-1] if given else str(_SPARK_TRIES)
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MOST_TRIES:
        raise ConfigError(f"--spark-conf: fetchOffset.numRetries: {text!r} is not a number of 1..{_MOST_TRIES}")
    return int(text)


def _is_distributed(surroundings: Mapping[str, str]) -> bool:
    master = surroundings.get("spark.master", "")
    if master and not master.startswith("local"):
        return True
    address = surroundings.get("jobmanager.rpc.address", "")
    return bool(address) and not is_loopback(address)
