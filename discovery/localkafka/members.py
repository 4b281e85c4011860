"""The processes of a running cluster, asked for through their keeper."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from discovery.core.errors import KafkaUnreachableError
from discovery.localkafka.admin import Admin
from discovery.localkafka.keeper.client import ChildProcess, KeeperClient
from discovery.localkafka.layout import ClusterFolder
from discovery.localkafka.properties import ClusterSettings
from discovery.localkafka.record import ClusterRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Where a cluster's processes are and how to reach them: a value; a moved port makes a new one.

    Every method asks the keeper and raises StateError where it is gone. Runs: any thread; milliseconds.
    """

    record: ClusterRecord
    files: ClusterFolder
    client: KeeperClient
    archive: Path | None
    """Parsed classes that JVMs start from; None: they start without."""

    @property
    def settings(self) -> ClusterSettings:
        """What kind of cluster it is."""
        return self.record.settings

    def address(self, broker_id: int) -> str:
        """Return `host:port` of a broker."""
        return self.record.address(self.settings.process_name(broker_id))

    def children(self) -> dict[str, ChildProcess]:
        """Describe all processes by name, ended ones too."""
        return self.client.children()

    def is_alive(self, broker_id: int) -> bool:
        """Tell whether the broker's process exists (a paused one does)."""
        child = self.children().get(self.settings.process_name(broker_id))
        return child is not None and child.exit_code is None

    def is_paused(self, broker_id: int) -> bool:
        """Tell whether the broker's process is frozen."""
        child = self.children().get(self.settings.process_name(broker_id))
        return child is not None and child.paused

    def living_ids(self) -> tuple[int, ...]:
        """Return the brokers that run and are not paused."""
        children = self.children()
        return tuple(
            b for b in self.settings.broker_ids
            if (c := children.get(str(b))) is not None and c.exit_code is None and not c.paused
        )  # fmt: skip

    def signal(self, ids: Collection[int], number: int) -> None:
        """Signal brokers; ended ones are passed over."""
        self.client.signal([self.settings.process_name(broker_id) for broker_id in ids], number)

    def admin(self, ids: Collection[int] | None = None) -> Admin:
        """Make an administrator's client over these brokers; None: over those that live.

        Raises:
            KafkaUnreachableError: there is none.
        """
        living = self.living_ids() if ids is None else ids
        if not living:
            raise KafkaUnreachableError("no broker of the local cluster runs; restart one first")
        return Admin(",".join(map(self.address, living)), self.record.client_options)
