"""An instant by which something must be over, shared by all steps that lead there."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A monotonic instant; every step of one piece of work draws on the same one."""

    at: float

    @classmethod
    def after(cls, seconds: float, *, now: float) -> "Deadline":
        """Return the deadline `seconds` (>= 0) from `now`."""
        if seconds < 0:
            raise ValueError(f"a budget cannot be negative: {seconds=}")
        return cls(now + seconds)

    def remaining(self, now: float) -> float:
        """Return the seconds left; 0.0 once it has passed."""
        return max(0.0, self.at - now)
