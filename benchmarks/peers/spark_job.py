"""One Spark query that notes every row it finished; starts again on its checkpoint a second after it died.

`python -m benchmarks.peers.spark_job FORMAT TOPIC ROWS_FOLDER CHECKPOINT [OPTION=VALUE…]`. Says on standard output when
a query is started and what one died of. Flink restarts by itself; so that both have the same, this does too.
"""

import sys
import time
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.harness import NATIVE, spark_session
from benchmarks.peers.reported import BREAK

_AGAIN_SECONDS = 1.0
_TRIGGER = "200 milliseconds"


class Job:
    """Starts queries over one topic."""

    def __init__(self, spark: SparkSession, source: str, topic: str, rows: Path, checkpoint: str) -> None:
        """Remember them."""
        self._spark, self._source, self._topic, self._checkpoint = spark, source, topic, checkpoint
        self._rows = rows / f"rows-{time.time_ns()}"

    def start(self, options: dict[str, str]) -> StreamingQuery:
        """Start a query on the checkpoint."""
        reader = self._spark.readStream.format(self._source).options(**options)
        frame = reader.option("subscribe", self._topic).option("startingOffsets", "earliest").load()
        writer = frame.writeStream.foreachBatch(self._note).trigger(processingTime=_TRIGGER)
        return writer.option("checkpointLocation", self._checkpoint).start()

    def _note(self, batch: DataFrame, _: int) -> None:
        rows = batch.selectExpr("partition", "offset", "decode(substring(value, 1, 1), 'UTF-8')").collect()
        now = time.time_ns() // 1_000_000
        with self._rows.open("a") as file:
            file.write("".join(f"{partition} {offset} {mark} {now}\n" for partition, offset, mark in rows))


def say(what: str) -> None:
    """Tell the harness."""
    print(f"{time.time_ns() // 1_000_000} {what}", flush=True)


def main(source: str, topic: str, rows: str, checkpoint: str, *options: str) -> None:
    """Run until killed."""
    with spark_session(2, native=source == NATIVE) as spark:
        job = Job(spark, source, topic, Path(rows), checkpoint)
        while True:
            say("start")
            try:
                query = job.start(dict(option.split("=", 1) for option in options))
                query.awaitTermination()
            except PySparkException as error:
                say("died " + BREAK.join(str(error).splitlines())[:20_000])
            time.sleep(_AGAIN_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
