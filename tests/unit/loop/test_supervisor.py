"""The thread of a loop, begun and ended at the same time."""

import queue
import threading
from typing import Any

import pytest
import tenacity

from discovery.loop import supervisor
from discovery.loop.supervisor import Supervisor


class Idle:
    """A cycle in which nothing happens."""

    calm_seconds = 0.0

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[object] = queue.SimpleQueue()

    def turn(self, _first: object) -> float:
        return 60.0


def test_given_a_thread_that_is_being_started_when_stopped_then_it_is_waited_for_and_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, go = threading.Event(), threading.Event()

    class SlowToStart(threading.Thread):
        def start(self) -> None:
            if self.name == "kafka-discovery loop":  # others may start threads meanwhile
                loops.append(self)
                entered.set()
                go.wait(10)
            super().start()

    cycle: Any = Idle()
    made = Supervisor(cycle)
    ended: list[str] = []
    loops: list[threading.Thread] = []
    starting = threading.Thread(target=made.start)

    def stop() -> None:
        made.stop()
        ended.append("stop")

    stopping = threading.Thread(target=stop)
    monkeypatch.setattr(threading, "Thread", SlowToStart)
    starting.start()
    entered.wait(10)
    stopping.start()
    stopping.join(0.1)
    go.set()
    for thread in (starting, stopping):
        thread.join(10)
    assert ended == ["stop"]
    assert [loop.is_alive() for loop in loops] == [False]


def test_given_a_loop_started_twice_when_it_turns_then_one_thread_turns_it() -> None:
    turns: list[int] = []
    turned = threading.Event()

    class Counted(Idle):
        def turn(self, _first: object) -> float:
            turns.append(threading.get_ident())
            if len(turns) >= 20:
                turned.set()
            return 0.01

    cycle: Any = Counted()
    made = Supervisor(cycle)
    for _ in range(3):
        made.start()
    assert turned.wait(10)
    made.stop()
    assert len(set(turns)) == 1


def test_given_exceptions_in_a_row_and_one_long_after_when_it_rests_then_only_the_row_makes_it_rest_longer() -> None:
    cycle: Any = Idle()
    made = Supervisor(cycle)
    state: Any = tenacity.RetryCallState(retry_object=tenacity.Retrying(), fn=None, args=(), kwargs={})
    attempts = []
    for good_turns in (0, 5, 5, 100, 0):
        made._good_turns = good_turns
        assert 0 <= made._rest(state) <= 5
        attempts.append(state.attempt_number)
        state.attempt_number += 1
    assert attempts == [1, 2, 3, 1, 2]


@pytest.mark.expects_bug
def test_given_exceptions_between_many_good_turns_when_run_then_the_turns_are_counted_and_the_rest_is_short_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts: list[int] = []

    def at_once(state: tenacity.RetryCallState) -> float:
        attempts.append(state.attempt_number)
        return 0.0

    monkeypatch.setattr(supervisor, "_LONGER", at_once)
    fails_at, ended = {1, 3, 104, 205}, threading.Event()

    class Failing(Idle):
        turns = 0

        def turn(self, _first: object) -> float:
            self.turns += 1
            if self.turns in fails_at:
                raise RuntimeError("nobody expected it")
            if self.turns > max(fails_at):
                ended.set()
                return 60.0
            return 0.0

    cycle: Any = Failing()
    made = Supervisor(cycle)
    made.start()
    assert ended.wait(10)
    made.stop()
    assert made.bugs == len(fails_at)
    assert attempts == [1, 2, 1, 1], "one good turn is no recovery, a hundred are"
