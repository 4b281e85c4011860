"""Blocking work away from the event loop, on daemon threads: a call that hangs must not hold up the process's end."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from discovery.config.logs import bound
from discovery.config.threads import in_thread
from discovery.core.plural import counted
from discovery.service.api.responses import ApiError

_T = TypeVar("_T")
_MOST = 16


class Workers:
    """Questions that do ask Kafka, a bounded number at a time for each cluster. Event loop's thread only."""

    def __init__(self, limit: int = _MOST) -> None:
        """Allow each cluster `limit` calls at a time: those to one that hangs must not use up another's."""
        self._limit = limit
        self._running = Counter[str]()

    async def run(self, cluster: str, work: Callable[[], _T]) -> _T:
        """Run and return, or raise what it raised.

        Raises:
            ApiError: 503, too many run already.

        Runs: event loop; does not block it.
        """
        if self._running[cluster] >= self._limit:
            text = f"cluster {cluster} has {counted(self._limit, 'question')} on the way already; try again later"
            raise ApiError(503, text)
        self._running[cluster] += 1
        # One whose caller hung up still runs, and counts until it has ended.
        with bound(cluster=cluster):
            task = asyncio.ensure_future(in_thread(work))
        task.add_done_callback(partial(self._ended, cluster))
        return await asyncio.shield(task)

    def _ended(self, cluster: str, task: asyncio.Task[_T]) -> None:
        self._running[cluster] -= 1
        if not task.cancelled():
            task.exception()  # whoever waited has heard of it, or has left


class SingleFlight:
    """One call for all that ask at the same time. Event loop's thread only."""

    def __init__(self, workers: Workers) -> None:
        """Run on these workers."""
        self._workers = workers
        self._flying: dict[str, asyncio.Task[object]] = {}
        self.started = 0

    async def run(self, cluster: str, work: Callable[[], object]) -> object:
        """Join the call on its way to this cluster, or start it."""
        task = self._flying.get(cluster)
        if task is None:
            self.started += 1
            task = self._flying[cluster] = asyncio.ensure_future(self._workers.run(cluster, work))
            task.add_done_callback(partial(self._landed, cluster))
        return await asyncio.shield(task)

    def _landed(self, cluster: str, task: asyncio.Task[object]) -> None:
        self._flying.pop(cluster, None)
        if not task.cancelled():
            task.exception()  # all who waited may have left before it failed
