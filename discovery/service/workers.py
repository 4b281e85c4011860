"""Blocking work away from the event loop, on daemon threads: a call that hangs must not hold up the process's end."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from discovery.service.respond import ApiError

_T = TypeVar("_T")
_MOST = 16


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

    threading.Thread(target=thread, name="kafka-discovery work", daemon=True).start()
    return await done


class Workers:
    """Questions that do ask Kafka, a bounded number at a time. Event loop's thread only."""

    def __init__(self, limit: int = _MOST) -> None:
        """Allow `limit` calls at a time."""
        self._limit = limit
        self._running = 0

    async def run(self, work: Callable[[], _T]) -> _T:
        """Run and return, or raise what it raised.

        Raises:
            ApiError: 503, too many run already.

        Runs: event loop; does not block it.
        """
        if self._running >= self._limit:
            raise ApiError(503, f"{self._limit} questions to Kafka are on their way already; try again later")
        self._running += 1
        # One whose caller hung up still runs, and counts until it has ended.
        task = asyncio.ensure_future(in_thread(work))
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[_T]) -> None:
        self._running -= 1
        if not task.cancelled():
            task.exception()  # whoever waited has heard of it, or has left


class SingleFlight:
    """One call for all that ask at the same time. Event loop's thread only."""

    def __init__(self, workers: Workers) -> None:
        """Run on these workers."""
        self._workers = workers
        self._flying: dict[str, asyncio.Task[object]] = {}
        self.started = 0

    async def run(self, key: str, work: Callable[[], object]) -> object:
        """Join the call on its way under this key, or start it."""
        task = self._flying.get(key)
        if task is None:
            self.started += 1
            task = self._flying[key] = asyncio.ensure_future(self._workers.run(work))
            task.add_done_callback(lambda ended: self._landed(key, ended))
        return await asyncio.shield(task)

    def _landed(self, key: str, task: asyncio.Task[object]) -> None:
        self._flying.pop(key, None)
        if not task.cancelled():
            task.exception()  # all who waited may have left before it failed
