"""`failOnDataLoss` both ways, each beside Spark's own source."""

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.spark.conftest import ReadStream
from tests.support.helpers import numbered, produce
from tests.support.spark.native import BOTH, delete_records

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
EARLIEST = {"startingOffsets": "earliest"}
TO_THE_END = {"availableNow": True}


@pytest.fixture
def aged(kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream) -> str:
    """Both sources stand at offset 10; the log goes on from 15 to 20."""
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(10))
    for name in BOTH:
        reading = read_stream({"subscribe": topic_name, **EARLIEST}, format=name, checkpoint=name, trigger=TO_THE_END)
        reading.wait_end()
        assert len(reading.rows) == 10
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(10, prefix="new"))
    delete_records(kafka_cluster, topic_name, 0, before=15)
    return topic_name


def test_given_records_that_aged_out_when_loss_must_fail_then_both_sources_fail(
    aged: str, read_stream: ReadStream
) -> None:
    for name, text in zip(BOTH, ("data may have been lost", "5 offsets deleted by retention"), strict=True):
        reading = read_stream({"subscribe": aged}, format=name, checkpoint=name, trigger=TO_THE_END)
        with pytest.raises(Exception, match=text) as error:
            reading.wait_end()
        assert reading.rows == []
    assert f"{aged}-0 begins at offset 15 but the query is at offset 10" in str(error.value)
    assert 'set failOnDataLoss to "false"' in str(error.value)


def test_given_records_that_aged_out_when_loss_is_accepted_then_both_sources_read_the_rest(
    aged: str, read_stream: ReadStream
) -> None:
    for name in BOTH:
        options = {"subscribe": aged, "failOnDataLoss": "false"}
        reading = read_stream(options, format=name, checkpoint=name, trigger=TO_THE_END)
        reading.wait_end()
        assert reading.values() == [f"new{i}" for i in range(5, 10)], name


def test_given_a_partition_that_begins_late_when_found_under_the_query_then_it_is_read_from_its_first_record(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, "a")
    options = {"subscribe": topic_name, "failOnDataLoss": "false", **EARLIEST}
    for name in BOTH:
        first = read_stream(options, format=name, checkpoint=name, trigger=TO_THE_END)
        first.wait_end()
        assert first.values() == ["a"]
    kafka_cluster.add_partitions(topic_name, 2)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(6), partition=1)
    delete_records(kafka_cluster, topic_name, 1, before=4)
    for name in BOTH:
        again = read_stream(options, format=name, checkpoint=name, trigger=TO_THE_END)
        again.wait_end()
        assert again.values() == ["v4", "v5"], name


def test_given_a_deleted_topic_of_two_when_loss_must_fail_then_it_ends_and_when_accepted_the_other_goes_on(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    kept, deleted = f"{topic_name}-kept", f"{topic_name}-deleted"
    for topic in (kept, deleted):
        kafka_cluster.create_topic(topic, 1)
        produce(kafka_cluster.bootstrap_servers, topic, topic)
    subscribed = {"subscribe": f"{kept},{deleted}", **EARLIEST}
    strict = read_stream(subscribed, checkpoint="strict")
    lenient = read_stream({**subscribed, "failOnDataLoss": "false"}, checkpoint="lenient")
    strict.wait_rows(2)
    lenient.wait_rows(2)
    kafka_cluster.delete_topic(deleted)
    assert_ends_with(strict, f"topic {deleted} does not exist any more; {deleted}-0 was at offset 1")
    produce(kafka_cluster.bootstrap_servers, kept, "later")
    lenient.wait_rows(3)
    assert lenient.query.isActive


def assert_ends_with(reading: object, text: str) -> None:
    with pytest.raises(Exception, match="data loss: ") as error:
        reading.wait_end()  # type: ignore[attr-defined]
    assert text in str(error.value)
