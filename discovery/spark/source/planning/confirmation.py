"""Confirms beside planning that cut partitions still reach as far: a dead broker may hold the answer up for seconds."""

import threading
from collections.abc import Callable
from dataclasses import replace

from discovery.core.errors import DiscoveryError, KafkaUnreachableError
from discovery.feed.base import FeedView
from discovery.spark.source.planning.offsets import Offsets

_Work = Callable[[], None]
_QUICK_SECONDS = 0.05
"""A living leader answers within the look that asks; the next one may be a long trigger later."""


def _on_a_thread(work: _Work) -> None:
    thread = threading.Thread(target=work, name="confirmation", daemon=True)
    thread.start()
    thread.join(_QUICK_SECONDS)


class Confirmation:
    """One question at a time, and its answer. One thread asks and looks."""

    def __init__(self, refresh: Callable[[float], FeedView], aside: Callable[[_Work], None] = _on_a_thread) -> None:
        """Remember whom to ask: the feed's `refresh`, performed by `aside`."""
        self._refresh = refresh
        self._aside = aside
        self._asked: Offsets = {}
        self._is_busy = False
        self._answer: FeedView | DiscoveryError | None = None

    def ask(self, cut_ends: Offsets, wait_seconds: float) -> None:
        """Ask for a fresh answer about cut partitions, unless a question is under way.

        Args:
            cut_ends: Where their cut ranges had been planned to end: tells this cut from a later one.
            wait_seconds: How long the answer may take.

        Runs: driver; blocks <= 0.05 s. The thread that asks lives for wait_seconds at most.
        """
        if self._is_busy:
            return
        self._asked, self._answer, self._is_busy = cut_ends, None, True

        def work() -> None:
            try:
                self._answer = self._refresh(wait_seconds)
            except KafkaUnreachableError:
                pass  # whoever still needs it asks again
            except DiscoveryError as error:
                self._answer = error
            finally:
                self._is_busy = False

        self._aside(work)

    def seen(self, cut_ends: Offsets, view: FeedView) -> FeedView | None:
        """Return the view with what was answered about these partitions, once; None: nothing was, yet.

        One that is parked by now stays as it is: its answer is from before.

        Raises:
            DiscoveryError: the feed cannot go on.

        Runs: driver; from memory.
        """
        if self._is_busy or self._answer is None or not cut_ends.items() <= self._asked.items():
            return None
        answer, self._answer = self._answer, None
        if isinstance(answer, DiscoveryError):
            raise answer
        parked = {tp for tp in cut_ends if (known := view.partitions.get(tp)) and known.parked_reason is not None}
        rows = {tp: row for tp, row in view.partitions.items() if tp in parked or tp not in cut_ends}
        fresh = {tp: row for tp, row in answer.partitions.items() if tp in cut_ends and tp not in parked}
        return replace(view, partitions=rows | fresh)
