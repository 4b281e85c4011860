"""What the sink refuses on real Spark, each in one line before the first record."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from discovery.spark.sink import with_lanes
from tests.support.helpers import numbered
from tests.support.sink import committed_values
from tests.support.spark.copying import Copy, copy

__all__ = ["copy"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def frame(copy: Copy, *, partitions: int = 1) -> DataFrame:
    rows = [(value, value) for value in numbered(4)]
    return copy.spark.createDataFrame(rows, "key string, value string").repartition(partitions)


def refusal(copy: Copy, rows: DataFrame, **options: str) -> str:
    writer = rows.write.format("kafka-discovery").mode("append").options(**copy.options(), writeId="w")
    with pytest.raises(PySparkException) as caught:
        writer.options(**options).save()
    assert committed_values(copy.cluster.bootstrap_servers, copy.target) == []
    return str(caught.value)


def test_given_a_frame_without_a_value_when_written_then_one_line_says_so(copy: Copy) -> None:
    assert "value: the column is missing; select what to write" in refusal(copy, frame(copy).drop("value"))


def test_given_rows_moved_after_with_lanes_when_written_then_nothing_is_visible(copy: Copy) -> None:
    rows = with_lanes(frame(copy), "key", lanes=2).coalesce(1)
    # What was sent before the first misplaced record stands in a transaction that brokers end after its timeout.
    options = {"lanes": "2", "transactionTimeout": "20s"}
    assert "came to task 0: with_lanes must be the last thing" in refusal(copy, rows, **options)


def test_given_speculation_when_written_then_one_line_refuses(copy: Copy) -> None:
    context = copy.spark.sparkContext
    # Spark hands its whole configuration to the tasks of a query this way; it cannot be changed in a running session.
    context.setLocalProperty("spark.speculation", "true")
    try:
        assert "spark.speculation=true: two attempts" in refusal(copy, frame(copy))
    finally:
        context.setLocalProperty("spark.speculation", None)  # type: ignore[arg-type]
