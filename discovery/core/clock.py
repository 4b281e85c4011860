"""The one way to ask for the time, so that tests can own it."""

from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds for durations, wall-clock seconds for display and files."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch; may jump, so only for display."""
        ...
