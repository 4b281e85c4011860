"""Back-off, budget and clock refuse what makes no sense."""

import pytest

from discovery.config.clock import SystemClock
from discovery.core.backoff import full_jitter
from discovery.core.budget import Deadline


def test_given_arguments_out_of_range_when_backing_off_or_budgeting_then_they_are_refused() -> None:
    with pytest.raises(ValueError, match="out of range"):
        full_jitter(base_seconds=0, cap_seconds=1, failures=1, fraction=0.5)
    with pytest.raises(ValueError, match="negative"):
        Deadline.after(-1, now=0)


def test_given_the_system_clock_when_asked_then_monotonic_time_does_not_go_back_and_wall_time_is_an_epoch() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall() > 1_700_000_000
