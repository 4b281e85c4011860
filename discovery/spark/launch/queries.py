"""Starts a query again that died before it began, because its source's Python process was too slow for Spark.

The process that holds a streaming reader has 10 s to import PySpark and call back, and no setting changes that. Where
a driver gets little of a processor the query dies for it, before any batch: starting it again loses and repeats
nothing, and the second time most of what it needs is in the page cache.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

STARTS = 5
"""Enough for a driver with a tenth of a core; an interpreter that lacks a package fails a minute later for good."""
TOO_SLOW = "Python worker failed to connect back"
_SIGNS = (TOO_SLOW, "Current State: INITIALIZING")


class StartedQuery:
    """A query, and how to start it again. Ask for it again and again: `current()` is the one to look at."""

    def __init__(self, start: "Callable[[], StreamingQuery]", say: Callable[[str], None]) -> None:
        """Start it.

        Args:
            start: Builds and starts the query; called 1..5 times.
            say: Takes one line for each start that died.

        Runs: driver; blocks as long as `start`.
        """
        self._start, self._say = start, say
        self._query = start()
        self._starts = 1

    def current(self) -> "StreamingQuery":
        """Return the query, started again first if it died of slowness alone; dead after the last start.

        Runs: driver, as often as its state is looked at.
        """
        failure = None if self._query.isActive else self._query.exception()
        if failure is not None and self._starts < STARTS and died_of_slowness(str(failure)):
            self._starts += 1
            self._say(
                f"the source's Python process did not call back within Spark's 10 s; no batch had begun, so the query"
                f" is started again (start {self._starts} of {STARTS}); if that repeats, give the driver more processor"
            )
            self._query = self._start()
        return self._query


def died_of_slowness(failure: str) -> bool:
    """Tell whether a query died before its first batch because a Python process did not call back in time.

    Args:
        failure: The text of its `StreamingQueryException`.

    Runs: anywhere (pure).
    """
    return all(sign in failure for sign in _SIGNS)
