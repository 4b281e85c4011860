"""The signals that ask a process to stop, as something may be done about them."""

import os
import signal
import socket
import threading
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_sockets: list[socket.socket] = []
"""Where the interpreter writes the numbers of signals: kept open."""


def on_stop_signal(act: Callable[[int], object]) -> None:
    """Call `act` with the number of each SIGTERM or SIGINT from now on, on a thread of its own.

    Never in a handler: it runs in the midst of the main thread, which may hold the very lock that `act` wants
    (`Event.wait` holds the event's for a moment), and would wait for itself for ever. Nor by way of one: it only runs
    once the main thread does, and a signal that comes in the moment before that begins to wait, or that the kernel
    gives to another thread, does not wake it.

    Runs: main thread.
    """
    heard, writing = socket.socketpair()
    writing.setblocking(False)
    _sockets.append(writing)

    def relay() -> None:
        with heard:
            while number := heard.recv(1):
                if number[0] in STOP_SIGNALS:
                    threading.Thread(target=act, args=(number[0],), name="stop", daemon=True).start()

    threading.Thread(target=relay, name="stop signals", daemon=True).start()
    signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    for number in STOP_SIGNALS:
        signal.signal(number, _nothing)


def _forget() -> None:
    """A child that is forked without a program of its own ends by signals as others do; its parent hears nothing."""
    if any(signal.getsignal(number) is _nothing for number in STOP_SIGNALS):
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget)


def _nothing(_number: int, _frame: object) -> None:
    """There must be a handler for the interpreter to note the signal."""
