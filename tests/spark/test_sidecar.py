"""A query under load that follows a service, on real brokers, while that one is killed, restarted and frozen."""

import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from confluent_kafka import Producer

from discovery.localkafka.cluster import LocalKafka
from tests.spark.conftest import ReadStream
from tests.support.helpers import eventually
from tests.support.service import ServiceProcess, serve_arguments

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
DEADLINE = 60


class Load:
    """Writes distinct records all the time, some 200 a second, until the block ends; then all are acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        options = {"acks": "all", "enable.idempotence": True, "topic.metadata.refresh.interval.ms": 500, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **options})
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.sent = 0
        self.failures: list[str] = []

    def _write(self) -> None:
        while not self._over.wait(0.05):
            for number in range(self.sent, self.sent + 10):
                self._producer.produce(self._topic, value=f"v{number}", key=f"k{number}", on_delivery=self._heard)
            self.sent += 10
            self._producer.poll(0)

    def _heard(self, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(str(error))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        left = self._producer.flush(DEADLINE)
        assert (left, self.failures) == (0, [])


def test_given_a_query_that_follows_a_service_when_it_is_killed_restarted_and_frozen_then_every_record_comes_once(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, 3)
    log = tmp_path / "service.log"
    arguments = serve_arguments(kafka_cluster.bootstrap_servers, tmp_path / "service")

    def consumer(service: ServiceProcess) -> dict[str, Any]:
        seen = service.json("/v1/consumers")["consumers"]
        return {**seen[0]} if seen else {}

    def follows(service: ServiceProcess) -> bool:
        """It reports, and what it applied is what this service discovered."""
        seen = consumer(service)
        return bool(seen) and seen["heard_seconds_ago"] < 4 and seen["lag"] is not None and not seen["behind"]

    with Load(kafka_cluster.bootstrap_servers, topic_name) as load:
        with ServiceProcess(*arguments, log=log) as service:
            options = {"discoveryUrl": service.api, "sourceId": topic_name, "stateDir": str(tmp_path / "state")}
            reading = read_stream({"subscribe": topic_name, "startingOffsets": "earliest", **options})
            reading.wait_rows(100)
            eventually(lambda: follows(service), DEADLINE, "a report")
            assert consumer(service)["id"] == topic_name
            kafka_cluster.add_partitions(topic_name, 5)
            eventually(lambda: f"{topic_name}-4" in consumer(service)["lags"], DEADLINE, "a new partition's position")
        # Beyond what the last view knew, a query comes only by a look of its own.
        reading.wait_rows(load.sent + 200)
        port = service.api.rpartition(":")[2]
        with ServiceProcess(*arguments, "--port", port, log=log) as service:  # the later one of two ports wins
            eventually(lambda: follows(service), DEADLINE, "the reader's return")
            service.send(signal.SIGSTOP)
            reading.wait_rows(load.sent + 200)
            service.send(signal.SIGCONT)
            eventually(lambda: follows(service), DEADLINE, "the reader's second return")
            reading.wait_rows(load.sent + 200)
    reading.wait_rows(load.sent)
    assert len(set(reading.values())) == len(reading.rows) == load.sent
    assert "BUG in" not in log.read_text()
