"""Spark's own documented examples on both sources: one word changed, the same results."""

import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import eventually, produce
from tests.support.spark.native import BOTH, KEPT, timed

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python/sql/streaming"
"""Shipped with PySpark: the programs its guides explain."""

Start = Callable[[str, str, list[str]], None]


def table_of(source: str) -> str:
    return f"seen_by_{source.replace('-', '_')}"


@pytest.fixture
def start(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Run a program as its author wrote it, into a table instead of the console; it runs until the test ends."""

    def run(source: str, text: str, arguments: list[str]) -> None:
        assert text.count(".format('console')") == 1
        script = tmp_path / f"{table_of(source)}.py"
        script.write_text(text.replace(".format('console')", f".format('memory').queryName('{table_of(source)}')"))
        monkeypatch.setattr(sys, "argv", [script.name, *arguments])
        threading.Thread(target=_run, args=(script,), name=script.stem, daemon=True).start()
        # The programs begin at the end, as is the default: what is written before that is not counted.
        eventually(lambda: _has_planned(spark, table_of(source)), 60, f"the start of {source}")

    yield run
    for query in spark.streams.active:
        query.stop()


def _run(script: Path) -> None:
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Exception as error:  # noqa: BLE001 - the test stops the query under it
        print(f"{script.name} ended: {error}", file=sys.stderr)  # noqa: T201 - shown when the test fails


def _has_planned(spark: SparkSession, name: str) -> bool:
    query = next((query for query in spark.streams.active if query.name == name), None)
    return query is not None and str(query.status["message"]).startswith("Waiting for")


def seen(spark: SparkSession, source: str) -> list[Row]:
    return sorted(spark.table(table_of(source)).collect())


def test_given_sparks_word_count_when_one_word_is_changed_then_both_sources_count_the_same(
    spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, start: Start
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    program = (EXAMPLES / "structured_kafka_wordcount.py").read_text()
    assert program.count('"kafka"') == 1
    for source in BOTH:
        arguments = [kafka_cluster.bootstrap_servers, "subscribe", topic_name]
        start(source, program.replace('"kafka"', f'"{source}"'), arguments)
    produce(kafka_cluster.bootstrap_servers, topic_name, "to be or not to be", "that is the question", "to be")
    expected = [("be", 3), ("is", 1), ("not", 1), ("or", 1), ("question", 1), ("that", 1), ("the", 1), ("to", 3)]
    for source in BOTH:
        eventually(lambda: seen(spark, source) == expected, 60, f"the counts of {source}")  # noqa: B023 - used at once


def test_given_sparks_sessionization_over_kafka_when_one_word_is_changed_then_both_sources_find_the_same_sessions(
    spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str, start: Start
) -> None:
    kafka_cluster.create_topic(topic_name, 1, config=KEPT)
    program = (EXAMPLES / "structured_sessionization.py").read_text()
    before, _, rest = program.partition(".format('socket')")
    _, _, after = rest.partition(".load()")
    for source in BOTH:
        lines = (
            f".format('{source}').option('kafka.bootstrap.servers', '{kafka_cluster.bootstrap_servers}')"
            f".option('subscribe', '{topic_name}').load()"
            ".selectExpr(\"regexp_replace(CAST(value AS STRING), '@.*', '') AS value\", 'timestamp')"
        )
        # The whole result, for intermediate ones depend on where batches end.
        start(source, f"{before}{lines}{after}".replace("'update'", "'complete'"), ["localhost", "9999"])
    timed(kafka_cluster, topic_name, 0, 1_000, 4_000, 9_000, 30_000, 31_000)
    expected = [("p0", 1, 19, 18, 3), ("p0", 30, 41, 11, 2)]
    for source in BOTH:
        eventually(lambda: seen(spark, source) == expected, 60, f"the sessions of {source}")  # noqa: B023 - used at once


def test_given_the_batch_queries_of_the_guide_when_one_word_is_changed_then_both_sources_give_the_same(
    spark: SparkSession, kafka_cluster: LocalKafka, topic_name: str
) -> None:
    """The three of Spark's Kafka guide: one topic, two topics with offsets of their own, a pattern."""
    one, two = f"{topic_name}-topic1", f"{topic_name}-topic2"
    kafka_cluster.create_topic(one, 2)
    kafka_cluster.create_topic(two, 1)
    for topic, partition in ((one, 0), (one, 1), (two, 0)):
        records = [(f"k{i}", f"{topic}-{partition}-{i}") for i in range(60)]
        produce(kafka_cluster.bootstrap_servers, topic, *records, partition=partition)
    queries = (
        {"subscribe": one},
        {
            "subscribe": f"{one},{two}",
            "startingOffsets": f'{{"{one}":{{"0":23,"1":-2}},"{two}":{{"0":-2}}}}',
            "endingOffsets": f'{{"{one}":{{"0":50,"1":-1}},"{two}":{{"0":-1}}}}',
        },
        {"subscribePattern": f"{topic_name}-topic.*", "startingOffsets": "earliest", "endingOffsets": "latest"},
    )

    def results(source: str) -> list[list[Row]]:
        return [sorted(texts(source, query).collect()) for query in queries]

    def texts(source: str, query: dict[str, str]) -> DataFrame:
        options = {"kafka.bootstrap.servers": kafka_cluster.bootstrap_servers, **query}
        frame = spark.read.format(source).options(**options).load()
        return frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")

    ours = results("kafka-discovery")
    assert [len(rows) for rows in ours] == [120, 27 + 60 + 60, 180]
    assert ours == results("kafka")
