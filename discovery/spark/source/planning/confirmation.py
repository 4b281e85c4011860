"""Confirms beside planning that cut partitions still reach as far: a dead broker may hold an answer up for seconds.

The loop asks each leader all the time, so its answers are what counts. A service's loop does not tell when it asked
whom: it is asked for fresh answers of all.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import replace

from discovery.core.errors import KafkaUnreachableError
from discovery.core.model import TopicPartition
from discovery.feed.base import FeedView, PartitionView
from discovery.spark.source.planning.offsets import Offsets

_Work = Callable[[], None]
UNCONFIRMED = "it was cut, and whether it still reaches as far is not confirmed yet"
"""Why it is parked."""
_QUICK_SECONDS = 0.05
"""A living leader answers within the look that asks; the next one may be a long trigger later."""


def _on_a_thread(work: _Work) -> None:
    thread = threading.Thread(target=work, name="confirmation", daemon=True)
    thread.start()
    thread.join(_QUICK_SECONDS)


class Confirmation:
    """What was answered since a partition was cut. One thread asks and looks."""

    def __init__(self, refresh: Callable[[float], FeedView], aside: Callable[[_Work], None] = _on_a_thread) -> None:
        """Remember whom to ask: the feed's `refresh`, performed by `aside`."""
        self._refresh = refresh
        self._aside = aside
        self._since: dict[tuple[TopicPartition, int], float] = {}
        """When each cut was seen first, by partition and planned end: what was asked before does not count."""
        self._asked: Offsets = {}
        self._is_busy = False
        self._answer: FeedView | Exception | None = None

    def note(self, cut_ends: Offsets, now: float) -> None:
        """Hear at each plan what is cut, nothing included: the same end may be cut twice.

        Args:
            cut_ends: Where cut ranges had been planned to end that are not read on yet.
            now: Monotonic seconds.
        """
        self._since = {cut: self._since.get(cut, now) for cut in cut_ends.items()}

    def ask(self, cut_ends: Offsets, wait_seconds: float) -> None:
        """Ask for a fresh answer about cut partitions, unless a question is under way.

        Args:
            cut_ends: See `note`.
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
            except Exception as error:  # noqa: BLE001 - raised by whoever looks
                self._answer = error
            finally:
                self._is_busy = False

        try:
            self._aside(work)
        except RuntimeError:
            self._is_busy = False  # no thread can be started now; whoever still needs it asks again

    def seen(self, cut_ends: Offsets, view: FeedView) -> FeedView | None:
        """Return the view with what was answered about these partitions, once; None: nothing was, yet.

        One that is parked by now stays as it is: its answer is from before. One that was cut since is parked.

        Raises:
            Exception: as `refresh` did; the feed cannot go on.

        Runs: driver; from memory.
        """
        if view.answered:
            self.forget()
            covered = {tp for (tp, _), since in self._since.items() if _was_asked(tp, view, since)}
            return _with_answer(view, cut_ends, covered, view) if covered else None
        covered = {tp for tp, _ in cut_ends.items() & self._asked.items()}
        if self._is_busy or self._answer is None or not covered:
            return None
        answer, self._answer = self._answer, None
        if isinstance(answer, Exception):
            raise answer
        return _with_answer(view, cut_ends, covered, answer)

    def forget(self) -> None:
        """Let what was asked for count no more: it was answered in another way."""
        self._asked, self._answer = {}, None


def _with_answer(view: FeedView, cut_ends: Offsets, covered: Collection[TopicPartition], answer: FeedView) -> FeedView:
    rows = dict(view.partitions)
    for tp in cut_ends:
        known, row = rows.pop(tp, None), answer.partitions.get(tp)
        if known is not None and (tp not in covered or known.parked_reason is not None):
            rows[tp] = replace(known, parked_reason=known.parked_reason or UNCONFIRMED)
        elif row is not None:
            rows[tp] = known if known is not None and _is_newer(known, row) else row
    return replace(view, partitions=rows)


def _was_asked(tp: TopicPartition, view: FeedView, since: float) -> bool:
    row = view.partitions.get(tp)
    if row is None or row.leader_id is None or row.parked_reason is not None:
        return False
    asked_at, about = view.answered.get(row.leader_id, (float("-inf"), ()))
    return asked_at > since and tp in about


def _is_newer(known: PartitionView, row: PartitionView) -> bool:
    return known.topic_id == row.topic_id and (known.high_watermark or 0) >= (row.high_watermark or 0)
