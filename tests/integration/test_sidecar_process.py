"""The service as a process, with no Kafka anywhere: it listens, refuses, limits, and ends as promised."""

import contextlib
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from discovery.localkafka.keeper.processes import resident_bytes
from tests.support.fakes.mock_cluster import MockCluster
from tests.support.helpers import eventually
from tests.support.ports import service_ports
from tests.support.service import ServiceProcess, serve_arguments, serving

DEAD = "127.0.0.1:1,127.0.0.1:2"
TOKEN = "a-token-of-sixteen"  # noqa: S105


@pytest.fixture(scope="module")
def dead_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service without a living broker, and with short patience for slow clients."""
    folder = tmp_path_factory.mktemp("service")
    config = folder / "config.toml"
    config.write_text('[api]\nrequest_timeout_seconds = "1s"\nheader_max_bytes = 4096\n')
    with serving(DEAD, folder, "--config", str(config)) as service:
        yield service


def test_given_no_living_broker_when_served_then_it_answers_and_says_why(dead_service: ServiceProcess) -> None:
    assert dead_service.probe("/startupz").status_code == 200
    assert dead_service.probe("/livez").status_code == 200
    not_ready = dead_service.probe("/readyz")
    assert (not_ready.status_code, "no broker has answered yet" in not_ready.text) == (503, True)
    eventually(lambda: dead_service.json("/v1/status")["brokers"]["quarantined"] == 2, 20, "both verdicts")
    bootstrap = dead_service.get("/v1/bootstrap")
    assert (bootstrap.status_code, "no broker is known to be alive" in bootstrap.text) == (503, True)
    assert (
        'kafka_discovery_broker_up{broker="127.0.0.1:1",kafka_cluster="default"} 0.0'
        in dead_service.probe("/metrics").text
    )
    assert dead_service.probe("/v1/status").status_code == 404
    assert dead_service.get("/metrics").status_code == 404
    lines = [json.loads(line) for line in dead_service.log.read_text().splitlines()]
    failed = [line for line in lines if line.get("error_class") == "refused"]
    assert {(line["cluster"], line["generation"]) for line in failed} == {("default", 0)}


def test_given_a_foreign_host_header_when_asked_then_it_is_refused(dead_service: ServiceProcess) -> None:
    answer = dead_service.get("/v1/status", Host="evil.example:9463")
    assert (answer.status_code, "answers on loopback only" in answer.text) == (421, True)
    assert dead_service.get("/v1/status", Host="localhost:1").status_code == 200


def _talk(service: ServiceProcess, data: bytes, *, seconds: float = 15) -> bytes:
    """Send bytes and return all that comes until the other side hangs up."""
    host, _, port = service.api.removeprefix("http://").partition(":")
    heard = b""
    with socket.create_connection((host, int(port)), timeout=seconds) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        while chunk := connection.recv(65_536):
            heard += chunk
    return heard


@pytest.mark.parametrize(
    "data",
    [b"", b"GET /v1/status HT", b"POST /v1/resolve HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"],
    ids=["nothing", "half a line", "half a body"],
)
def test_given_a_client_that_stalls_when_its_time_is_up_then_the_connection_ends(
    dead_service: ServiceProcess, data: bytes
) -> None:
    began = time.monotonic()
    _talk(dead_service, data)
    assert 0.5 < time.monotonic() - began < 30


def test_given_endless_headers_when_sent_then_they_are_cut_off_and_others_are_served(
    dead_service: ServiceProcess,
) -> None:
    heard = _talk(dead_service, b"GET / HTTP/1.1\r\n" + b"X-Long: " + b"a" * 10_000_000)
    assert b"too large" in heard or not heard
    assert dead_service.probe("/livez").status_code == 200


def test_given_garbage_when_sent_then_it_is_answered_with_400(dead_service: ServiceProcess) -> None:
    assert b"400" in _talk(dead_service, b"\x00\x01\x02\xff\r\n\r\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_given_waiters_when_asked_to_end_then_all_are_answered_and_it_exits_0_in_time(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving(DEAD, tmp_path) as service:
        answers: list[int] = []

        def wait() -> None:
            answers.append(service.get("/v1/watch?generation=0&wait=60s").status_code)

        threads = [threading.Thread(target=wait) for _ in range(20)]
        for thread in threads:
            thread.start()
        eventually(lambda: "kafka_discovery_api_waiters 20.0" in service.probe("/metrics").text, 20, "20 waiters")
        code, seconds = service.stop(number)
        for thread in threads:
            thread.join(10)
        assert code == 0
        assert seconds < 5
        assert answers == [304] * 20


def test_given_a_second_writer_when_started_then_it_is_refused_by_name(tmp_path: Path) -> None:
    with serving(DEAD, tmp_path) as service:
        second = ServiceProcess(*serve_arguments(DEAD, tmp_path / "state"), log=tmp_path / "second.log")
        with pytest.raises(AssertionError, match="did not start"), second:
            pass
        assert second.process is not None
        said = second.log.read_text()
        assert f"is held by process {service.pid}" in said
        assert "give this one its own --state-dir" in said
        assert (second.process.returncode, "Traceback" in said) == (1, False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), "is not a loopback address, so a token is required"),  # noqa: S104
        (("--bootstrap", "nonsense"), "'nonsense' is not an address"),
        (("--config", "/not/there.toml"), "/not/there.toml cannot be read"),
        (("--token-file", "/not/there"), "api.token_file: /not/there cannot be read"),
        (("--probe-port", "{taken}"), "cannot be listened on: Address already in use"),
    ],
)
def test_given_a_mistake_when_started_then_it_exits_2_with_one_line(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        given = [argument.format(taken=taken.getsockname()[1]) for argument in arguments]
        service = ServiceProcess(*serve_arguments(DEAD, tmp_path / "state", *given), log=tmp_path / "log")
        with pytest.raises(AssertionError, match="did not start"), service:
            pass
        assert service.process is not None
        assert service.process.returncode == 2
        assert said in service.log.read_text()
        assert len(service.log.read_text().splitlines()) == 1


def test_given_a_state_folder_that_cannot_be_written_when_started_then_one_line_names_the_setting(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    service = ServiceProcess(*serve_arguments(DEAD, tmp_path / "file/state"), log=tmp_path / "log")
    with pytest.raises(AssertionError, match="did not start"), service:
        pass
    assert service.process is not None
    assert service.process.returncode == 1
    (line,) = service.log.read_text().splitlines()
    assert line.startswith("kafka-discovery: state_dir: the state cannot be kept: ")
    assert line.endswith("; name a folder you may write")


@pytest.mark.parametrize(
    ("certificate", "key", "clients", "said"),
    [
        ("gone.pem", "key.pem", "", "api.tls_certificate_file: {folder}/gone.pem cannot be read: No such file"),
        ("chain.pem", ".", "", "api.tls_key_file: {folder} cannot be read: Is a directory"),
        ("chain.pem", "other.pem", "", "is not that of the certificate in {folder}/chain.pem"),
        ("chain.pem", "locked.pem", "", "the key without a password"),
        ("key.pem", "chain.pem", "", "are no certificate and its key"),
        ("log", "key.pem", "", "api.tls_certificate_file: {folder}/log is not PEM"),
        ("chain.pem", "key.pem", "gone.pem", "api.tls_client_ca_file: {folder}/gone.pem cannot be read: No such file"),
        ("chain.pem", "key.pem", "log", "api.tls_client_ca_file: {folder}/log holds no PEM certificate"),
        ("chain.pem", "key.pem", "key.pem", "api.tls_client_ca_file: {folder}/key.pem holds no PEM certificate"),
    ],
)
def test_given_a_certificate_that_cannot_be_used_when_started_then_it_exits_2_with_one_line(
    tmp_path: Path, certificate: str, key: str, clients: str, said: str
) -> None:
    authority = trustme.CA()
    good, other = authority.issue_cert("127.0.0.1"), authority.issue_cert("127.0.0.1")
    good.private_key_pem.write_to_path(tmp_path / "key.pem")
    good.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    other.private_key_pem.write_to_path(tmp_path / "other.pem")
    locked = load_pem_private_key(good.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"locked")
    )
    (tmp_path / "locked.pem").write_bytes(locked)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "log").touch()
    config = tmp_path / "config.toml"
    config.write_text(
        f"[api]\ntls_certificate_file = '{tmp_path / certificate}'\ntls_key_file = '{tmp_path / key}'\n"
        f"token_file = '{tmp_path}/token'\n" + (f"tls_client_ca_file = '{tmp_path / clients}'\n" if clients else "")
    )
    command = [sys.executable, "-m", "discovery.cli.app"]
    more = ("--config", str(config), "--bootstrap", DEAD)
    serve = ("serve", *serve_arguments(DEAD, tmp_path / "state", "--config", str(config)))
    for arguments in (serve, ("config", "check", *more)):
        ended = subprocess.run(
            [*command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert said.format(folder=tmp_path) in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_given_a_key_store_that_is_not_there_when_checked_then_config_check_says_so(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        '[clusters.a]\nbootstrap_servers = "127.0.0.1:1"\n[clusters.a.client]\n'
        f'"security.protocol" = "SSL"\n"ssl.truststore.location" = "{tmp_path}/gone.jks"\n'
    )
    ended = subprocess.run(
        [sys.executable, "-m", "discovery.cli.app", "config", "check", "--config", str(config)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "clusters.a.client" in ended.stderr
    assert f"{tmp_path}/gone.jks" in ended.stderr


def test_given_a_token_when_asked_then_only_its_bearer_is_answered_and_probes_are_open(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    arguments = ("--host", "0.0.0.0", "--token-file", str(tmp_path / "token"))  # noqa: S104
    with serving(DEAD, tmp_path, *arguments) as service:
        service.api = service.api.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        assert service.get("/v1/status").status_code == 401
        assert service.get("/v1/status", Authorization="Bearer wrong").status_code == 401
        assert 'kafka_discovery_api_requests_total{code="401",route="refused"} 2.0' in service.probe("/metrics").text
        (line,) = [line for line in service.log.read_text().splitlines() if json.loads(line)["event"] == "refused"]
        assert {**json.loads(line), "timestamp": ""}.items() >= {
            "status": 401,
            "path": "/v1/status",
            "times": 1,
        }.items()
        assert service.get("/v1/status", Authorization=f"Bearer {TOKEN}").status_code == 200
        basic = httpx.get(service.api + "/v1/status", auth=("anybody", TOKEN), trust_env=False)
        assert basic.status_code == 200
        assert service.probe("/livez").status_code == 200


def test_given_a_changed_file_when_reloaded_then_a_good_one_is_taken_and_a_bad_one_is_not(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"

    def write(text: str) -> None:
        config.with_suffix(".new").write_text(text)
        config.with_suffix(".new").replace(config)

    write('[clusters.a]\nbootstrap_servers = "127.0.0.1:1"\n')
    (tmp_path / "token").write_text(TOKEN)
    arguments = ("--config", str(config), *service_ports(), "--token-file", str(tmp_path / "token"), "--json")
    state = ("--state-dir", str(tmp_path / "state"))
    with ServiceProcess(*arguments, *state, log=tmp_path / "log", token=TOKEN) as service:
        epoch = service.json("/v1/clusters/a/status")["epoch"]
        write('[clusters.a]\nbootstrap_servers = "127.0.0.1:2"\n[clusters.b]\nbootstrap_servers = "127.0.0.1:3"\n')
        eventually(lambda: service.get("/v1/clusters/b/status").status_code == 200, 20, "the second cluster")
        brokers = service.json("/v1/clusters/a/brokers")["brokers"]
        assert [broker["address"] for broker in brokers] == ["127.0.0.1:2"]
        assert service.json("/v1/clusters/a/status")["epoch"] == epoch
        write("[clusters.a]\nbootstrap = 1\n")
        eventually(lambda: "kafka_discovery_config_reload_success 0.0" in service.probe("/metrics").text, 20, "refusal")
        refused = httpx.post(service.api + "/-/reload", headers=service.login, trust_env=False)
        assert (refused.status_code, "did you mean" in refused.json()["error"]) == (409, True)
        write('[clusters.b]\nbootstrap_servers = "127.0.0.1:3"\n')
        service.send(signal.SIGHUP)
        eventually(lambda: service.get("/v1/clusters/a/status").status_code == 404, 20, "the first cluster to go")
        counted = service.probe("/metrics").text
        for outcome, least in {"taken": 2, "refused": 2}.items():  # a file is looked at beside signal and request
            (count,) = re.findall(rf'config_reloads_total\{{outcome="{outcome}"\}} (\d+)', counted)
            assert int(count) >= least, outcome
        assert service.stop()[0] == 0


def test_given_brokers_that_freeze_after_health_when_reloaded_then_each_cluster_is_served_on_and_it_ends(
    tmp_path: Path,
) -> None:
    config, names = tmp_path / "config.toml", ("a", "b", "c")

    def write(interval_seconds: float) -> None:
        clusters = "".join(f'[clusters.{name}]\nbootstrap_servers = "{kafka.bootstrap_servers}"\n' for name in names)
        config.with_suffix(".new").write_text(f"[loop]\ninterval_seconds = {interval_seconds}\n{clusters}")
        config.with_suffix(".new").replace(config)

    def are(state: str) -> bool:
        return all(service.json(f"/v1/clusters/{name}/status")["state"] == state for name in names)

    with MockCluster() as kafka:
        kafka.call("topic_create", "t", 4, 1)
        write(0.5)
        arguments = ("--config", str(config), "--state-dir", str(tmp_path / "state"), *service_ports(), "--json")
        with ServiceProcess(*arguments, log=tmp_path / "log") as service:
            eventually(lambda: are("fresh"), 30, "every cluster is fresh")
            kafka.freeze()
            eventually(lambda: are("failsafe"), 30, "every cluster misses its brokers")
            write(0.6)
            eventually(lambda: '"reloaded"' in service.log.read_text(), 40, "the new configuration")
            for name in names:
                assert service.json(f"/v1/clusters/{name}/topics/t")["partitions"], "the last view is served"
            kafka.thaw()
            eventually(lambda: are("fresh"), 30, "every cluster is fresh again")
            kafka.freeze()
            eventually(lambda: are("failsafe"), 30, "every cluster misses its brokers again")
            assert service.stop()[0] == 0


def test_given_events_when_the_service_is_stopped_and_started_then_they_are_served_and_numbers_go_on(
    tmp_path: Path,
) -> None:
    def served() -> ServiceProcess:
        program = ("-m", "tests.support.fakes.service_main")
        return ServiceProcess(str(tmp_path / "state"), "0", "1", log=tmp_path / "log", program=program)

    def grown(service: ServiceProcess, partitions: int) -> list[dict[str, Any]]:
        """Add partitions and return the events once they are among them."""
        eventually(lambda: service.json("/v1/status")["partitions"] >= 3, 30, "the topic")
        known = len(service.json("/v1/events")["events"])
        service.say(f"add_partitions t0 {partitions}")
        eventually(lambda: len(service.json("/v1/events")["events"]) > known, 30, "an event")
        return [*service.json("/v1/events")["events"]]

    with served() as service:
        before = grown(service, 6)
        assert service.stop()[0] == 0
    with served() as service:
        assert service.json("/v1/events")["events"][: len(before)] == before
        after = grown(service, 9)
        assert after[: len(before)] == before
        numbers = [one["number"] for one in after]
        assert numbers == sorted(set(numbers))


def test_given_a_flood_of_connections_when_served_then_memory_is_bounded_and_probes_answer(
    dead_service: ServiceProcess,
) -> None:
    host, _, port = dead_service.api.removeprefix("http://").partition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(1_000):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        assert dead_service.probe("/livez").status_code == 200
        assert "process_open_fds" in dead_service.probe("/metrics").text
    resident = resident_bytes(dead_service.pid)
    assert resident is not None
    assert resident < 150_000_000


def test_given_all_output_when_searched_then_no_planted_secret_is_in_it(tmp_path: Path) -> None:
    secret = "planted-secret-value"  # noqa: S105
    (tmp_path / "token").write_text(secret)
    (tmp_path / "jaas").write_text(
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{secret}";'
    )
    config = tmp_path / "config.toml"
    config.write_text(
        '[log]\nlevel = "debug"\n[clusters.a]\nbootstrap_servers = "127.0.0.1:1"\n[clusters.a.client]\n'
        '"security.protocol" = "SASL_PLAINTEXT"\n"sasl.mechanism" = "PLAIN"\n"sasl.jaas.config_file" = "jaas"\n'
        f'"ssl.key.password" = "{secret}"\n'
    )
    arguments = ("--config", str(config), "--token-file", str(tmp_path / "token"), "--json")
    ports = (*service_ports(), "--state-dir", str(tmp_path / "state"))
    with ServiceProcess(*arguments, *ports, log=tmp_path / "log") as service:
        bearer = f"Bearer {secret}"
        eventually(
            lambda: service.get("/v1/status", Authorization=bearer).json()["brokers"]["unasked"] == 0, 20, "a verdict"
        )
        paths = ("/", "/openapi.json", "/v1/clusters", "/v1/snapshot", "/v1/brokers", "/v1/status", "/v1/events")
        said = [service.get(path, Authorization=bearer).text for path in paths]
        said += [service.probe(path).text for path in ("/metrics", "/readyz", "/livez?verbose")]
        config.write_text(config.read_text().replace('"PLAIN"', '"PLANE"'))
        service.send(signal.SIGHUP)
        eventually(lambda: "reload_refused" in service.log.read_text(), 20, "the refusal")
        service.stop()
    said.append(service.log.read_text())
    assert not [text for text in said if secret in text]
    for line in service.log.read_text().splitlines():
        assert {"timestamp", "level", "event"} <= json.loads(line).keys()


def test_given_a_certificate_when_served_then_the_api_speaks_tls_alone(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    config = tmp_path / "config.toml"
    config.write_text(
        f"[api]\ntls_certificate_file = '{tmp_path}/chain.pem'\ntls_key_file = '{tmp_path}/key.pem'\n",
        encoding="utf-8",
    )
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with serving(DEAD, tmp_path, "--config", str(config)) as service:
        assert service.api.startswith("https://")
        answer = httpx.get(f"{service.api}/v1/clusters", verify=trust, trust_env=False, timeout=30)
        assert answer.status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(service.api.replace("https", "http") + "/v1/clusters", trust_env=False, timeout=30)
        assert service.probe("/livez").status_code == 200
        assert service.stop()[0] == 0
