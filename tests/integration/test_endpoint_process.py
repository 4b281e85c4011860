"""The endpoint as operators run it: alone, and in the service."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography import x509

from discovery.localkafka.cluster import LocalKafka
from tests.support.endpoint import brokers_at
from tests.support.helpers import eventually
from tests.support.ports import free_port
from tests.support.service import serving

pytestmark = pytest.mark.kafka
_MAIN = "from discovery.cli.app import main; main()"
WAIT_SECONDS = 30.0


def test_given_the_service_with_an_endpoint_when_a_client_uses_it_then_metrics_tell_and_the_end_is_clean(
    kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    with serving(kafka_cluster.bootstrap_servers, tmp_path, "--endpoint-port", str(free_port())) as service:
        log = service.log

        def address() -> str:
            lines = [json.loads(line) for line in log.read_text().splitlines() if "endpoint_listening" in line]
            return str(lines[0]["address"]) if lines else ""

        eventually(address, WAIT_SECONDS, "the endpoint's address in the log")
        assert brokers_at(address()) == {1, 2, 3}

        def scraped() -> str:
            return service.probe("/metrics").text

        assert 'kafka_discovery_endpoint_connections_total{kafka_cluster="default",upstream="127.0.0.1:' in scraped()
        ready = 'kafka_discovery_endpoint_ready_upstreams{kafka_cluster="default"} 3.0'
        eventually(lambda: ready in scraped(), WAIT_SECONDS, "three verified brokers")
        code, _ = service.stop()
        assert code == 0
    host, _, port = address().rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def test_given_the_endpoint_alone_when_it_is_stopped_then_it_ends_well_and_its_successor_knows_the_brokers(
    kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    metrics_port = str(free_port())
    arguments = ["--state-dir", str(tmp_path), "--port", str(free_port()), "--metrics-port", metrics_port, "--json"]
    command = [sys.executable, "-c", _MAIN, "endpoint", *arguments]
    for bootstrap in (
        kafka_cluster.address(1),
        f"{kafka_cluster.address(1).rpartition(':')[0]}:1,{kafka_cluster.address(1)}",
    ):
        with (
            (tmp_path / "log").open("a") as log,
            subprocess.Popen(
                [*command, "--bootstrap", bootstrap], stdout=subprocess.PIPE, stderr=log, text=True
            ) as one,
        ):
            try:
                assert one.stdout is not None
                seen = json.loads(one.stdout.readline())
                assert seen["pid"] == one.pid
                assert brokers_at(seen["endpoint"]) == {1, 2, 3}
                metrics = httpx.get(f"http://127.0.0.1:{metrics_port}/metrics", timeout=20, trust_env=False).text
                assert "kafka_discovery_endpoint_bytes_total" in metrics
                os.kill(one.pid, signal.SIGTERM)
                assert one.wait(WAIT_SECONDS) == 0
            finally:
                one.kill()
    assert "BUG in" not in (tmp_path / "log").read_text()


def test_given_the_endpoint_alone_when_scraped_then_it_says_how_long_its_trust_holds_and_what_it_uses(
    tmp_path: Path,
) -> None:
    store, config, metrics_port = tmp_path / "trust.pem", tmp_path / "config.toml", free_port()
    trustme.CA().cert_pem.write_to_path(store)
    config.write_text(
        '[clusters.main]\nbootstrap_servers = "127.0.0.1:1"\n[clusters.main.client]\n'
        f'"security.protocol" = "SSL"\n"ssl.truststore.location" = "{store}"\n'
    )
    arguments = ["--config", str(config), "--state-dir", str(tmp_path), "--port", "0", "--metrics-port"]
    command = [sys.executable, "-c", _MAIN, "endpoint", *arguments, str(metrics_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
        try:
            assert one.stdout is not None
            one.stdout.readline()
            metrics = httpx.get(f"http://127.0.0.1:{metrics_port}/metrics", timeout=20, trust_env=False).text
        finally:
            one.kill()
    ends = x509.load_pem_x509_certificate(store.read_bytes()).not_valid_after_utc.timestamp()
    series = f'kafka_discovery_certificate_expiry_timestamp_seconds{{file="{store}",use="kafka_trust"}} '
    (value,) = [line.removeprefix(series) for line in metrics.splitlines() if line.startswith(series)]
    assert float(value) == ends
    assert {"process_open_fds", "process_max_fds"} <= {line.partition(" ")[0] for line in metrics.splitlines()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "endpoint.host: '0.0.0.0' is not a loopback address"),  # noqa: S104 - what is refused
        (["--port", "99999"], "endpoint.port"),
        (["--cluster", "nobody"], "endpoint.cluster: 'nobody' is not configured"),
    ],
)
def test_given_a_wrong_option_when_the_endpoint_starts_then_one_line_says_what_and_the_exit_code_is_two(
    arguments: list[str], words: str
) -> None:
    command = [sys.executable, "-c", _MAIN, "endpoint", "--bootstrap", "127.0.0.1:1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert words in done.stderr


def test_given_a_port_that_is_taken_when_the_endpoint_starts_then_it_exits_2_with_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        arguments = ["--bootstrap", "127.0.0.1:1", "--state-dir", str(tmp_path), "--port", port]
        command = [sys.executable, "-c", _MAIN, "endpoint", *arguments]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (said,) = [line for line in refused.stderr.splitlines() if not line.startswith("{")]
    assert f"endpoint.port: 127.0.0.1:{port} cannot be listened on: Address already in use" in said
    assert said.endswith("choose another endpoint.port (0: any free one)")
    assert refused.returncode == 2
