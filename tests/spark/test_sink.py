"""The sink on real Spark and real brokers: every record once, whatever is replayed."""

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame

from discovery.spark.sink import exactly_once, with_lanes
from tests.support.helpers import numbered
from tests.support.spark.copying import QUERY_SECONDS, Copy, copy

__all__ = ["copy"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_given_lanes_when_a_confirmed_batch_is_replayed_then_every_record_is_there_once(copy: Copy) -> None:
    copy.put(*numbered(20))
    copy.run(lanes=2)
    copy.forget_commit(0)
    copy.put(*numbered(5, prefix="w"))
    copy.run(lanes=2)
    assert copy.copied() == sorted([*numbered(20), *numbered(5, prefix="w")])


def test_given_a_batch_write_when_repeated_under_its_name_then_its_records_are_there_once(copy: Copy) -> None:
    rows = copy.spark.createDataFrame([(value, value) for value in numbered(6)], "key string, value string")
    writer = with_lanes(rows, "key", lanes=2).write.format("kafka-discovery").mode("append").option("lanes", 2)
    for write_id in ("one", "one", "two"):
        writer.options(**copy.options()).option("writeId", write_id).save()
    assert copy.copied() == sorted([*numbered(6), *numbered(6)])
    others = with_lanes(rows.limit(2), "key", lanes=2).write.format("kafka-discovery").mode("append")
    with pytest.raises(PySparkException, match="or the writeId was used before"):
        others.options(**copy.options(), writeId="one", lanes="2").save()
    assert copy.copied() == sorted([*numbered(6), *numbered(6)])


def test_given_a_batch_write_without_records_when_its_name_is_used_for_some_then_it_is_refused(copy: Copy) -> None:
    rows = copy.spark.createDataFrame([("k", "v")], "key string, value string")
    for frame in (rows.limit(0), rows.where("value = 'w'")):
        frame.coalesce(1).write.format("kafka-discovery").mode("append").options(**copy.options(), writeId="one").save()
    with pytest.raises(PySparkException, match="or the writeId was used before"):
        rows.coalesce(1).write.format("kafka-discovery").mode("append").options(**copy.options(), writeId="one").save()
    assert copy.copied() == []


def test_given_one_sink_for_two_outputs_of_a_foreach_batch_when_run_then_the_second_is_refused(copy: Copy) -> None:
    write = exactly_once(copy.options())

    def twice(batch: DataFrame, batch_id: int) -> None:
        write(batch, batch_id)
        write(batch, batch_id)

    copy.put("a")
    trigger = copy.rows().writeStream.option("checkpointLocation", str(copy.checkpoint)).trigger(availableNow=True)
    query = trigger.foreachBatch(twice).start()
    try:
        with pytest.raises(StreamingQueryException, match="has batch 0 of another output of this foreachBatch"):
            query.awaitTermination(QUERY_SECONDS)
    finally:
        query.stop()
    assert copy.copied() == ["a"]


def test_given_update_mode_when_written_by_foreach_batch_and_replayed_then_every_total_is_there_once(
    copy: Copy,
) -> None:
    write = exactly_once({**copy.options(), "lanes": "2"}, "key")
    copy.put("a", "a", "b")
    for more in ("a", None):
        counted = copy.rows().groupBy("key").count().selectExpr("key", "concat(string(key), '=', count) as value")
        query = (
            counted.writeStream.outputMode("update")
            .option("checkpointLocation", str(copy.checkpoint))
            .trigger(availableNow=True)
            .foreachBatch(write)
            .start()
        )
        try:
            assert query.awaitTermination(QUERY_SECONDS), "the query did not end in time"
        finally:
            query.stop()
        if more is not None:
            copy.forget_commit(0)
            copy.put(more)
    assert copy.copied() == ["a=2", "a=3", "b=1"]
