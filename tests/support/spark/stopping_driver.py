"""Stops a `foreachBatch` query in mid-batch, again and again, as the jobs do: `… FOLDER ROUNDS`."""

import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.streaming.query import StreamingQuery

from discovery.spark.jobs.running import await_end, make_session
from discovery.spark.sink.stops import stoppable
from tests.support.helpers import eventually

BATCH_SECONDS = 60.0
BEGUN = "Spark has started\n"
"""What follows it on stderr was not there before."""


def main(folder: Path, rounds: int) -> None:
    """Print a line for each query that ended without an error."""
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text("a record\n")
    session = make_session("stops", master="local[2]", settings=(), checkpoint=str(folder))
    sys.stderr.write(BEGUN)
    for number in range(rounds):
        sys.stdout.write(f"round {number}: {stopped(session, folder, number)}\n")
    session.stop()


def stopped(session: SparkSession, folder: Path, number: int) -> str:
    """Stop a query whose batch sleeps in a task; return what it ended with."""
    stopping = threading.Event()
    queries: list[StreamingQuery] = []

    def in_a_task() -> bool:
        return bool(session.sparkContext.statusTracker().getActiveStageIds())

    def stop_in_mid_batch() -> None:
        eventually(in_a_task, BATCH_SECONDS, "a running task")
        stopping.set()

    def write(batch: DataFrame, _batch_id: int) -> None:
        threading.Thread(target=stop_in_mid_batch).start()
        asleep = F.expr("java_method('java.lang.Thread', 'sleep', 60000L)")
        batch.select(asleep.alias("asleep")).write.mode("overwrite").parquet(str(folder / f"out-{number}"))

    def start() -> StreamingQuery:
        lines = session.readStream.text(str(folder / "in"))
        checkpoint = str(folder / f"checkpoint-{number}")
        query = lines.writeStream.foreachBatch(stoppable(write)).option("checkpointLocation", checkpoint).start()
        queries.append(query)
        return query

    await_end(session, start, stopping)
    return str(queries[-1].exception())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
