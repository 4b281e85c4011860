"""Blocking work away from an event loop, on daemon threads: a call that hangs must not hold up the process's end."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def in_thread(work: Callable[[], _T]) -> _T:
    """Run on a thread of its own and return, or raise what it raised.

    `asyncio.to_thread` would not do: its threads are waited for at the end, for minutes.

    Runs: event loop; does not block it.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def thread() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as caught:  # noqa: BLE001 - handed to whoever waits
            error = caught
        with contextlib.suppress(RuntimeError):  # the event loop may have ended first
            loop.call_soon_threadsafe(settle, result, error)

    context = contextvars.copy_context()  # what is on the caller's log lines is on the thread's
    threading.Thread(target=context.run, args=(thread,), name="kafka-discovery work", daemon=True).start()
    return await done
