"""What a follower knows and shows, moment by moment, without a thread or a service."""

from dataclasses import replace

from discovery.core.model import Generation
from discovery.feed.base import FeedView, cold_view
from discovery.feed.following import Following
from discovery.feed.leading import Limits, Mode
from discovery.feed.wire import Position

LIMITS = Limits()
COLD = cold_view((), None, "cold")
SEEN = replace(COLD, generation=Generation(7), age_seconds=0.5, sentence="fresh")


def heard(known: Following, now: float, view: FeedView = SEEN) -> Following:
    position = Position(epoch="epoch", version=known.held.version + 1)
    return known.of_service(view, position, is_usable=True, age_seconds=0.5, now=now, limits=LIMITS)


def shown(known: Following, now: float) -> Following:
    return known.show(known.choice(now, LIMITS), now=now, wall=0.0, instead="in its place")


def test_given_a_service_that_falls_silent_when_it_returns_then_it_leads_again_once_it_was_steady() -> None:
    first = Following(view=COLD, shown_at=0.0)
    known = shown(heard(first, 1.0), 1.0)
    assert (known.mode, known.view.generation, known.view.version) == (Mode.SERVICE, 1, 1)
    known = shown(known.unheard().of_embedded_loop(SEEN, now=6.0, limits=LIMITS), 6.0)
    assert (known.mode, known.view.generation) == (Mode.EMBEDDED_LOOP, 2), "each has a count of its own"
    assert known.view.sentence == "in its place: fresh"
    known = shown(heard(known, 7.0), 7.0)
    assert known.mode is Mode.EMBEDDED_LOOP
    known = shown(heard(heard(known, 8.0), 9.0), 9.0)
    assert (known.mode, known.held) == (Mode.SERVICE, Position(epoch="epoch", version=3))
    assert first == Following(view=COLD, shown_at=0.0), "a moment does not change"


def test_given_no_usable_view_when_the_service_answers_then_what_it_says_is_shown_as_nobodys() -> None:
    known = Following(view=COLD, shown_at=0.0)
    unusable = known.of_service(SEEN, Position(), is_usable=False, age_seconds=0.5, now=1.0, limits=LIMITS)
    assert (unusable.mode, unusable.view.sentence) == (Mode.NOBODY, "fresh")
    assert unusable.choice(1.0, LIMITS) is Mode.NOBODY
