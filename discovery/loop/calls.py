"""Calls that may hang: each on a thread of its own, one at a time per key, abandoned when overdue.

Python cannot stop a thread, and some librdkafka calls have paths without a bound. A call that is overdue is given up:
its answer, should it ever come, is dropped, and its thread is counted until it ends. At the cap no new call starts.
"""

import contextvars
import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from discovery.core.answers import StuckCall
from discovery.core.budget import Deadline
from discovery.core.clock import Clock

Key = TypeVar("Key")
Value = TypeVar("Value")
_GIVE_UP_LATER_SECONDS = 5.0
"""A waiter leaves at its deadline; its calls count as stuck only later."""
_numbers = itertools.count()


class Calls(Protocol):
    """Starts calls for the loop; tests use an inline twin."""

    def start(self, key: str, work: Callable[[], object], *, limit_seconds: float) -> bool:
        """Run `work` unless a call with this key is still running or too many are stuck; tell whether it started."""
        ...

    def overdue(self) -> tuple[StuckCall, ...]:
        """Give up the calls that ran out of time since the last question, and name them."""
        ...


@dataclass(slots=True)
class _Call:
    key: str
    started_at: float
    give_up_at: float
    abandoned: bool = False


class ThreadedCalls:
    """The real one: daemon threads, so that a stuck call cannot hold up the end of the process. Thread-safe."""

    def __init__(self, clock: Clock, *, max_stuck: int, on_error: Callable[[str, Exception], None]) -> None:
        """Start nothing yet; `on_error` hears of exceptions that `work` let out, on the worker's thread."""
        self._clock = clock
        self._max_stuck = max_stuck
        self._on_error = on_error
        self._lock = threading.Lock()
        self._current: dict[str, _Call] = {}
        self._stuck: set[int] = set()
        self.stuck_total = 0

    @property
    def stuck(self) -> int:
        """Abandoned threads that have not ended."""
        return len(self._stuck)

    def start(self, key: str, work: Callable[[], object], *, limit_seconds: float) -> bool:
        """See `Calls.start`."""
        now = self._clock.monotonic()
        with self._lock:
            if key in self._current or len(self._stuck) >= self._max_stuck:
                return False
            call = _Call(key, now, now + limit_seconds)
            self._current[key] = call
        run = contextvars.copy_context().run  # what is on the caller's log lines is on the call's
        thread = threading.Thread(target=run, args=(self._run, call, work), name=f"kafka-discovery {key}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the process may have no more threads
            with self._lock:
                self._current.pop(key, None)
            self._on_error(key, error)
            return False
        return True

    def overdue(self) -> tuple[StuckCall, ...]:
        """See `Calls.overdue`."""
        now = self._clock.monotonic()
        with self._lock:
            late = [call for call in self._current.values() if now >= call.give_up_at]
            for call in late:
                call.abandoned = True
                del self._current[call.key]
                self._stuck.add(id(call))
                self.stuck_total += 1
        return tuple(StuckCall(name=call.key, seconds=now - call.started_at) for call in late)

    def _run(self, call: _Call, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a worker's death must be heard, not seen on stderr
            self._on_error(call.key, error)
        finally:
            with self._lock:
                if call.abandoned:
                    self._stuck.discard(id(call))
                else:
                    self._current.pop(call.key, None)


def gather(
    calls: Calls, work: Mapping[Key, Callable[[], Value]], *, name: str, deadline: Deadline, clock: Clock
) -> dict[Key, Value]:
    """Run calls side by side and return what came back in time; a late or failed one is absent.

    Runs: a waiter's thread; blocks until the last answer or the deadline.
    """
    results: dict[Key, Value] = {}
    done = threading.Semaphore(0)
    number = next(_numbers)

    def run(key: Key, one: Callable[[], Value]) -> None:
        try:
            results[key] = one()
        finally:
            done.release()

    started = 0
    for index, (key, one) in enumerate(work.items()):
        limit = deadline.remaining(clock.monotonic()) + _GIVE_UP_LATER_SECONDS
        started += calls.start(f"{name} {number}.{index}", partial(run, key, one), limit_seconds=limit)
    for _ in range(started):
        if not done.acquire(timeout=deadline.remaining(clock.monotonic())):
            break
    return dict(results)
