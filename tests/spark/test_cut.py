"""Batches that end without their dead leaders, and repair themselves: every row once, whatever dies in between."""

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.spark.support_driver import Query, SparkDriver
from tests.spark.support_fixtures import StartQuery, heal, replicas
from tests.spark.support_oracle import Load
from tests.support import eventually, numbered, produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
ALL_SIX = (1, 2, 3, 4, 5, 6)


def a_planned_batch(cluster: LocalKafka, topic: str, query: Query) -> None:
    """Hold one batch that promises 50 records of every partition."""
    query.linger()
    produce(cluster.bootstrap_servers, topic, "before the batch", partition=2)
    query.wait_until(lambda: "before the batch" in query.values(), "the record before")
    for partition in range(6):
        produce(cluster.bootstrap_servers, topic, *numbered(50, prefix=f"{partition}-"), partition=partition)
    query.hold()
    query.file.with_suffix(".linger").unlink()
    eventually(query.in_flight, 30, "a planned batch")


def test_given_a_batch_in_flight_when_its_sole_leaders_die_then_it_ends_without_them_and_they_resume_exactly(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas(ALL_SIX, copies=1))
    query = start_query(topic_name, sourceId=topic_name)
    produce(breakable.bootstrap_servers, topic_name, *numbered(60, prefix="first-"), partition=2)
    query.wait_rows(60)
    a_planned_batch(breakable, topic_name, query)
    breakable.kill([1, 2])
    with Load(breakable.bootstrap_servers, topic_name, (2, 3, 4, 5)) as load:
        query.release()
        load.wait_more(100)
        query.wait_until(lambda: {r.partition for r in query.rows()} == {2, 3, 4, 5}, "rows of the living", 15)
        seen = query.count()
        query.wait_rows(seen + 200, 20)
        assert {r.partition for r in query.rows()} == {2, 3, 4, 5}
        heal(breakable)
        query.wait_until(lambda: {r.partition for r in query.rows()} == set(range(6)), "rows of the dead")
        load.stop()
    query.wait_rows(61 + 300 + len(load.acknowledged))
    query.assert_alive()
    assert len({(r.partition, r.offset) for r in query.rows()}) == query.count() == 361 + len(load.acknowledged)
    said = [line for line in driver.log().splitlines() if topic_name in line]
    assert any("cut, since nobody could be read from" in line and f"{topic_name}-0" in line for line in said)
    assert any("set back to where they were cut" in line and f"{topic_name}-1" in line for line in said)
