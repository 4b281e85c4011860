"""How large and how long a demo is; checked when it is made."""

from dataclasses import dataclass, replace

from discovery.core.errors import ConfigError
from discovery.localkafka.properties import MOST_BROKERS

RACKS = 3
FEWEST_PER_RACK = 2
"""One rack dies, and two brokers of another one freeze."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Sizes, and for how long each state is watched.

    Raises:
        ConfigError: the brokers do not fill the racks; names option, value, limit and remedy.
    """

    brokers: int = 12
    sidecar: bool = False
    """The jobs follow a service instead of looking for themselves."""
    strict: bool = False
    """A time that is missed fails the demo too."""
    partitions: int = 24
    grown_partitions: int = 30
    rate: float = 600.0
    """Events per second."""
    users: int = 2000
    malformed_share: float = 0.002
    single_records: int = 6000
    """Records of the topic with one replica, written before its leaders die."""
    days: float = 2.5
    """How many days of events pass in one demo."""
    warm_seconds: float = 10.0
    """The job comes to a cluster that is in use: brokers that have just started need all processors for a while."""
    steady_seconds: float = 8.0
    after_partitions_seconds: float = 4.0
    after_kill_seconds: float = 15.0
    frozen_seconds: float = 12.0
    after_thaw_seconds: float = 6.0
    after_restart_seconds: float = 8.0

    def __post_init__(self) -> None:
        """Check the brokers against the racks."""
        fewest = RACKS * FEWEST_PER_RACK
        if not fewest <= self.brokers <= MOST_BROKERS or self.brokers % RACKS:
            raise ConfigError(
                f"--brokers {self.brokers}: they fill {RACKS} equal racks, of which one dies and two brokers of another"
                f" freeze; choose a multiple of {RACKS} in {fewest}..{MOST_BROKERS}"
            )

    @property
    def per_rack(self) -> int:
        """Brokers of one rack."""
        return self.brokers // RACKS

    def rack_members(self, rack: int) -> tuple[int, ...]:
        """Return the broker ids of rack 0, 1 or 2; racks are filled in order."""
        return tuple(range(rack * self.per_rack + 1, (rack + 1) * self.per_rack + 1))

    @property
    def doomed(self) -> tuple[int, ...]:
        """The rack that dies: the last one."""
        return self.rack_members(RACKS - 1)

    @property
    def freezing(self) -> tuple[int, ...]:
        """Two brokers of the middle rack, so that every partition keeps a replica that answers."""
        return self.rack_members(1)[:FEWEST_PER_RACK]


def full(brokers: int | None = None, *, sidecar: bool = False, strict: bool = False) -> DemoSettings:
    """Return the demo of `make demo`."""
    return DemoSettings(brokers=12 if brokers is None else brokers, sidecar=sidecar, strict=strict)


def fast(brokers: int | None = None, *, sidecar: bool = False, strict: bool = False) -> DemoSettings:
    """Return a smaller and shorter one, for machines that test it on every change."""
    return replace(
        DemoSettings(brokers=6 if brokers is None else brokers, sidecar=sidecar, strict=strict),
        partitions=12,
        grown_partitions=15,
        rate=300.0,
        users=400,
        single_records=1200,
        warm_seconds=1.0,
        steady_seconds=3.0,
        after_partitions_seconds=2.0,
        after_kill_seconds=9.0,
        frozen_seconds=7.0,
        after_thaw_seconds=3.0,
        after_restart_seconds=3.0,
    )
