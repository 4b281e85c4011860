"""Confirms beside planning that cut partitions still reach as far: a dead broker may hold the answer up for seconds."""

import threading
from collections.abc import Callable
from dataclasses import replace

from discovery.core.errors import KafkaUnreachableError
from discovery.core.model import TopicPartition
from discovery.feed.base import FeedView

_Work = Callable[[], None]


def _on_a_thread(work: _Work) -> None:
    threading.Thread(target=work, name="confirmation", daemon=True).start()


class Confirmation:
    """One question at a time, and its answer. One thread asks and looks."""

    def __init__(self, refresh: Callable[[float], FeedView], aside: Callable[[_Work], None] = _on_a_thread) -> None:
        """Remember whom to ask: the feed's `refresh`, performed by `aside`."""
        self._refresh = refresh
        self._aside = aside
        self._asked = frozenset[TopicPartition]()
        self._is_busy = False
        self._answer: FeedView | None = None

    def ask(self, partitions: frozenset[TopicPartition], wait_seconds: float) -> None:
        """Ask for a fresh answer about partitions, unless a question is under way.

        Runs: driver; does not block. The thread that asks lives for wait_seconds at most.
        """
        if self._is_busy:
            return
        self._asked, self._answer, self._is_busy = partitions, None, True

        def work() -> None:
            try:
                self._answer = self._refresh(wait_seconds)
            except KafkaUnreachableError:
                pass  # whoever still needs it asks again
            finally:
                self._is_busy = False

        self._aside(work)

    def seen(self, partitions: frozenset[TopicPartition], view: FeedView) -> FeedView | None:
        """Return the view with what was answered about these partitions, once; None: nothing was, yet.

        One that is parked by now stays as it is: its answer is from before.

        Runs: driver; from memory.
        """
        if self._is_busy or self._answer is None or not partitions <= self._asked:
            return None
        fresh, self._answer = self._answer.partitions, None
        parked = {tp for tp in partitions if (known := view.partitions.get(tp)) and known.parked_reason is not None}
        rows = {tp: row for tp, row in view.partitions.items() if tp in parked or tp not in partitions}
        return replace(view, partitions=rows | {tp: fresh[tp] for tp in partitions - parked if tp in fresh})
