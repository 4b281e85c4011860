"""Certificates, keys, authorities and tokens are changed while a service runs: it and its followers take them in."""

import contextlib
import datetime as dt
import json
import re
from pathlib import Path

import pytest
import trustme

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import map_client_options
from discovery.config.service_files import ServiceFiles
from discovery.core.interest import Interest
from discovery.core.model import TopicName, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.feed import service_client
from discovery.feed.base import verdicts
from discovery.feed.embedded import EmbeddedFeed
from discovery.feed.service_client import ServiceClient, ServiceSilentError
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.helpers import eventually
from tests.support.ports import service_ports
from tests.support.service import ServiceProcess
from tests.support.tls import KEY_PASSWORD, MUTUAL, make_certificates, secured_settings

DEADLINE = 60
OLD, NEW = "an-old-token-of-more-than-16", "a-new-token-of-more-than-16"
SHORT = dt.timedelta(seconds=20)


def write(path: Path, text: str) -> None:
    """Put a file in another's place at once, as Kubernetes does."""
    path.with_suffix(".partial").write_text(text)
    path.with_suffix(".partial").replace(path)


def present(folder: Path, authority: trustme.CA, ends: dt.datetime) -> None:
    """Give the service a certificate until then, and its followers the authority."""
    leaf = authority.issue_cert("127.0.0.1", not_after=ends)
    write(folder / "server.pem", (leaf.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes()).decode())
    write(folder / "ca.pem", authority.cert_pem.bytes().decode())


def expiry(service: ServiceProcess, use: str) -> float:
    pattern = rf'certificate_expiry_timestamp_seconds{{file="[^"]*",use="{use}"}} (\S+)'
    found = re.search(pattern, service.probe("/metrics").text)
    return float(found[1]) if found else 0.0


def test_given_a_certificate_about_to_expire_and_a_token_when_rotated_then_service_and_follower_take_them_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_client, "_ROTATION_CHECK_SECONDS", 0.0)
    ends = dt.datetime.now(dt.UTC) + SHORT
    present(tmp_path, trustme.CA(), ends)
    for name in ("token", "follower-token"):
        write(tmp_path / name, OLD)
    files = ServiceFiles(token=tmp_path / "follower-token", ca=tmp_path / "ca.pem")
    config = tmp_path / "config.toml"
    certificate = json.dumps(str(tmp_path / "server.pem"))
    config.write_text(
        f"[api]\ntls_certificate_file = {certificate}\ntls_key_file = {certificate}\ntoken_file = '{tmp_path}/token'\n"
        '[clusters.main]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    arguments = ("--config", str(config), "--state-dir", str(tmp_path / "state"), *service_ports(), "--json")
    with ServiceProcess(*arguments, log=tmp_path / "log") as service:

        def answers(client: ServiceClient) -> str:
            try:
                client.holder("nobody")
            except ServiceSilentError as error:
                return str(error)
            return ""

        def once(files: ServiceFiles) -> str:
            client = ServiceClient.of(service.api, files=files)
            with contextlib.closing(client):
                return answers(client)

        def says(client: ServiceClient, what: str) -> None:
            eventually(lambda: what in answers(client), DEADLINE, f"{what}, not {answers(client)}")

        follower = ServiceClient.of(service.api, files=files)
        says(follower, "answered 404: consumer 'nobody'")
        assert expiry(service, "api") == pytest.approx(ends.timestamp(), abs=1)
        eventually(lambda: "certificate has expired" in once(files), DEADLINE, "an end")
        later = dt.datetime.now(dt.UTC) + dt.timedelta(days=9)
        present(tmp_path, trustme.CA(), later)
        says(follower, "answered 404: consumer 'nobody'")
        eventually(lambda: expiry(service, "api") == pytest.approx(later.timestamp(), abs=1), DEADLINE, "the new end")

        write(tmp_path / "token", f"{OLD}\n{NEW}\n")
        newer = ServiceFiles(token=_file(tmp_path / "n", NEW), ca=files.ca)
        eventually(lambda: "answered 404" in once(newer), DEADLINE, "the new token to be let in")
        says(follower, "answered 404: consumer 'nobody'")
        write(tmp_path / "token", NEW)
        says(follower, "answered 401")
        write(tmp_path / "follower-token", NEW)
        says(follower, "answered 404: consumer 'nobody'")
        follower.close()
        assert service.stop()[0] == 0, "the same process all the time"
    assert '"reload_refused"' not in (tmp_path / "log").read_text()


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.kafka
def test_given_stores_that_brokers_refuse_when_renewed_then_the_loop_of_a_query_uses_them_at_its_next_try(
    tmp_path: Path,
) -> None:
    made = make_certificates(tmp_path)
    listeners = {MUTUAL: secured_settings(made).listeners[MUTUAL]}
    write(tmp_path / "trust.pem", made.text("stranger.pem"))
    write(tmp_path / "key.pem", made.text("stranger-client.pem"))
    named = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "trust.pem"),
        "ssl.keystore.location": str(tmp_path / "key.pem"),
        "ssl.key.password": KEY_PASSWORD,
    }
    options = open_stores(map_client_options(named))
    with LocalKafka(ClusterSettings(brokers=1, listeners=listeners)) as kafka:
        kafka.create_topic("events", 2, 1)
        address = parse_bootstrap_servers(kafka.address(1, listener=MUTUAL))
        often = Policy(quarantine_cap_seconds=10)  # a minute is the default
        interest = Interest(topics=(TopicName("events"),))
        feed = EmbeddedFeed(bootstrap=address, interest=interest, client_options=options, policy=often)
        feed.start()
        try:
            eventually(lambda: "tls_failed" in verdicts(feed.view()), DEADLINE, "a refusal")
            write(tmp_path / "trust.pem", made.text("ca.pem"))
            write(tmp_path / "key.pem", made.text("client.pem"))
            eventually(lambda: len(feed.view().partitions) == 2, DEADLINE, "a view with the new key")
        finally:
            feed.stop()


