"""Signals that ask a process to stop."""

import os
import signal
import socket
import threading

import pytest

from discovery.config.signals import STOP_SIGNALS, on_stop_signal


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_given_a_main_thread_that_holds_the_lock_when_a_signal_comes_then_nobody_waits_for_ever(number: int) -> None:
    lock, reported = threading.Lock(), list[int]()
    stop = threading.Event()

    def act(received: int) -> None:
        with lock:
            reported.append(received)
        stop.set()

    with on_stop_signal(act):
        with lock:  # as the main thread does in the midst of Event.wait, with the event's own
            signal.raise_signal(number)  # the handler runs before this returns
        assert stop.wait(20)
    assert reported == [number]


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_given_a_signal_that_does_not_wake_the_main_thread_when_it_waits_then_the_signal_is_heard(number: int) -> None:
    """Whether another thread gets it, as here, or it comes just before the wait: nothing interrupts the main thread."""
    stop, over = threading.Event(), threading.Event()
    taker = threading.Thread(target=over.wait, args=(30,))
    taker.start()
    with on_stop_signal(lambda _: stop.set()):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            os.kill(os.getpid(), number)
            assert stop.wait(20)
        finally:
            over.set()
            taker.join()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_given_a_host_with_handlers_of_its_own_when_nobody_listens_any_more_then_it_has_them_again() -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    heard, writing = socket.socketpair()
    with heard, writing:
        writing.setblocking(False)
        signal.set_wakeup_fd(writing.fileno())
        with on_stop_signal(lambda _: None):
            relays = [thread for thread in threading.enumerate() if thread.name == "stop signals"]
            assert [signal.getsignal(number) for number in STOP_SIGNALS] != before
        assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
        assert signal.set_wakeup_fd(-1) == writing.fileno()
    for relay in relays:
        relay.join(20)
    assert [relay.is_alive() for relay in relays] == [False]


def test_given_a_child_forked_without_a_program_when_it_is_terminated_then_it_ends_and_its_parent_hears_nothing() -> (
    None
):
    heard: list[int] = []
    reading, writing = os.pipe()
    with on_stop_signal(heard.append):
        child = os.fork()
        if not child:
            os.write(writing, b"1")
            signal.sigtimedwait([signal.SIGUSR2], 20)
            os._exit(0)
        assert os.read(reading, 1) == b"1"
        os.close(reading)
        os.close(writing)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert heard == []
