"""The signals that ask a process to stop, as something may be done about them."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signal(act: Callable[[int], object]) -> Iterator[None]:
    """Call `act` with the number of each SIGTERM or SIGINT that comes within the block, on a thread of its own.

    Never in a handler: it runs in the midst of the main thread, which may hold the very lock that `act` wants
    (`Event.wait` holds the event's for a moment), and would wait for itself for ever. Nor by way of one: it only runs
    once the main thread does, and a signal that comes in the moment before that begins to wait, or that the kernel
    gives to another thread, does not wake it. Behind the block the handlers and the wakeup descriptor of before are
    back.

    Runs: main thread.
    """
    heard, writing = socket.socketpair()
    writing.setblocking(False)

    def relay() -> None:
        with heard:
            while number := heard.recv(1):
                if number[0] in STOP_SIGNALS:
                    threading.Thread(target=act, args=(number[0],), name="stop", daemon=True).start()

    threading.Thread(target=relay, name="stop signals", daemon=True).start()
    with writing:
        wakeup = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, _nothing) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
            writing.shutdown(socket.SHUT_WR)  # closing alone ends nothing where a forked child has it too


def _forget() -> None:
    """A child that is forked without a program of its own ends by signals as others do; its parent hears nothing."""
    if any(signal.getsignal(number) is _nothing for number in STOP_SIGNALS):
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget)


def _nothing(_number: int, _frame: object) -> None:
    """There must be a handler for the interpreter to note the signal."""
