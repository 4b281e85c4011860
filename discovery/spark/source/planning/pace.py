"""`minOffsetsPerTrigger` and `maxTriggerDelay`: whether a batch is worth its price yet."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What holds small batches back; nothing before the first one, as in the native source."""

    least: int | None
    """`minOffsetsPerTrigger`; None: no batch is too small."""
    delay_seconds: float
    planned_at: float = float("-inf")

    def is_due(self, now: float) -> bool:
        """Tell whether the longest delay is over, so that any record is worth a batch."""
        return self.least is None or now - self.planned_at >= self.delay_seconds

    def after(self, backlog: int, now: float) -> "Pace | None":
        """Return the pace after a batch of so many offsets; None: it may not be planned yet."""
        if self.least is None or (backlog < self.least and not self.is_due(now)):
            return self if self.least is None else None
        return replace(self, planned_at=now) if backlog else self
