"""Records lost by an unclean election, read by both engines."""

import pytest

from discovery.core.errors import DataLossError
from discovery.spark.fetch import FetchSettings
from tests.contract.test_fetch_engines import read_both, read_with, write, writer
from tests.support.fetch import closed_consumers, range_of
from tests.support.kafka_fixtures import KafkaFactory

__all__ = ["closed_consumers"]
pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("closed_consumers")]


def test_given_an_unclean_election_when_either_reads_what_was_lost_then_both_say_the_same(
    kafka_factory: KafkaFactory, topic_name: str
) -> None:
    cluster = kafka_factory(brokers=2)
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    cluster.create_topic(topic_name, assignment=[[1, 2]], config=config)
    write(writer(cluster), topic_name, [{"value": f"kept-{i}"} for i in range(10)])
    cluster.kill([2])
    cluster.wait_registered([2], registered=False)
    write(writer(cluster), topic_name, [{"value": f"lost-{i}"} for i in range(10)])
    cluster.kill([1])
    cluster.restart([2])
    write(writer(cluster), topic_name, [{"value": f"new-{i}"} for i in range(5)])
    assert read_both(cluster, [range_of(topic_name, 0, 5, 15)])["value"].to_pylist() == [
        *(f"kept-{i}".encode() for i in range(5, 10)), *(f"new-{i}".encode() for i in range(5))
    ]  # fmt: skip
    for start, text in ((17, "below the planned offset 17"), (5, "below the planned end 20")):
        said = []
        for engine in ("python", "native"):
            with pytest.raises(DataLossError, match=f"ends at offset 15, {text}: it was truncated") as error:
                read_with(cluster, engine, [range_of(topic_name, 0, start, 20)], FetchSettings())
            said.append(str(error.value))
        assert said[0] == said[1]
