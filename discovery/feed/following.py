"""What a follower knows of its service and of its embedded loop, and what it shows of it. Pure."""

from dataclasses import dataclass, field, replace

from discovery.core.model import Generation
from discovery.feed.base import FeedView
from discovery.feed.carry import covers_all, with_carried
from discovery.feed.leading import Heard, Limits, Mode, choose
from discovery.feed.wire import Position

_SETTLED_SECONDS = 5.0
"""After so long a fresh view of the embedded loop counts, even where it lacks partitions: they were deleted."""
_NEVER, _NOT_YET = float("-inf"), float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """One moment; each method returns the next. All times are monotonic seconds."""

    view: FeedView
    """What is shown, its versions and generations in a count of our own: service and embedded loop each have theirs."""
    shown_at: float
    mode: Mode = Mode.NOBODY
    generation: tuple[Mode, str, Generation] | None = None
    """Whose generation is shown, in its own count."""
    held: Position = field(default_factory=Position)
    service_view: FeedView | None = None
    usable_at: float = _NEVER
    """When the service was last heard with something that can be used."""
    fresh_at: float = _NEVER
    """When a trusted answer last confirmed what it said."""
    steady_since: float = _NOT_YET
    embedded_view: FeedView | None = None
    embedded_fresh_since: float = _NOT_YET

    def heard(self, now: float, limits: Limits) -> Heard:
        """Sum up what is known of both."""
        silent_seconds = now - self.usable_at
        is_steady = silent_seconds <= limits.silence_seconds
        return Heard(
            service_silent_seconds=silent_seconds,
            service_age_seconds=now - self.fresh_at,
            service_steady_seconds=max(0.0, now - self.steady_since) if is_steady else 0.0,
            embedded_loop_usable=self._is_enough(now),
        )

    def choice(self, now: float, limits: Limits) -> Mode:
        """Choose whose view to show."""
        return choose(self.mode, self.heard(now, limits), limits)

    def unheard(self) -> "Following":
        """The service was silent: what it says next begins from nothing."""
        return replace(self, steady_since=_NOT_YET, held=Position(), service_view=None)

    def of_service(
        self, view: FeedView, position: Position, *, is_usable: bool, age_seconds: float, now: float, limits: Limits
    ) -> "Following":
        """Take in what the service sees."""
        taken = replace(self, held=position, service_view=view, steady_since=_NOT_YET)
        if not is_usable:
            return taken.put(view, Mode.NOBODY, now) if self.mode is Mode.NOBODY else taken
        fresh_at = max(self.fresh_at, now - age_seconds)
        since = min(self.steady_since, now) if now - fresh_at <= limits.age_seconds else _NOT_YET
        return replace(taken, usable_at=now, fresh_at=fresh_at, steady_since=since)

    def of_embedded_loop(self, view: FeedView, *, now: float, limits: Limits) -> "Following":
        """Take in what the embedded loop sees."""
        since = min(self.embedded_fresh_since, now) if view.age_seconds <= limits.age_seconds else _NOT_YET
        return replace(self, embedded_view=view, embedded_fresh_since=since)

    def without_embedded_loop(self) -> "Following":
        """The embedded loop has ended."""
        return replace(self, embedded_view=None, embedded_fresh_since=_NOT_YET)

    def show(self, mode: Mode, *, now: float, wall: float, instead: str) -> "Following":
        """Show the view of a mode, as far as there is one; `instead` says for whom the embedded loop stands in."""
        if mode is Mode.SERVICE and self.service_view is not None:
            return self.put(replace(self.service_view, age_seconds=now - self.fresh_at), mode, now)
        if mode is Mode.EMBEDDED_LOOP and self.embedded_view is not None:
            view = with_carried(self.embedded_view, self.view, wall=wall)
            return self.put(replace(view, sentence=f"{instead}: {view.sentence}"), mode, now)
        if self.mode is Mode.NOBODY and self.embedded_view is not None:
            return self.put(self.embedded_view, Mode.NOBODY, now)
        return self

    def put(self, view: FeedView, mode: Mode, now: float) -> "Following":
        """Show a view, numbered in our own count."""
        shown = (mode, self.held.epoch if mode is Mode.SERVICE else "", view.generation)
        grown = self.view.generation + (shown != self.generation) if view.generation else 0
        numbered = replace(view, version=self.view.version + 1, generation=Generation(max(grown, self.view.generation)))
        return replace(self, view=numbered, shown_at=now, mode=mode, generation=shown)

    def _is_enough(self, now: float) -> bool:
        """Tell whether the embedded loop can stand in for what is shown: fresh, and lacking nothing for no reason."""
        fresh_seconds = now - self.embedded_fresh_since
        if self.embedded_view is None or not self.embedded_view.generation or fresh_seconds < 0:
            return False
        return fresh_seconds >= _SETTLED_SECONDS or covers_all(self.embedded_view, self.view)
