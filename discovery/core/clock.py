"""The one way to ask for the time, so that tests can own it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds for durations, wall-clock seconds for display and files."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch; may jump, so only for display."""
        ...


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def wall(self) -> float:
        """See `Clock.wall`."""
        return time.time()
