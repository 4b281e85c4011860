"""A `foreachBatch` function in a query that is being stopped.

Spark cancels the jobs of a batch in flight and takes what follows for the stop it is, if the text of the error says so.
The text that py4j makes of a cancelled job runs to thousands of characters, and Spark looks through it with an
expression that recurses once per character: the stream thread then ends in a StackOverflowError.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from discovery.spark.sink.spark_writers import QUERY_ID


class BatchInterruptedError(Exception):
    """The query is being stopped; the next start writes this batch again."""

    def __init__(self) -> None:
        # What `StreamExecution.PROXY_ERROR` looks for, without a text between its two ends.
        super().__init__("py4j.protocol.Py4JJavaError: An error occurred while calling java.lang.InterruptedException")


def stoppable(write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Return the function for `foreachBatch`: whatever it raises in a query that is being stopped is that stop.

    Args:
        write: Of (batch, batch id).

    Runs: driver; the function on Spark's callback thread, as long as `write`.
    """

    @wraps(write)
    def call(batch: DataFrame, batch_id: int) -> None:
        try:
            write(batch, batch_id)
        except Exception:
            if _is_stopping(batch):
                raise BatchInterruptedError from None
            raise

    return call


def _is_stopping(batch: DataFrame) -> bool:
    """Asked of what all sessions share: a batch comes with a copy of the session, which knows no query."""
    session = batch.sparkSession
    query_id = session.sparkContext.getLocalProperty(QUERY_ID)
    try:
        uuid: Any = session.sparkContext._jvm.java.util.UUID.fromString(query_id)  # type: ignore[union-attr]  # noqa: SLF001 - no public way
        query: Any = session._jsparkSession.sharedState().activeStreamingQueries().get(uuid)  # noqa: SLF001
        return query is not None and not query.isActive()
    except Py4JError:
        return False
