"""A service over TLS with an authority of its own, as it stands alone in Kubernetes: readers and commands follow it."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from discovery.config.service_files import ServiceFiles
from discovery.core.errors import ConfigError
from discovery.core.model import TopicName, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.feed.base import Interest
from discovery.feed.embedded import EmbeddedFeed
from discovery.feed.leading import Limits, Mode
from discovery.feed.service_client import ServiceClient, ServiceSilentError
from discovery.feed.sidecar import SidecarFeed
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.gateway import FakeGatewayFactory, FakeVetter
from tests.support.fakes.service import FAST
from tests.support.helpers import eventually
from tests.support.service import ServiceProcess

LIST = parse_bootstrap_servers("cluster-a-b1:9092")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of a service and of a client, by an authority that nobody else knows."""
    made = tmp_path_factory.mktemp("tls")
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(made / "ca.pem")
    stranger.cert_pem.write_to_path(made / "stranger.pem")
    for name, issuer in (("server", authority), ("client", authority), ("foreign", stranger)):
        leaf = issuer.issue_cert("127.0.0.1")
        leaf.private_key_pem.write_to_path(made / f"{name}.key")
        leaf.cert_chain_pems[0].write_to_path(made / f"{name}.crt")
    return made


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[ServiceProcess]:
    """A service that shows its certificate and wants one."""
    files = {"tls_certificate_file": "server.crt", "tls_key_file": "server.key", "tls_client_ca_file": "ca.pem"}
    settings = json.dumps({"api": {name: str(folder / file) for name, file in files.items()}})
    program = ("-m", "tests.support.fakes.service_main")
    with ServiceProcess(
        str(folder / "state"), "0", "1", "fast", settings, log=folder / "service.log", program=program
    ) as running:
        yield running


def credentials(folder: Path, name: str = "client", ca: str | None = "ca") -> ServiceFiles:
    return ServiceFiles(
        ca=folder / f"{ca}.pem" if ca else None, certificate=folder / f"{name}.crt", key=folder / f"{name}.key"
    )


def test_given_a_private_authority_when_a_reader_follows_then_the_service_leads_and_commands_answer(
    folder: Path, service: ServiceProcess, tmp_path: Path
) -> None:
    feed = follower(ServiceClient.of(service.api, files=credentials(folder)))
    try:
        eventually(lambda: feed.mode is Mode.SERVICE and feed.view().generation, 30, "the service's view")
        assert not feed.fallback
    finally:
        feed.stop()
    given = ("--url", service.api, "--ca-file", str(folder / "ca.pem"))
    login = ("--certificate-file", str(folder / "client.crt"), "--key-file", str(folder / "client.key"))
    for command in ("status", "bootstrap"):
        assert "cluster-a-b1:9092" in run(command, *given, *login).stdout
    with subprocess.Popen(
        [sys.executable, "-m", "discovery.cli.app", "watch", *given, *login],
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "200"}, stdout=subprocess.PIPE, text=True,
    ) as watching:  # fmt: skip
        assert watching.stdout is not None
        killer = threading.Timer(90, watching.kill)
        killer.start()
        try:
            assert any("cluster-a-b1:9092" in line for line in watching.stdout), "the picture of the first view"
        finally:
            killer.cancel()
            watching.send_signal(signal.SIGINT)
            watching.stdout.read()
    assert watching.returncode == 0
    removal = run("removal", "--brokers", "3", *given, *login, "--json")
    assert json.loads(removal.stdout)["brokers"] == [3], removal.stderr


def test_given_the_environments_authorities_when_asked_then_they_are_trusted(
    folder: Path, service: ServiceProcess
) -> None:
    login = ("--certificate-file", str(folder / "client.crt"), "--key-file", str(folder / "client.key"))
    trusted = run("bootstrap", "--url", service.api, *login, SSL_CERT_FILE=str(folder / "ca.pem"))
    assert "cluster-a-b1:9092" in trusted.stdout, trusted.stderr
    hashed = folder / "hashed"
    hashed.mkdir()
    digest = subprocess.run(
        ["openssl", "x509", "-hash", "-noout", "-in", str(folder / "ca.pem")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (hashed / f"{digest}.0").symlink_to(folder / "ca.pem")
    trusted = run("bootstrap", "--url", service.api, *login, SSL_CERT_DIR=str(hashed))
    assert "cluster-a-b1:9092" in trusted.stdout, trusted.stderr
    refused = run("bootstrap", "--url", service.api, *login)
    assert refused.returncode == 3
    assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr
    assert "--ca-file" in refused.stderr


@pytest.mark.parametrize(
    ("name", "ca", "said"), [("client", "stranger", "VERIFY_FAILED"), ("foreign", "ca", "does not answer")]
)
def test_given_another_authority_when_followed_then_the_embedded_loop_leads_and_says_why(
    folder: Path, service: ServiceProcess, name: str, ca: str, said: str
) -> None:
    with pytest.raises(ServiceSilentError, match=said):
        ServiceClient.of(service.api, files=credentials(folder, name, ca)).refresh(5.0)
    feed = follower(ServiceClient.of(service.api, files=credentials(folder, name, ca)))
    try:
        eventually(lambda: feed.mode is Mode.EMBEDDED_LOOP, 30, "the embedded loop")
        assert feed.view().sentence.startswith(f"embedded loop in place of {service.api}")
        assert said in feed.view().fallback, "what the status of the query and its metric show"
    finally:
        feed.stop()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (ServiceFiles(ca=Path("/not/there")), "discoveryCaFile, --ca-file: /not/there holds no certificate"),
        (ServiceFiles(key=Path("/not/there")), "a key without its certificate"),
        (ServiceFiles(certificate=Path("/not/there")), "are no PEM certificate and its key"),
    ],
)
def test_given_files_that_do_not_serve_when_read_then_one_line_names_the_option(files: ServiceFiles, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ServiceClient.of("https://127.0.0.1:1", files=files)


def follower(client: ServiceClient) -> SidecarFeed:
    network = FakeNetwork()
    FakeCluster(network).create_topic("t0", 3)
    interest = Interest(topics=(TopicName("t0"),))
    feed = SidecarFeed(
        client,
        bootstrap=LIST,
        interest=interest,
        embedded_loop=lambda bootstrap: EmbeddedFeed(
            bootstrap=bootstrap,
            interest=interest,
            policy=Policy(**FAST),  # type: ignore[arg-type]
            factory=FakeGatewayFactory(network),
            vetter=FakeVetter(network),
        ),
        limits=Limits(silence_seconds=2.0, age_seconds=10.0, return_seconds=1.0),
    )
    feed.start()
    return feed


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT_")}
    return subprocess.run(
        [sys.executable, "-m", "discovery.cli.app", *arguments],
        env={**kept, **environment}, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
