"""Brokers die, freeze and come back under a running query; every acknowledged record comes once."""

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import eventually, numbered, produce
from tests.support.spark.driver import SparkDriver
from tests.support.spark.fixtures import StartQuery, replicas
from tests.support.spark.native import stays
from tests.support.spark.oracle import Load

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
ALL_SIX = (1, 2, 3, 4, 5, 6)


def test_given_a_load_when_two_of_six_brokers_are_killed_then_the_query_goes_on_and_is_exact(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas(ALL_SIX))
    with Load(breakable.bootstrap_servers, topic_name, range(6)) as load:
        query = start_query(topic_name)
        query.wait_rows(200)
        breakable.kill([2, 3])
        load.wait_more(300, partitions={1, 2})
        query.assert_exact(load)


def test_given_a_load_when_two_brokers_freeze_and_thaw_then_the_others_flow_and_all_is_exact(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas(ALL_SIX))
    with Load(breakable.bootstrap_servers, topic_name, range(6)) as load:
        query = start_query(topic_name)
        query.wait_rows(200)
        breakable.pause([4, 5])
        load.wait_more(300, partitions={3, 4})
        seen = query.count()
        query.wait_rows(seen + 300)
        breakable.resume([4, 5])
        load.wait_more(200)
        query.assert_exact(load)


def test_given_all_brokers_dead_when_they_return_then_the_same_query_goes_on_and_is_exact(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2, 3)))
    with Load(breakable.bootstrap_servers, topic_name, range(3)) as load:
        query = start_query(topic_name)
        query.wait_rows(100)
        breakable.kill(ALL_SIX)
        said = len(driver.log())
        eventually(lambda: "failsafe: 0 of " in driver.log()[said:], 60, "a loop that knows all are dead")
        stays(lambda: query.status()["active"], 5, "a query that lives on what it knows")
        assert "kept the last view of 6 brokers" in driver.log()[said:]
        breakable.heal()
        load.wait_more(100)
        query.assert_exact(load)


def test_given_a_load_when_a_third_of_the_brokers_is_drained_and_removed_then_it_is_exact(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas(ALL_SIX))
    with Load(breakable.bootstrap_servers, topic_name, range(6)) as load:
        query = start_query(topic_name)
        query.wait_rows(200)
        breakable.reassign_off([5, 6])
        breakable.terminate([5, 6])
        breakable.wait_registered([5, 6], registered=False)
        load.wait_more(300, partitions={4, 5})
        seen = query.count()
        query.wait_rows(seen + 300)
        query.assert_exact(load)


def test_given_leaders_dead_before_the_start_when_read_then_others_flow_and_the_parked_are_named_and_return(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas(ALL_SIX, copies=1))
    for partition in range(6):
        produce(breakable.bootstrap_servers, topic_name, *numbered(20, prefix=f"{partition}-"), partition=partition)
    breakable.kill([1, 6])
    breakable.wait_registered([1, 6], registered=False)
    query = start_query(topic_name)
    query.wait_rows(80)
    assert {row.partition for row in query.rows()} == {1, 2, 3, 4}
    parked = [line for line in driver.log().splitlines() if "partitions parked" in line and topic_name in line]
    assert f"{topic_name}-0" in parked[0]
    assert f"{topic_name}-5" in parked[0]
    assert f"{topic_name}-1" not in parked[0]
    breakable.heal()
    query.wait_rows(120)
    query.assert_alive()
    assert sorted((row.partition, row.offset, row.value) for row in query.rows()) == [
        (partition, offset, f"{partition}-{offset}") for partition in range(6) for offset in range(20)
    ]


def test_given_a_batch_in_flight_when_its_sole_leaders_die_then_it_waits_in_few_slots_and_completes_on_their_return(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2, 3, 4, 1, 2), copies=1))
    breakable.create_topic(f"{topic_name}-other", assignment=replicas((3, 4)))
    query, other = start_query(topic_name), start_query(f"{topic_name}-other")
    produce(breakable.bootstrap_servers, topic_name, *numbered(60, prefix="first-"), partition=2)
    query.wait_rows(60)
    query.hold()
    eventually(lambda: not query.in_flight(), 20, "a quiet moment")
    for partition in range(6):
        produce(breakable.bootstrap_servers, topic_name, *numbered(50, prefix=f"{partition}-"), partition=partition)
    eventually(query.in_flight, 20, "a planned batch")
    breakable.kill([1, 2])
    query.release()
    with Load(breakable.bootstrap_servers, f"{topic_name}-other", range(2)) as load:
        eventually(lambda: f"waiting for the leader of {topic_name}-" in driver.log(), 30, "a word about the wait")
        for _ in range(5):
            seen = other.count()
            other.wait_rows(seen + 50, 20)
            assert driver.tasks() <= 2 + 2, "more slots are held than leaders died, beside the other query's two"
        assert query.in_flight()
        query.assert_alive()
        other.assert_exact(load)
    # Spark counts its tasks a moment late, so a single look may miss the one that waits.
    eventually(lambda: 1 <= driver.tasks() <= 2, 20, "one slot per dead leader")
    assert query.in_flight()
    breakable.heal()
    query.wait_rows(360)
    query.assert_alive()
    assert sorted(row.value or "" for row in query.rows()) == sorted(
        [*numbered(60, prefix="first-"), *(f"{partition}-{number}" for partition in range(6) for number in range(50))]
    )
