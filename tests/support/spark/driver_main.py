"""A Spark driver as a process of its own, commanded by JSON lines on its standard input.

A driver of one's own can be killed, has a log that can be searched, and takes any master.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from discovery.spark.launch.queries import StartedQuery
from discovery.spark.sink import with_lanes


class Driver:
    """Starts and watches queries; one command at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: dict[str, StartedQuery] = {}

    def obey(self, command: dict[str, Any]) -> Any:
        action: Callable[..., Any] = getattr(self, f"do_{command.pop('do')}")
        return action(**command)

    def do_start(
        self,
        *,
        name: str,
        source: str,
        options: dict[str, str],
        checkpoint: str,
        rows: str,
        trigger: str | None,
        shape: str,
    ) -> None:
        frame = self._spark.readStream.format(source).options(**options).load()
        writer = _shaped(frame, shape).writeStream.option("checkpointLocation", checkpoint)
        if shape == "parquet":
            writer = writer.format("parquet").option("path", f"{checkpoint}.parquet")
        else:
            writer = writer.foreachBatch(_keeper(Path(rows), actions=2 if shape == "twice" else 1))
            writer = writer.outputMode("update" if shape == "count" else "append")
        timed = writer.trigger(processingTime=trigger) if trigger else writer.trigger(availableNow=True)
        self._queries[name] = _started(timed)

    def do_copy(
        self,
        *,
        name: str,
        lanes: int,
        source: dict[str, str],
        sink: dict[str, str],
        checkpoint: str,
        by: str = "key",
    ) -> None:
        """Start a query that copies a topic through the exactly-once sink."""
        frame = self._spark.readStream.format("kafka-discovery").options(**source).load().select("key", "value")
        writer = with_lanes(frame, by, lanes=lanes).writeStream.format("kafka-discovery").options(**sink)
        writer = writer.option("lanes", lanes).option("checkpointLocation", checkpoint)
        self._queries[name] = _started(writer.trigger(processingTime="200 milliseconds"))

    def do_status(self, name: str) -> dict[str, Any]:
        query = self._queries[name].current()
        failure = query.exception()
        return {
            "active": query.isActive,
            "failure": _message(failure),
            "planned": (progress := query.lastProgress) is not None and progress["sources"][0]["endOffset"] is not None,
        }

    def do_parquet(self, path: str) -> list[tuple[Any, ...]]:
        """Read what a parquet sink holds, as its own log says."""
        return [tuple(row) for row in self._spark.read.parquet(path).collect()]

    def do_stop(self, name: str) -> None:
        self._queries[name].current().stop()

    def do_tasks(self) -> int:
        """Count the tasks that occupy slots."""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(stage.numActiveTasks for stage in stages if stage)

    def do_executors(self) -> int:
        """Count the executor processes apart from the driver."""
        context = self._spark.sparkContext._jsc.sc()
        return len(context.statusTracker().getExecutorInfos()) - 1


def _started(writer: DataStreamWriter) -> StartedQuery:
    """Start a query as our jobs do: a machine busy with tests is too slow for Spark now and then."""
    return StartedQuery(writer.start, lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201 - its log


def _shaped(frame: DataFrame, shape: str) -> DataFrame:
    """Rows as they are (also `twice` and `parquet`), a union with itself, or a running count by partition."""
    if shape == "count":
        counted = frame.groupBy("topic", "partition").count()
        return counted.selectExpr("topic", "partition", "count as offset", "cast(null as string) as value")
    chosen = frame.selectExpr("topic", "partition", "offset", "cast(value as string) as value")
    return chosen.union(chosen) if shape == "union" else chosen


def _keeper(rows: Path, *, actions: int = 1) -> Callable[[DataFrame, int], None]:
    """Keep the rows of each batch, one line for each action; files hold it up between plan and tasks, or at its end."""

    def keep(batch: DataFrame, batch_id: int) -> None:
        _append(rows, {"begun": batch_id})
        _while_exists(rows.with_suffix(".hold"))
        for _ in range(actions):
            _append(rows, {"batch": batch_id, "rows": [tuple(row) for row in batch.collect()]})
        _while_exists(rows.with_suffix(".linger"))

    return keep


def _while_exists(path: Path) -> None:
    while path.exists():
        time.sleep(0.02)


def _append(path: Path, line: object) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _message(failure: StreamingQueryException | None) -> str | None:
    return None if failure is None else str(failure)


def _session(settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName("kafka-discovery faults")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def main() -> None:
    """Serve commands until the input ends."""
    # Spark's JVM and its workers write to our standard output: the answers go elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = _session(json.loads(sys.argv[1]))
    driver = Driver(spark)
    print(json.dumps({"value": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = {"value": driver.obey(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - the test that asked gets it
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
