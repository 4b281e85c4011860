"""JVM client options as users write them -> librdkafka properties, with a decided fate for every name.

Pure. `map_client_options` is the entry; the tables below are the decisions, one line each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from discovery.core.model import Isolation


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """librdkafka properties without `bootstrap.servers`, and what a reader may see. `repr` shows no values."""

    librdkafka: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    isolation: Isolation = Isolation.READ_UNCOMMITTED

    @property
    def connection(self) -> Mapping[str, str]:
        """Only what concerns connections: consumer properties would make an admin client complain."""
        return self.librdkafka
