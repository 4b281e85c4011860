"""A question about cut partitions, asked beside planning on a real thread."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from discovery.core.errors import StateError
from discovery.core.model import BrokerId
from discovery.feed.base import FeedView
from discovery.spark.source.planning.confirmation import UNCONFIRMED, Confirmation
from tests.support.fakes.feed import partition_view, tp, view_of
from tests.support.helpers import eventually

CUT = {tp(0): 10}
VIEW = view_of({tp(0): partition_view(0, 5), tp(1): partition_view(0, 5)})
ANSWER = view_of({tp(0): partition_view(0, 12), tp(1): partition_view(0, 3)})


def test_given_a_leader_that_answers_at_once_when_asked_then_the_same_look_sees_it_and_no_other_row() -> None:
    confirmation = Confirmation(lambda _: ANSWER)
    confirmation.ask(CUT, 1.0)
    seen = confirmation.seen(CUT, VIEW)
    assert seen is not None
    assert seen.partitions == {tp(0): partition_view(0, 12), tp(1): partition_view(0, 5)}
    assert confirmation.seen(CUT, VIEW) is None, "once"


def test_given_an_older_answer_when_seen_then_a_newer_row_and_a_later_cut_stay() -> None:
    confirmation = Confirmation(lambda _: ANSWER)
    confirmation.ask(CUT, 1.0)
    now = view_of({tp(0): partition_view(0, 20), tp(1): partition_view(0, 5)})
    seen = confirmation.seen({**CUT, tp(1): 4}, now)
    assert seen is not None
    assert seen.partitions[tp(0)] == partition_view(0, 20)
    assert seen.partitions[tp(1)].parked_reason == UNCONFIRMED


def test_given_answers_of_the_loop_when_one_was_asked_since_the_cut_then_it_alone_is_read_on() -> None:
    confirmation, cuts = Confirmation(lambda _: ANSWER), {tp(0): 10, tp(1): 10, tp(2): 10}
    led = {tp(n): partition_view(0, 12, leader=n + 1) for n in range(3)}

    def view(*asked_at: float, parked: int = 9) -> FeedView:
        rows = {one: replace(row, parked_reason="silent") if one == tp(parked) else row for one, row in led.items()}
        return view_of(rows, answered={BrokerId(n + 1): (at, {tp(n)}) for n, at in enumerate(asked_at)})

    confirmation.note(cuts, 5.0)
    assert confirmation.seen(cuts, view(5.0, 5.0, 4.0)) is None, "answers from before the cut"
    confirmation.note(cuts, 6.0)
    seen = confirmation.seen(cuts, view(5.1, 1.0, 5.1, parked=2))
    assert seen is not None
    assert {one for one, row in seen.partitions.items() if row.parked_reason is None} == {tp(0)}
    confirmation.note({tp(1): 10, tp(2): 10}, 7.0)
    confirmation.note(cuts, 8.0)
    assert confirmation.seen(cuts, view(7.9, 1.0, 1.0)) is None, "cut once more, at the same end"


def test_given_a_services_answer_when_a_loop_took_over_meanwhile_then_it_counts_no_more() -> None:
    confirmation = Confirmation(lambda _: ANSWER)
    confirmation.note(CUT, 1.0)
    confirmation.ask(CUT, 1.0)
    assert confirmation.seen(CUT, replace(VIEW, answered={BrokerId(1): (0.5, {tp(0)})})) is None
    assert confirmation.seen(CUT, VIEW) is None


def test_given_an_answer_when_it_is_forgotten_then_it_counts_no_more() -> None:
    confirmation = Confirmation(lambda _: ANSWER)
    confirmation.ask(CUT, 1.0)
    confirmation.forget()
    assert confirmation.seen(CUT, VIEW) is None


def test_given_nobody_who_answers_when_asked_then_looks_go_on_and_one_question_is_under_way() -> None:
    released, asked = threading.Event(), []

    def refresh(seconds: float) -> FeedView:
        asked.append(seconds)
        released.wait(30)
        return ANSWER

    confirmation = Confirmation(refresh)
    try:
        confirmation.ask(CUT, 1.0)
        confirmation.ask(CUT, 2.0)
        assert confirmation.seen(CUT, VIEW) is None
    finally:
        released.set()
    eventually(lambda: confirmation.seen(CUT, VIEW) is not None, 10)
    assert asked == [1.0]


def test_given_a_feed_that_cannot_go_on_when_asked_then_the_next_look_says_so() -> None:
    def refresh(_: float) -> FeedView:
        raise StateError("another process holds the state")

    confirmation = Confirmation(refresh)
    confirmation.ask(CUT, 1.0)
    with pytest.raises(StateError, match="another process"):
        eventually(lambda: confirmation.seen(CUT, VIEW) is not None, 10)


def test_given_a_process_without_threads_when_asked_then_a_later_look_asks_again() -> None:
    def aside(work: Callable[[], None]) -> None:
        if not is_full.pop():
            return work()
        raise RuntimeError("can't start new thread")

    is_full = [False, True]
    confirmation = Confirmation(lambda _: ANSWER, aside)
    confirmation.ask(CUT, 1.0)
    assert confirmation.seen(CUT, VIEW) is None
    confirmation.ask(CUT, 1.0)
    assert confirmation.seen(CUT, VIEW) is not None
