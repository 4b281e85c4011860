"""The configuration files of a local cluster, as text. Pure."""

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress

CONTROLLER_ID = 1000
HOST = "127.0.0.1"
MOST_BROKERS = 48
ADMIN_USER = "kafka-discovery-admin"
_TAKEN = ("CLIENT", "CONTROLLER")
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

LOG4J = """\
# Warnings and errors to stdout, which the keeper writes to one file per process.
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c{1})%n%throwable
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""

_COMMON = {
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "controller.listener.names": "CONTROLLER",
    # The state of a throw-away cluster fits in little memory and disk.
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "broker.session.timeout.ms": "6000",
}
_BROKER = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What kind of cluster is wanted.

    Raises:
        ConfigError: a count is out of range; names option, value, limit and remedy.
    """

    brokers: int = 3
    """Broker ids are 1..brokers."""
    host: str = HOST
    """Loopback address that brokers listen on; Kafka's tool that formats a controller cannot read one of IPv6."""
    racks: int = 1
    """Brokers fill racks in order of their ids: 12 in 3 racks are 1-4, 5-8, 9-12."""
    extra_properties: Mapping[str, str] = field(default_factory=dict)
    """Overrides for every broker."""
    controller_properties: Mapping[str, str] = field(default_factory=dict)
    sasl_users: Mapping[str, str] = field(default_factory=dict)
    """User name to password; not empty: the brokers speak SASL_PLAINTEXT with PLAIN."""
    listeners: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """More listeners of every broker, by name: each its `security.protocol` and broker options of its own, as Kafka
    writes them behind `listener.name.<name>.`; the brokers among themselves and `client_options` use the first one."""
    jvm_options: tuple[str, ...] = (
        "-Xms64m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CICompilerCount=1", "-Xss512k",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Check the counts."""
        if not 1 <= self.brokers <= MOST_BROKERS:
            raise ConfigError(f"--brokers {self.brokers}: choose 1..{MOST_BROKERS}; each is a JVM of about 150 MB")
        if not 1 <= self.racks <= self.brokers:
            raise ConfigError(f"--racks {self.racks}: choose 1..{self.brokers}, the number of brokers")
        for name, wanted in self.listeners.items():
            if not name.isalnum() or name != name.upper() or name in _TAKEN or "security.protocol" not in wanted:
                raise ConfigError(
                    f"listener {name!r}: use capitals and digits, not {' or '.join(_TAKEN)}, and say security.protocol"
                )

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """All ids, 1..n."""
        return tuple(range(1, self.brokers + 1))

    def process_name(self, broker_id: int) -> str:
        """Name the process of a broker.

        Raises:
            ConfigError: there is no such broker.
        """
        if broker_id not in self.broker_ids:
            raise ConfigError(f"broker {broker_id} does not exist here; choose from 1..{self.brokers}")
        return str(broker_id)

    def rack_of(self, broker_id: int) -> str:
        """Name the rack of a broker."""
        per_rack = -(-self.brokers // self.racks)
        return f"rack-{(broker_id - 1) // per_rack}"

    @property
    def replication(self) -> int:
        """Replicas of internal topics: 3, or as many as there are brokers."""
        return min(3, self.brokers)


def port_names(settings: ClusterSettings, broker_id: int) -> tuple[str, ...]:
    """Name the ports of one broker: the first is its own name, then one per further listener."""
    return (str(broker_id), *(port_name(broker_id, name) for name in settings.listeners))


def port_name(broker_id: int, listener: str) -> str:
    """Name the port of a further listener."""
    return f"{broker_id}/{listener}"


def controller_properties(settings: ClusterSettings, *, port: int, data: str) -> dict[str, str]:
    """Configure the one controller."""
    return {
        **_COMMON,
        "process.roles": "controller",
        "node.id": str(CONTROLLER_ID),
        "listeners": f"CONTROLLER://{HOST}:{port}",
        "controller.quorum.bootstrap.servers": f"{HOST}:{port}",
        "log.dirs": data,
        # A record twice a second that says nothing wakes every broker: a third of what an idle one costs.
        "metadata.max.idle.interval.ms": "5000",
        **settings.controller_properties,
    }


def broker_properties(
    settings: ClusterSettings,
    broker_id: int,
    *,
    port: int,
    controller_port: int,
    data: str,
    admin_password: str = "",
    listener_ports: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Configure one broker; `listener_ports` has a port for each further listener."""
    ports = listener_ports or {}
    protocol = "SASL_PLAINTEXT" if settings.sasl_users else "PLAINTEXT"
    at = partial(BrokerAddress, settings.host)
    return {
        **_COMMON,
        **_BROKER,
        "process.roles": "broker",
        "node.id": str(broker_id),
        "listeners": ",".join(
            (f"CLIENT://{at(port)}", *(f"{name}://{at(ports[name])}" for name in settings.listeners))
        ),
        "listener.security.protocol.map": ",".join(
            (
                f"CONTROLLER:PLAINTEXT,CLIENT:{protocol}",
                *(f"{name}:{wanted['security.protocol']}" for name, wanted in settings.listeners.items()),
            )
        ),
        "inter.broker.listener.name": "CLIENT",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        "log.dirs": data,
        "broker.rack": settings.rack_of(broker_id),
        "default.replication.factor": str(settings.replication),
        "offsets.topic.replication.factor": str(settings.replication),
        "transaction.state.log.replication.factor": str(settings.replication),
        "transaction.state.log.min.isr": str(min(2, settings.replication)),
        **(_sasl(settings.sasl_users, admin_password) if settings.sasl_users else {}),
        **{
            f"listener.name.{name.lower()}.{option}": value
            for name, wanted in settings.listeners.items()
            for option, value in wanted.items()
            if option != "security.protocol"
        },
        **settings.extra_properties,
    }


def _sasl(users: Mapping[str, str], admin_password: str) -> dict[str, str]:
    known = {**users, ADMIN_USER: admin_password}
    entries = " ".join(f'user_{name}="{password}"' for name, password in known.items())
    login = f'{PLAIN_LOGIN} required username="{ADMIN_USER}" password="{admin_password}" {entries};'
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
    }


def render(properties: Mapping[str, str]) -> str:
    """Write a Java properties file; values are ASCII here, only a backslash needs care."""
    return "".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in properties.items())


def meta_properties(*, cluster_id: str, broker_id: int) -> str:
    """Write what formatting a broker's data folder would write: it saves a JVM start of 1-2 s per broker."""
    return render({"version": "1", "cluster.id": cluster_id, "node.id": str(broker_id), "directory.id": kafka_uuid()})


def kafka_uuid() -> str:
    """Make a random id in Kafka's text form, never beginning with '-', which Kafka's command line would misread."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
