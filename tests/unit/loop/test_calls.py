import threading

from discovery.config.clock import SystemClock
from discovery.core.budget import Deadline
from discovery.loop.calls import ThreadedCalls, gather
from tests.support.fakes.clock import FakeClock
from tests.support.helpers import eventually


def test_given_a_running_call_when_started_again_then_it_is_single_flight() -> None:
    release, errors = threading.Event(), list[str]()
    calls = ThreadedCalls(FakeClock(), max_stuck=2, on_error=lambda key, _: errors.append(key))
    assert calls.start("metadata", release.wait, limit_seconds=1)
    assert not calls.start("metadata", release.wait, limit_seconds=1)
    assert calls.start("other", release.wait, limit_seconds=1)
    release.set()
    eventually(lambda: calls.start("metadata", lambda: None, limit_seconds=1), 5)
    assert not errors


def test_given_calls_that_hang_when_overdue_then_they_are_named_abandoned_counted_and_capped() -> None:
    clock, release = FakeClock(), threading.Event()
    calls = ThreadedCalls(clock, max_stuck=2, on_error=lambda _key, _error: None)
    calls.start("a", release.wait, limit_seconds=1)
    calls.start("b", release.wait, limit_seconds=2)
    clock.advance(1.5)
    assert [(c.name, c.seconds) for c in calls.overdue()] == [("a", 1.5)]
    assert calls.overdue() == ()
    assert calls.start("a", release.wait, limit_seconds=1), "an abandoned call does not block its key"
    clock.advance(1.5)
    assert {c.name for c in calls.overdue()} == {"a", "b"}
    assert (calls.stuck, calls.stuck_total) == (3, 3)
    assert not calls.start("c", release.wait, limit_seconds=1), "at the cap no new call starts"
    release.set()
    eventually(lambda: calls.stuck == 0, 5)
    assert calls.start("c", lambda: None, limit_seconds=1)


def test_given_work_that_raises_when_it_ends_then_it_is_heard_and_its_key_is_free() -> None:
    heard: list[tuple[str, str]] = []
    calls = ThreadedCalls(FakeClock(), max_stuck=1, on_error=lambda key, error: heard.append((key, str(error))))

    def fail() -> None:
        raise RuntimeError("boom")

    calls.start("x", fail, limit_seconds=1)
    eventually(lambda: calls.start("x", lambda: None, limit_seconds=1), 5)
    assert heard == [("x", "boom")]


def test_given_one_slow_call_when_gathered_then_the_others_are_returned_at_the_deadline() -> None:
    clock, release = SystemClock(), threading.Event()
    calls = ThreadedCalls(clock, max_stuck=8, on_error=lambda _key, _error: None)
    work = {"fast": lambda: 1, "slow": lambda: int(release.wait(30)), "other": lambda: 2}
    seen = gather(calls, work, name="q", deadline=Deadline.after(0.2, now=clock.monotonic()), clock=clock)
    release.set()
    assert seen == {"fast": 1, "other": 2}
