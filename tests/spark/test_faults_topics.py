"""Topics grow, vanish and are recreated under a running query."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import eventually, numbered, produce
from tests.support.spark.driver import SparkDriver
from tests.support.spark.fixtures import StartQuery, replicas
from tests.support.spark.native import stays
from tests.support.spark.oracle import Load, Row, assert_exactly_once

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def _fill(cluster: LocalKafka, topic: str, count: int, prefix: str) -> None:
    """Write so many records to each of two partitions."""
    for partition in range(2):
        produce(
            cluster.bootstrap_servers, topic, *numbered(count, prefix=f"{prefix}-{partition}-"), partition=partition
        )


def test_given_a_load_when_partitions_are_added_twice_then_the_same_query_reads_them_from_their_first_record(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    with Load(breakable.bootstrap_servers, topic_name, range(2)) as load:
        query = start_query(topic_name, startingOffsets="latest")
        eventually(lambda: query.status()["planned"], 60, "the first plan")
        for total in (4, 7):
            breakable.add_partitions(topic_name, total)
            load.partitions = range(total)
            load.wait_more(20, partitions={total - 1})
        load.stop()
    added = [row for row in load.acknowledged if row.partition >= 2]
    query.wait_until(
        lambda: sum(row.partition >= 2 for row in query.rows()) >= len(added), f"{len(added)} rows of new partitions"
    )
    query.assert_alive()
    assert_exactly_once([row for row in query.rows() if row.partition >= 2], added)


def test_given_a_recreated_topic_when_loss_must_fail_then_the_query_ends_with_a_line_that_says_recreated(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    _fill(breakable, topic_name, 10, "old")
    query = start_query(topic_name)
    query.wait_rows(20)
    # The query is busy with a batch while the topic goes and comes: it never sees it absent.
    query.linger()
    produce(breakable.bootstrap_servers, topic_name, "last", partition=0)
    query.wait_rows(21)
    breakable.delete_topic(topic_name)
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    _fill(breakable, topic_name, 30, "new")
    query.release()
    failure = query.wait_failure()
    assert f"data loss: topic {topic_name} was recreated" in failure
    assert 'set failOnDataLoss to "false"' in failure
    assert "Traceback" not in failure
    assert {value for value in query.values() if value and value.startswith("new")} == set()


def test_given_a_recreated_topic_when_loss_is_accepted_then_the_same_query_reads_the_new_one_from_its_first_record(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    wanted: list[Row] = []
    with Load(breakable.bootstrap_servers, topic_name, range(2)) as load:
        query = start_query(topic_name, failOnDataLoss="false")
        load.wait_more(50)
        load.stop()
        wanted += load.acknowledged
    query.wait_rows(len(wanted))
    breakable.delete_topic(topic_name)
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    with Load(breakable.bootstrap_servers, topic_name, range(2)) as load:
        load.wait_more(100)
        load.stop()
        # Distinct values tell the two topics apart where offsets repeat.
        wanted += load.acknowledged
    query.wait_rows(len(wanted))
    query.assert_alive()
    assert_exactly_once(query.rows(), wanted)


def test_given_brokers_that_create_topics_when_one_is_deleted_then_no_query_recreates_it(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, topic_name: str
) -> None:
    kept, deleted, control = f"{topic_name}-kept", f"{topic_name}-deleted", f"{topic_name}-control"
    for topic in (kept, deleted):
        breakable.create_topic(topic, assignment=replicas((1, 2)))
        _fill(breakable, topic, 10, topic)
    query = start_query(f"{kept},{deleted}", failOnDataLoss="false")
    query.wait_rows(40)
    admin = AdminClient({"bootstrap.servers": breakable.bootstrap_servers, "log_level": 0})
    breakable.delete_topic(deleted)
    eventually(lambda: f"topic {deleted} does not exist any more" in driver.log(), 60, "a word about the deleted topic")
    stays(lambda: deleted not in admin.list_topics(timeout=20).topics, 5, "the topic stays deleted")
    _fill(breakable, kept, 5, "later")
    query.wait_rows(50)
    query.assert_alive()
    # A client that does let them, for comparison: else the brokers would not create anything, whoever asks.
    produce(breakable.bootstrap_servers, control, "x")
    eventually(lambda: control in admin.list_topics(timeout=20).topics, 30, "the control topic is listed")
    breakable.delete_topic(control)


def test_given_a_topic_recreated_while_the_query_was_down_then_the_policy_decides(
    breakable: LocalKafka, start_query: StartQuery, topic_name: str, tmp_path: Path
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    _fill(breakable, topic_name, 10, "old")
    query = start_query(topic_name, checkpoint="query", sourceId=topic_name)
    query.wait_rows(20)
    ids = tmp_path / "state" / "ids"
    eventually(lambda: any(topic_name in file.read_text() for file in ids.glob("*.json")), 30, "the topic's id, kept")
    query.wait_committed()
    query.stop()
    breakable.delete_topic(topic_name)
    breakable.create_topic(topic_name, assignment=replicas((1, 2)))
    # Longer than the old one: nothing but its id tells.
    _fill(breakable, topic_name, 30, "new")
    for _ in range(2):
        failed = start_query(topic_name, checkpoint="query", sourceId=topic_name)
        assert f"topic {topic_name} was recreated" in failed.wait_failure()
        assert not failed.values()
    restarted = start_query(topic_name, checkpoint="query", sourceId=topic_name, onTopicRecreated="restart")
    restarted.wait_rows(60)
    assert restarted.values() == {f"new-{p}-{i}" for p in range(2) for i in range(30)}
