"""What is remembered about one cluster, and what follows from it for clients."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from discovery.core.model import BrokerAddress
from discovery.localkafka.properties import ADMIN_USER, PLAIN_LOGIN, ClusterSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """What another process needs to work with a running cluster."""

    cluster_id: str
    settings: ClusterSettings
    ports: Mapping[str, int] = field(default_factory=dict)
    """By process name: `controller` and broker ids as text."""
    socket_path: str = ""
    admin_password: str = ""

    def address(self, name: str) -> str:
        """Return `host:port` of a process."""
        return str(BrokerAddress(self.settings.host, self.ports[name]))

    @property
    def client_options(self) -> dict[str, str]:
        """What an administrator's client needs besides addresses, as librdkafka spells it; empty without SASL."""
        if not self.settings.sasl_users:
            return {}
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN_USER,
            "sasl.password": self.admin_password,
        }

    @property
    def java_client_options(self) -> dict[str, str]:
        """The same as Kafka's Java tools spell it."""
        if not self.settings.sasl_users:
            return {}
        login = f'{PLAIN_LOGIN} required username="{ADMIN_USER}" password="{self.admin_password}";'
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}

    def to_json(self) -> str:
        """Write it down."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read it back; raises ValueError, KeyError or TypeError for anything else."""
        saved = json.loads(text)
        settings = saved["settings"]
        settings["jvm_options"] = tuple(settings["jvm_options"])
        return cls(**{**saved, "settings": ClusterSettings(**settings)})
