"""When a reader plans next, learned from when it planned before: what it needs fresh then, nobody needs in between."""

from discovery.core.clock import Clock

_LEAD_SECONDS = 0.15
"""How long before the next plan fresh answers are asked for; less than `offsets_interval`, so that it is once."""
_SLOWEST_SHORT_SECONDS = 0.5
"""Readers that plan more often than that are served all the time."""
_STEADY_SHARE = 0.2
"""Two gaps that differ by less than this share are a rhythm."""
_UNKNOWN = float("nan")


class Rhythm:
    """The rhythm of one reader. One thread notes plans, any may ask."""

    def __init__(self, clock: Clock) -> None:
        """Know nothing yet: it may plan at any moment."""
        self._clock = clock
        self._last = self._gap = _UNKNOWN
        self._opens_at = float("-inf")

    def note_plan(self) -> None:
        """Hear that the reader plans now; from memory."""
        now = self._clock.monotonic()
        before, self._gap, self._last = self._gap, now - self._last, now
        is_steady = self._gap >= _SLOWEST_SHORT_SECONDS and abs(self._gap - before) <= _STEADY_SHARE * self._gap
        # A plan that is late may come at any moment, so what is open stays open until the next one.
        self._opens_at = now + self._gap - _LEAD_SECONDS if is_steady else now

    def rests_seconds(self) -> float:
        """Return how long nothing needs to be fresh; 0: the next plan is near, or nobody knows when it comes."""
        return max(0.0, self._opens_at - self._clock.monotonic())
