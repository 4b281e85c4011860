"""Blocking work away from an event loop, on daemon threads: a call that hangs must not hold up the process's end."""

import asyncio
import contextlib
import contextvars
import threading
import traceback
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
            error = _released(caught)
        with contextlib.suppress(RuntimeError):  # the event loop may have ended first
            loop.call_soon_threadsafe(settle, result, error)

    context = contextvars.copy_context()  # what is on the caller's log lines is on the thread's
    threading.Thread(target=context.run, args=(thread,), name="kafka-discovery work", daemon=True).start()
    return await done


def _released(error: Exception) -> Exception:
    """Let go of what the failed calls held, a client of Kafka for one: it would live as long as the error does.

    Whoever waits keeps the error in futures, tasks and frames of its own, until the garbage collector comes by.
    """
    assert error.__traceback__ is not None  # noqa: S101 - it was raised
    error.__traceback__ = error.__traceback__.tb_next  # our caller's frame, which holds the error
    chain: list[BaseException] = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    for each in chain:
        traceback.clear_frames(each.__traceback__)
    return error
