"""A cluster whose one broker takes an address that used to be another cluster's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.layout import ClusterFolder
from discovery.localkafka.properties import ClusterSettings


class ForeignBroker(LocalKafka):
    """One broker on the given address, which must be free by now."""

    def __init__(self, address: str) -> None:
        super().__init__(ClusterSettings(brokers=1))
        self._port = int(address.rpartition(":")[2])

    def _start_keeper(self, folder: ClusterFolder, locks: Sequence[int]) -> None:
        super()._start_keeper(folder, locks)
        self._record = replace(self._record, ports={**self._record.ports, "1": self._port})

    def __enter__(self) -> Self:
        super().__enter__()
        assert self.address(1).endswith(f":{self._port}"), "the address was taken by somebody else"
        return self
