"""What goes wrong in a run of the engine."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes wrong in one batch."""

    batch: int
    point: str = ""
    lane: int = 0
    action: str = ""
    """`kill` or `stop` at the point; else `abandon` (the driver dies, its tasks live on), `forget` (commits/N), or the
    name of a fault to the brokers."""
    meanwhile: str = ""
    """With `stop`: it goes on to its end while its retry stands at this point."""

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.action, self.point, self.meanwhile) if part)
