"""The bootstrap endpoint under librdkafka, Kafka's own tools (java-clients.md), Spark's own source and sink."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from discovery.core.model import BrokerAddress
from discovery.localkafka.cluster import LocalKafka
from tests.spark.conftest import ReadStream
from tests.support.endpoint import CONSUMER, PRODUCER, brokers_at, endpoint_to, kafka_tool
from tests.support.helpers import eventually, numbered, produce

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def consumed(address: str, topic: str, count: int) -> list[str]:
    done = kafka_tool(
        CONSUMER,
        ["--bootstrap-server", address, "--topic", topic, "--from-beginning", "--max-messages", str(count)],
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split())


def test_given_every_listed_broker_is_replaced_when_clients_run_and_restart_then_the_endpoint_serves_them_all(
    spark: SparkSession, breakable: LocalKafka, topic_name: str, tmp_path: Path, read_stream: ReadStream
) -> None:
    old, new = (1, 2, 3), (4, 5, 6)
    breakable.create_topic(topic_name, 3, replication_factor=3)
    listed = ",".join(breakable.address(broker) for broker in old)
    with endpoint_to(listed, state_dir=tmp_path / "state") as running:
        address = running.endpoint.address
        assert brokers_at(address) == {1, 2, 3, 4, 5, 6}
        done = kafka_tool(PRODUCER, ["--bootstrap-server", address, "--topic", topic_name], stdin="a\nb\nc\n")
        assert done.returncode == 0, done.stderr
        options = {"kafka.bootstrap.servers": address, "subscribe": topic_name, "startingOffsets": "earliest"}
        query = read_stream(options, format="kafka")
        query.wait_rows(3)
        # A first group right after the deaths might get a coordinator among the dead, whom Kafka still counts.
        assert consumed(address, topic_name, 3) == ["a", "b", "c"]
        breakable.reassign_off(old)
        breakable.kill(old)
        eventually(lambda: leads_to(running.endpoint.shown().ready, breakable, new), 60, "living brokers alone")
        produce(address, topic_name, "d", "e", options={"topic.metadata.refresh.interval.ms": "500"})
        assert consumed(address, topic_name, 5) == ["a", "b", "c", "d", "e"]
        query.wait_rows(5)
        query.query.stop()
        frame = spark.createDataFrame([(value,) for value in numbered(3, prefix="s")], ["value"])
        frame.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", topic_name).save()
        again = read_stream(options, format="kafka")
        again.wait_rows(3)
        assert again.values()[-3:] == ["s0", "s1", "s2"]
    # Even the endpoint may restart on a list of which nobody is left.
    with endpoint_to(listed, state_dir=tmp_path / "state") as running:
        # Brokers tell of a dead one until its session has ended.
        eventually(lambda: brokers_at(running.endpoint.address) == set(new), 60, "living brokers alone")


def leads_to(ready: Sequence[BrokerAddress], cluster: LocalKafka, brokers: Sequence[int]) -> bool:
    return bool(ready) and {str(address) for address in ready} <= {cluster.address(broker) for broker in brokers}


def test_given_the_broker_of_a_client_freezes_when_it_stops_answering_then_its_connection_ends_and_another_serves(
    breakable: LocalKafka,
) -> None:
    with endpoint_to(breakable.bootstrap_servers) as running:
        address = running.endpoint.address
        assert brokers_at(address)
        frozen = running.endpoint.shown().sticky
        assert frozen is not None
        broker = next(b for b in breakable.broker_ids if breakable.address(b) == str(frozen))
        breakable.pause([broker])
        eventually(lambda: frozen not in running.endpoint.shown().ready, 30, "the frozen broker taken out")
        assert brokers_at(address)
        assert running.endpoint.shown().sticky != frozen
        breakable.resume([broker])
