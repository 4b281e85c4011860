"""When a reader plans next, as far as it can be known."""

import pytest

from discovery.feed.rhythm import Rhythm
from tests.support.fakes.clock import FakeClock


def rhythm_after(*gaps: float) -> tuple[Rhythm, FakeClock]:
    clock = FakeClock()
    rhythm = Rhythm(clock)
    rhythm.note_plan()
    for gap in gaps:
        clock.advance(gap)
        rhythm.note_plan()
    return rhythm, clock


def test_given_a_steady_trigger_when_a_plan_was_made_then_nothing_is_needed_until_shortly_before_the_next() -> None:
    rhythm, clock = rhythm_after(1.0, 1.05)
    assert rhythm.rests_seconds() == pytest.approx(0.9)
    clock.advance(0.95)
    assert rhythm.rests_seconds() == 0
    clock.advance(60)
    assert rhythm.rests_seconds() == 0, "a batch may end at any moment"


@pytest.mark.parametrize(
    "gaps",
    [(), (1.0,), (0.2, 0.2, 0.2), (0.01,) * 9, (1.0, 3.0), (3.0, 1.0), (1.0, 1.0, 7.0)],
    ids=["one plan", "two plans", "short trigger", "no trigger", "late", "early", "a long batch"],
)
def test_given_no_slow_rhythm_when_asked_then_the_next_plan_may_come_at_any_moment(gaps: tuple[float, ...]) -> None:
    rhythm, _ = rhythm_after(*gaps)
    assert rhythm.rests_seconds() == 0
