"""Starts a query again that died before it began, because its source's Python process was too slow for Spark.

The process that holds a streaming reader has 10 s to import PySpark and call back, and no setting changes that. Where
a driver gets little of a processor the query dies for it, before any batch: starting it again loses and repeats
nothing, and the second time most of what it needs is in the page cache.
"""

import threading
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

STARTS = 5
"""Enough for a driver with a tenth of a core; an interpreter that lacks a package fails a minute later for good."""
_SIGNS = ("Python worker failed to connect back", "Current State: INITIALIZING")
_LOOK_SECONDS = 0.05


def start_query(
    start: Callable[[], StreamingQuery], say: Callable[[str], None], stopping: threading.Event | None = None
) -> StreamingQuery:
    """Start a query and wait until its source is there, starting it again while it dies of slowness alone.

    Args:
        start: Builds and starts it; called 1..5 times.
        say: Takes one line for each start that died.
        stopping: Set it to have the query as it is.

    Returns:
        The query: active, stopped, or dead of something else or of the last start.

    Runs: driver; blocks until the source's process has called back, <= 5 x 10 s and what Spark's own start takes.
    """
    over = stopping or threading.Event()
    for number in range(1, STARTS + 1):
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing") and not over.wait(_LOOK_SECONDS):
            pass
        failure = query.exception()
        if failure is None or number == STARTS or over.is_set() or not died_of_slowness(str(failure)):
            break
        say(
            f"the source's Python process did not call back within Spark's 10 s; no batch had begun, so the query is"
            f" started again (start {number + 1} of {STARTS}); if that repeats, give the driver more processor"
        )
    return query


def died_of_slowness(failure: str) -> bool:
    """Tell whether a query died before its first batch because a Python process did not call back in time.

    Args:
        failure: The text of its `StreamingQueryException`.

    Runs: anywhere (pure).
    """
    return all(sign in failure for sign in _SIGNS)
