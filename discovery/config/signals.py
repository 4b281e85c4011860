"""The signals that ask a process to stop, as something may be done about them."""

import signal
from _thread import start_new_thread
from collections.abc import Callable
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_stop_signal(act: Callable[[int], object]) -> None:
    """Call `act` with the number of each SIGTERM or SIGINT from now on, on a thread of its own.

    Never in the handler: it runs in the midst of the main thread, which may hold the very lock that `act` wants
    (`Event.wait` holds the event's for a moment), and would wait for itself for ever. Nor by `Thread.start`, which
    takes locks too.

    Runs: main thread.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        start_new_thread(act, (number,))

    for number in STOP_SIGNALS:
        signal.signal(number, handle)
