"""A range that is not at its end, and what was heard of it."""

from dataclasses import dataclass

from discovery.fetch.ranges import FetchRange

_LASTING_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class OpenRange:
    """One range of a task while it is read."""

    range: FetchRange
    end: int
    position: int
    progress_at: float
    caught_up: bool = False
    """The broker said: no more records for now, although the end is not reached."""
    bad_since: float | None = None
    """Since when the cluster says that the rest of it does not exist."""

    def move(self, position: int, now: float) -> None:
        """Note progress: whatever was wrong is over."""
        self.position, self.progress_at, self.bad_since = position, now, None

    def is_lasting(self, now: float, *, bad: bool) -> bool:
        """Note whether the cluster denies the rest of it; True when it has done so for long enough to believe it."""
        if not bad:
            self.bad_since = None
            return False
        if self.bad_since is None:
            self.bad_since = now
        return now - self.bad_since >= _LASTING_SECONDS
