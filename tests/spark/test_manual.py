"""Every page with Python in it, walked through from top to bottom: its snippets and its commands, on one stage."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import eventually, numbered, produce
from tests.support.manual import long_run
from tests.support.manual.markdown import Block, pages
from tests.support.manual.stage import WITH_SPARK, Stage, is_shell, staged, to_play

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.timeout(1200),  # a page may start Spark six times
    pytest.mark.skipif(not long_run(), reason="minutes long: make test-docs"),
]

RECORDS = 12
SECONDS = 60.0
Names = dict[str, Any]


def _orders(stage: Stage, spark: SparkSession) -> Names:
    return {"orders": _stream(stage, spark).select("key", "value")}


def _visits(stage: Stage, spark: SparkSession) -> Names:
    visits = _stream(stage, spark).groupBy("key").count()
    return {
        **_orders(stage, spark),
        "visits": visits,
        "as_records": lambda batch: batch.selectExpr("key", "CAST(count AS STRING) AS value"),
        "report": spark.createDataFrame([("a", "1"), ("b", "2")], ["key", "value"]),
    }


def _finished(stage: Stage, spark: SparkSession) -> Names:
    _drain(_stream(stage, spark), Path(stage.adapted("/data/checkpoints/dau")))
    return {}


GIVEN: dict[str, Callable[[Stage, SparkSession], Names]] = {
    "README.md": _orders,
    "docs/how-to/sink.md": _visits,
    "docs/how-to/take-over.md": _finished,
}
"""What a page takes for granted: frames, functions, a checkpoint."""


def _stream(stage: Stage, spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("kafka-discovery").option("subscribe", f"{stage.topic}-events")
    reader = reader.option("startingOffsets", "earliest")
    return reader.option("kafka.bootstrap.servers", stage.cluster.bootstrap_servers).load()


def _drain(frame: DataFrame, checkpoint: Path) -> int:
    """Read a stream to its present end and count its rows."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(int(SECONDS)), "the query did not end in time"
    return sum(int(progress["numInputRows"]) for progress in query.recentProgress)


def walked() -> list[Path]:
    """Return the pages with Python, and those that need what Spark writes."""
    found = {page: to_play(page, long=long_run()) for page in pages()}
    return [page for page, blocks in found.items() if not all(map(is_shell, blocks)) or page in WITH_SPARK]


def _type(block: Block, names: Names, stage: Stage) -> None:
    """Run a Python block: a stream it makes is read to its end, a query it starts must finish a batch with rows."""
    text, spark = stage.adapted(block.text), names["spark"]
    if "spark" not in text and not any(name in text for name in names):
        subprocess.run([sys.executable, "-c", text], check=True, timeout=SECONDS, env=stage.environment())
        return
    exec(compile(text, block.place, "exec"), names)  # noqa: S102 - our own page
    if "events" in names:
        latest = "startingOffsets" not in text
        rows = _drain(names.pop("events"), stage.folder / f"checkpoint-{block.line}")
        assert rows == (0 if latest else RECORDS), block.place
    for query in spark.streams.active:
        eventually(partial(_has_worked, query), SECONDS, f"{block.place}: a batch with rows")
        query.stop()


def _has_worked(query: StreamingQuery) -> bool:
    assert query.exception() is None, query.exception()
    return any(progress["numInputRows"] for progress in query.recentProgress)


@pytest.mark.parametrize("page", walked(), ids=str)
def test_given_a_page_when_its_snippets_are_run_then_streams_are_read_and_commands_end_as_it_says(
    page: Path, spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    with staged(tmp_path, kafka_cluster, topic_name) as stage:
        for name in ("events", "orders-eu", "visits", "reports"):
            kafka_cluster.create_topic(f"{topic_name}-{name}", 2, replication_factor=3)
        produce(kafka_cluster.bootstrap_servers, f"{topic_name}-events", *[("k", one) for one in numbered(RECORDS)])
        given = GIVEN.get(page.as_posix())
        names: Names = {"spark": spark, **(given(stage, spark) if given else {})}
        try:
            for block in to_play(page, long=long_run()):
                if is_shell(block):
                    stage.play(block)
                else:
                    _type(block, names, stage)
        finally:
            for query in spark.streams.active:
                query.stop()
            if "progress" in names:
                names["progress"].stop()
