"""A query that follows a service, on real brokers, while that service is killed and comes back."""

from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.spark.conftest import ReadStream
from tests.support import eventually, numbered, produce
from tests.support_service import ServiceProcess, serve_arguments

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_given_a_query_that_follows_a_service_when_it_is_killed_and_restarted_then_every_record_comes_once(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, 3)
    servers = kafka_cluster.bootstrap_servers
    produce(servers, topic_name, *numbered(50, prefix="a"))
    arguments = serve_arguments(servers, tmp_path / "service")
    with ServiceProcess(*arguments, log=tmp_path / "service.log") as service:
        reading = read_stream(
            {
                "subscribe": topic_name,
                "startingOffsets": "earliest",
                "discoveryUrl": service.api,
                "sourceId": topic_name,
                "stateDir": str(tmp_path / "state"),
            }
        )
        reading.wait_rows(50)

        def consumer() -> dict[str, object]:
            told = service.json("/v1/consumers")["consumers"]
            return {**told[0]} if told else {}

        eventually(lambda: consumer().get("lag") == 0, 60, "a report without lag")
        assert (consumer()["id"], consumer()["behind"]) == (topic_name, False)
        kafka_cluster.add_partitions(topic_name, 5)
        produce(servers, topic_name, *numbered(10, prefix="new"), partition=4)
        reading.wait_rows(60)
    produce(servers, topic_name, *numbered(30, prefix="b"), partition=0)
    reading.wait_rows(90)  # by the reader's own loop
    port = service.api.rpartition(":")[2]
    again = ("--port", port)  # the later one of two wins
    with ServiceProcess(*arguments, *again, log=tmp_path / "service.log") as service:
        eventually(lambda: consumer().get("lag") == 0, 60, "the reader's return")
        produce(servers, topic_name, *numbered(30, prefix="c"), partition=1)
        reading.wait_rows(120)
        assert len(set(reading.values())) == len(reading.rows) == 120
    assert "BUG in" not in (tmp_path / "service.log").read_text()