@pytest.mark.kafka
def test_given_key_and_trust_stores_that_brokers_refuse_when_rotated_then_the_loop_reads_them_without_a_restart(
    tmp_path: Path,
) -> None:
    made = make_certificates(tmp_path)
    listeners = {MUTUAL: secured_settings(made).listeners[MUTUAL]}
    write(tmp_path / "trust.pem", made.text("stranger.pem"))
    write(tmp_path / "key.pem", made.text("stranger-client.pem"))
    with LocalKafka(ClusterSettings(brokers=1, listeners=listeners)) as kafka:
        config = tmp_path / "config.toml"
        config.write_text(
            f'[clusters.main]\nbootstrap_servers = "{kafka.address(1, listener=MUTUAL)}"\n'
            '[clusters.main.client]\n"security.protocol" = "SSL"\n'
            '"ssl.truststore.type" = "PEM"\n"ssl.keystore.type" = "PEM"\n'
            f'"ssl.truststore.location" = "{tmp_path}/trust.pem"\n"ssl.keystore.location" = "{tmp_path}/key.pem"\n'
            f'"ssl.key.password" = "{KEY_PASSWORD}"\n'
        )
        arguments = ("--config", str(config), "--state-dir", str(tmp_path / "state"), *service_ports(), "--json")
        with ServiceProcess(*arguments, log=tmp_path / "log") as service:
            refused = lambda: "tls_failed" in service.get("/v1/brokers").text  # noqa: E731
            eventually(refused, DEADLINE, "a refusal")
            assert expiry(service, "kafka_trust") > 0
            identity = expiry(service, "kafka_identity")
            write(tmp_path / "trust.pem", made.text("ca.pem"))
            write(tmp_path / "key.pem", made.text("client.pem"))
            eventually(lambda: service.json("/v1/status")["state"] == "fresh", DEADLINE, "a view with the new key")
            assert expiry(service, "kafka_identity") > 0
            assert identity > 0
            assert service.stop()[0] == 0, "the same process all the time"
