"""One small Spark program of a cell, run by the cell's own interpreter: `python -m tests.matrix.probe WHAT JSON`.

It prints what it saw as JSON in its last line; who started it asserts.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def session() -> SparkSession:
    """A small Spark in this process."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.shuffle.partitions", "2")
    made = builder.config("spark.driver.memory", "768m").getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def values(frame: DataFrame) -> list[str]:
    """Return the values as text, sorted."""
    return sorted(row.v for row in frame.selectExpr("cast(value as string) v").collect())


def run_stream(spark: SparkSession, options: dict[str, str], checkpoint: str, source: str) -> list[str]:
    """Read what is there and end; returns the rows of this run."""
    rows: list[str] = []
    frame = spark.readStream.format(source).options(**options).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(values(batch)))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(rows)


def stream(spark: SparkSession, *, options: dict[str, str], checkpoint: str, source: str) -> Any:
    """Read a topic as a bounded stream."""
    return run_stream(spark, options, checkpoint, source)


def older(spark: SparkSession, *, options: dict[str, str]) -> Any:
    """Read as a batch, and say what a stream, and a batch that does not say its end, are answered."""
    refused = []
    for reader in (spark.readStream, spark.read):
        try:
            reader.format("kafka-discovery").options(**options).load()
        except Exception as error:  # noqa: BLE001 - what a user sees of it is the question
            refused.append(str(error))
    ended = spark.read.format("kafka-discovery").options(**options, endingOffsets="latest").load()
    return {"refused": refused, "rows": values(ended)}


def run_query(spark: SparkSession, *, servers: str, topic: str, state_dir: str, checkpoint: str) -> Any:
    """Read with Spark's own source, built and supervised by `run_query`."""
    from discovery.spark.supervise import run_query as supervised  # noqa: PLC0415 - of this cell alone

    rows: list[str] = []

    def build(bootstrap: Any) -> Any:
        frame = spark.readStream.format("kafka").options(**bootstrap.kafka_options).option("subscribe", topic)
        writer = frame.option("startingOffsets", "earliest").load().writeStream
        writer = writer.foreachBatch(lambda batch, _: rows.extend(values(batch)))
        return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()

    report = supervised(build, servers, state_dir=Path(state_dir))
    return {"outcome": report.outcome.value, "failures": report.failures, "rows": sorted(rows)}


if __name__ == "__main__":
    spark = session()
    seen = {each.__name__: each for each in (stream, older, run_query)}[sys.argv[1]](spark, **json.loads(sys.argv[2]))
    version = spark.version
    spark.stop()
    print(json.dumps({"spark": version, "python": sys.version.split()[0], "seen": seen}))  # noqa: T201 - its answer
