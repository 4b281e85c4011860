"""A clock that tests own."""


class FakeClock:
    """See `Clock`; moves only when advanced."""

    def __init__(self, *, monotonic: float = 1_000.0, wall: float = 1_700_000_000.0) -> None:
        """Begin at a round moment."""
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._monotonic

    def wall(self) -> float:
        """See `Clock.wall`."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._monotonic += seconds
        self._wall += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock, forwards or back, as an administrator would; no time passes."""
        self._wall += seconds
