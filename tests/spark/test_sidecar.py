"""A query under load that follows a service, on real brokers, while that one is killed, restarted and frozen."""

import json
import signal
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import pytest
import trustme
from confluent_kafka import Producer

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.progress.reports import SourceReport, read_reports
from tests.spark.conftest import ReadStream
from tests.support.helpers import eventually
from tests.support.service import ServiceProcess, serve_arguments

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
DEADLINE = 60
TOKEN = "a-token-of-more-than-16-bytes"  # noqa: S105


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


@pytest.mark.parametrize("trusted", ["ca", "stranger"])
def test_given_a_service_over_https_when_a_query_names_its_authority_then_it_follows_and_another_one_is_said(
    kafka_cluster: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path, trusted: str
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "stranger.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    (tmp_path / "token").write_text(TOKEN)
    pair = json.dumps(str(tmp_path / "server.pem"))
    (tmp_path / "config.toml").write_text(f"[api]\ntls_certificate_file = {pair}\ntls_key_file = {pair}\n")
    more = ("--config", str(tmp_path / "config.toml"), "--token-file", str(tmp_path / "token"))
    arguments = serve_arguments(kafka_cluster.bootstrap_servers, tmp_path / "service", *more)
    kafka_cluster.create_topic(topic_name, 1)
    with (
        ServiceProcess(*arguments, log=tmp_path / "log", token=TOKEN) as service,
        Load(kafka_cluster.bootstrap_servers, topic_name),
    ):
        options = {
            "discoveryUrl": service.api, "discoveryTokenFile": str(tmp_path / "token"), "sourceId": topic_name,
            "discoveryCaFile": str(tmp_path / f"{trusted}.pem"), "stateDir": str(tmp_path / "state"),
        }  # fmt: skip
        reading = read_stream({"subscribe": topic_name, "startingOffsets": "earliest", **options})
        reading.wait_rows(50)

        def reported(as_wanted: Callable[[SourceReport], object]) -> bool:
            return any(one.source == topic_name and as_wanted(one) for one in read_reports(tmp_path / "state"))

        with httpx.Client(base_url=service.api, verify=authority_of(tmp_path), headers=service.login) as client:

            def consumers() -> list[str]:
                return [one["id"] for one in client.get("/v1/consumers").json()["consumers"]]

            if trusted == "ca":
                eventually(lambda: consumers() == [topic_name], DEADLINE, "its report to the service")
                reading.wait_rows(len(reading.rows) + 50)
                shown = client.get("/v1/clusters/default/status").json()["sentence"]
                follows = lambda one: not one.fallback and one.sentence == shown  # noqa: E731
                eventually(lambda: reported(follows), DEADLINE, f"{shown!r} in the query's own status")
            else:
                refused = lambda one: "CERTIFICATE_VERIFY_FAILED" in one.fallback  # noqa: E731
                eventually(lambda: reported(refused), DEADLINE, "the reason in the query's own status")
                assert reported(lambda one: one.sentence.startswith(f"embedded loop in place of {service.api}"))
                assert consumers() == []


def authority_of(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "ca.pem")
