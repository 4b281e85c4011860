"""Executors in processes apart from the driver: they get their brokers with the plan, not from their own list."""

from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.support.helpers import eventually
from tests.support.spark.driver import BUG_PHRASE, SparkDriver
from tests.support.spark.fixtures import replicas
from tests.support.spark.oracle import Load
from tests.support.spark.standalone import standalone

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_given_executors_of_their_own_when_a_broker_dies_and_partitions_come_then_the_query_goes_on_and_is_exact(
    breakable: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2, 3, 4)))
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    with (
        standalone(tmp_path) as master,
        SparkDriver(tmp_path, master=master, settings=settings) as driver,
        Load(breakable.bootstrap_servers, topic_name, range(4)) as load,
    ):
        listed = f"{breakable.address(1)},{breakable.address(2)}"
        # With a name its tasks ask the driver where their ranges end, from other processes.
        query = driver.query({"kafka.bootstrap.servers": listed, "subscribe": topic_name, "sourceId": topic_name})
        query.wait_rows(200, 120)
        eventually(lambda: driver.ask("executors") == 2, 60, "two executors")
        # Half of the list dies: new executor processes could not start from what the user wrote.
        breakable.kill([1])
        breakable.add_partitions(topic_name, 6, await_leaders=False)
        load.partitions = range(6)
        load.wait_more(40, partitions={4, 5})
        load.wait_more(40, partitions={0})
        query.assert_exact(load)
        assert {row.partition for row in query.rows()} == set(range(6))
        query.stop()
        assert BUG_PHRASE not in driver.log()
