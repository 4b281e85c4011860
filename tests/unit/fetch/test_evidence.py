"""What a TCP check of a leader proves: a killed one refuses, a frozen, full, unknown or living one does not."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.core.model import BrokerAddress
from discovery.spark.fetch.evidence import FIRST_CHECK_SECONDS, Check, Evidence, begin_check
from tests.support.fakes.clock import FakeClock
from tests.support.faults import UNRESOLVABLE, accept_and_hang, black_hole, refused_port
from tests.support.helpers import eventually

D1, D2 = BrokerAddress("d1", 9092), BrokerAddress("d2", 9092)
POLL = 0.05
NEVER = 1e9
moments = st.one_of(st.just(NEVER), st.floats(0, 20))


class Hosts:
    """Hosts that accept until they die; each answers after a while, some never."""

    def __init__(self, clock: FakeClock, dies_at: dict[BrokerAddress, float], answers_in: float) -> None:
        self.clock, self.dies_at, self.answers_in = clock, dies_at, answers_in
        self.begun: list[BrokerAddress] = []
        self.began = clock.monotonic()

    def begin(self, address: BrokerAddress) -> Check:
        self.begun.append(address)
        asked_at, dead = self.clock.monotonic(), self.is_dead(address)
        return lambda: dead if self.clock.monotonic() >= asked_at + self.answers_in else None

    def is_dead(self, address: BrokerAddress) -> bool:
        return self.clock.monotonic() - self.began >= self.dies_at[address]


@given(first=moments, second=moments, answers_in=st.sampled_from([0.0, 0.01, 0.3, NEVER]))
def test_given_any_deaths_when_nothing_comes_then_it_is_shown_only_of_the_dead_and_within_twice_the_time(
    first: float, second: float, answers_in: float
) -> None:
    clock = FakeClock()
    hosts = Hosts(clock, {D1: first, D2: second}, answers_in)
    evidence, began = Evidence(hosts.begin), clock.monotonic()
    shown_at = None
    while clock.monotonic() - began < 60 and shown_at is None:
        clock.advance(POLL)
        if evidence.shows_dead([D1, D2, D1], since=began, now=clock.monotonic()):
            shown_at = clock.monotonic() - began
    if NEVER in {first, second, answers_in}:
        assert shown_at is None
    else:
        assert shown_at is not None
        assert hosts.is_dead(D1)
        assert hosts.is_dead(D2)
        last = max(first, second, FIRST_CHECK_SECONDS)
        assert shown_at <= 2 * last + 2 * answers_in + 3 * POLL
    assert len(hosts.begun) <= 2 * (log2(60 / FIRST_CHECK_SECONDS) + 1)


def test_given_a_refusal_of_an_earlier_pause_when_nothing_comes_again_then_it_does_not_count() -> None:
    clock = FakeClock()
    hosts = Hosts(clock, {D1: 0.0}, 0.0)
    evidence = Evidence(hosts.begin)
    began = clock.monotonic()
    clock.advance(1)
    assert evidence.shows_dead([D1], since=began, now=clock.monotonic())
    hosts.dies_at[D1] = NEVER
    again = clock.monotonic()
    clock.advance(1)
    assert not evidence.shows_dead([D1], since=again, now=clock.monotonic())
    assert not evidence.shows_dead([], since=again, now=clock.monotonic())


@pytest.mark.parametrize("answers_in", [0.0, NEVER])
def test_given_many_pauses_when_leaders_live_or_say_nothing_then_each_is_asked_as_seldom_as_in_one(
    answers_in: float,
) -> None:
    clock = FakeClock()
    hosts = Hosts(clock, {D1: NEVER, D2: NEVER}, answers_in)
    evidence = Evidence(hosts.begin)
    while (began := clock.monotonic()) - hosts.began < 60:
        for _ in range(6):
            clock.advance(POLL)
            assert not evidence.shows_dead([D1, D2], since=began, now=clock.monotonic())
    assert len(hosts.begun) <= (2 * 20 if answers_in == 0.0 else 2)


def test_given_a_process_without_threads_when_checked_then_it_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    assert begin_check(D1)() is False


def address_of(text: str) -> BrokerAddress:
    host, _, port = text.rpartition(":")
    return BrokerAddress(host, int(port))


@pytest.mark.parametrize(
    ("fault", "refuses"),
    [(refused_port, True), (accept_and_hang, False), (black_hole, False)],
    ids=("refused", "accepted", "silent"),
)
def test_given_a_host_when_checked_then_only_a_refusal_is_evidence(
    fault: Callable[[], AbstractContextManager[str]], *, refuses: bool
) -> None:
    with fault() as address:
        check = begin_check(address_of(address))
        eventually(lambda: check() is not None, 10, "an answer")
        assert check() is refuses


def test_given_a_name_that_nobody_knows_when_checked_then_it_is_no_evidence() -> None:
    check = begin_check(address_of(UNRESOLVABLE))
    eventually(lambda: check() is not None, 10, "an answer")
    assert check() is False
