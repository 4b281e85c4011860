"""Certificates, keys, authorities and tokens are changed while a service runs: it and its followers take them in."""

import contextlib
import datetime as dt
import json
import re
from pathlib import Path

import pytest
import trustme

from discovery.config.client import opened_stores
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
from discovery.spark.sink.ledger import SinkLedger, kept_ledger, transaction_of, until
from discovery.spark.sink.options import parse_options as parse_sink_options
from discovery.spark.sink.preflight import prepare
from discovery.spark.source import feeds
from discovery.spark.source.cuts.ledger import Incarnation
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.shared import with_open_stores
from tests.support.fakes.feed import ScriptedFeed
from tests.support.helpers import eventually
from tests.support.ports import service_ports
from tests.support.service import ServiceProcess
from tests.support.tls import (
    KEY_PASSWORD,
    LOGIN,
    MUTUAL,
    PLAIN_MODULE,
    STORE_PASSWORD,
    USER,
    USER_PASSWORD,
    Certificates,
    make_certificates,
    secured_settings,
)

DEADLINE = 60
OLD, NEW = "an-old-token-of-more-than-16", "a-new-token-of-more-than-16"
SHORT = dt.timedelta(seconds=20)


def write(path: Path, content: str | bytes) -> None:
    """Put a file in another's place at once, as Kubernetes does."""
    path.with_suffix(".partial").write_bytes(content.encode() if isinstance(content, str) else content)
    path.with_suffix(".partial").replace(path)


def present(folder: Path, authority: trustme.CA, ends: dt.datetime) -> None:
    """Give the service a certificate until then, and its followers the authority."""
    show(folder / "server.pem", authority, ends)
    write(folder / "ca.pem", authority.cert_pem.bytes())


def show(path: Path, authority: trustme.CA, ends: dt.datetime | None = None) -> Path:
    """Write a certificate of this authority and its key."""
    leaf = authority.issue_cert("127.0.0.1", not_after=ends)
    write(path, leaf.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes())
    return path


def configured(folder: Path, api: str) -> tuple[str, ...]:
    """Write the configuration of a service over TLS, with more about its API; returns its arguments."""
    certificate = json.dumps(str(folder / "server.pem"))
    (folder / "config.toml").write_text(
        f"[api]\ntls_certificate_file = {certificate}\ntls_key_file = {certificate}\n{api}\n"
        '[clusters.main]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    return ("--config", str(folder / "config.toml"), "--state-dir", str(folder / "state"), *service_ports(), "--json")


def answers(client: ServiceClient) -> str:
    """Ask once; return what came of it."""
    try:
        client._send("GET", "/v1/consumers/nobody", timeout_seconds=2.0)
    except ServiceSilentError as error:
        return str(error)
    return ""


def once(service: ServiceProcess, files: ServiceFiles) -> str:
    """Ask over a new connection."""
    with contextlib.closing(ServiceClient.of(service.api, files=files)) as client:
        return answers(client)


def says(client: ServiceClient, what: str) -> None:
    eventually(lambda: what in answers(client), DEADLINE, f"{what}, not {answers(client)}")


def expiry(service: ServiceProcess, use: str, file: str = "") -> float:
    pattern = rf'certificate_expiry_timestamp_seconds{{file="[^"]*{file}",use="{use}"}} (\S+)'
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
    arguments = configured(tmp_path, f"token_file = '{tmp_path}/token'")
    with ServiceProcess(*arguments, log=tmp_path / "log") as service:
        follower = ServiceClient.of(service.api, files=files)
        says(follower, "answered 404: consumer 'nobody'")
        assert expiry(service, "api") == pytest.approx(ends.timestamp(), abs=1)
        eventually(lambda: "certificate has expired" in once(service, files), DEADLINE, "an end")
        later = dt.datetime.now(dt.UTC) + dt.timedelta(days=9)
        present(tmp_path, trustme.CA(), later)
        says(follower, "answered 404: consumer 'nobody'")
        eventually(lambda: expiry(service, "api") == pytest.approx(later.timestamp(), abs=1), DEADLINE, "the new end")

        write(tmp_path / "token", f"{OLD}\n{NEW}\n")
        newer = ServiceFiles(token=_file(tmp_path / "n", NEW), ca=files.ca)
        eventually(lambda: "answered 404" in once(service, newer), DEADLINE, "the new token to be let in")
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


def test_given_other_authorities_of_clients_when_written_then_the_same_service_lets_theirs_in_alone(
    tmp_path: Path,
) -> None:
    before, after = trustme.CA(), trustme.CA()
    present(tmp_path, trustme.CA(), dt.datetime.now(dt.UTC) + dt.timedelta(days=9))
    write(tmp_path / "clients.pem", before.cert_pem.bytes())
    old, new = (
        ServiceFiles(ca=tmp_path / "ca.pem", certificate=show(tmp_path / f"{name}.pem", authority))
        for name, authority in (("old", before), ("new", after))
    )
    arguments = configured(tmp_path, f"tls_client_ca_file = '{tmp_path}/clients.pem'")
    with ServiceProcess(*arguments, log=tmp_path / "log") as service:
        assert "answered 404: consumer 'nobody'" in once(service, old)
        assert "does not answer" in once(service, new)
        write(tmp_path / "clients.pem", after.cert_pem.bytes())
        eventually(lambda: "answered 404" in once(service, new), DEADLINE, "clients of the new authority")
        assert "does not answer" in once(service, old)
        assert expiry(service, "api_clients") > 0
        assert service.stop()[0] == 0, "the same process all the time"


def test_given_a_follower_whose_own_certificate_is_refused_when_it_is_renewed_then_it_is_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_client, "_ROTATION_CHECK_SECONDS", 0.0)
    wanted = trustme.CA()
    present(tmp_path, trustme.CA(), dt.datetime.now(dt.UTC) + dt.timedelta(days=9))
    write(tmp_path / "clients.pem", wanted.cert_pem.bytes())
    own = show(tmp_path / "own.pem", trustme.CA())
    arguments = configured(tmp_path, f"tls_client_ca_file = '{tmp_path}/clients.pem'")
    with ServiceProcess(*arguments, log=tmp_path / "log") as service:
        follower = ServiceClient.of(service.api, files=ServiceFiles(ca=tmp_path / "ca.pem", certificate=own))
        with contextlib.closing(follower):
            says(follower, "does not answer")
            show(own, wanted)
            says(follower, "answered 404: consumer 'nobody'")


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


FORMS = {"pem": ("ca.pem", "client.pem"), "pkcs12": ("trust.p12", "client.p12"), "jks": ("trust.jks", "client.jks")}
"""Trust and key store of one client by form."""


@pytest.mark.kafka
def test_given_stores_and_a_login_that_brokers_refuse_when_rotated_then_loops_read_them_without_a_restart(
    tmp_path: Path,
) -> None:
    for name in ("good", "other"):
        (tmp_path / name).mkdir()
    good, other = make_certificates(tmp_path / "good"), make_certificates(tmp_path / "other")
    listeners = {name: secured_settings(good).listeners[name] for name in (MUTUAL, LOGIN)}

    def hold(made: Certificates, password: str) -> None:
        """Give the service these stores, and a login with this password."""
        for form, (trust, key) in FORMS.items():
            write(tmp_path / f"{form}.trust", Path(made.path(trust)).read_bytes())
            write(tmp_path / f"{form}.key", Path(made.path(key)).read_bytes())
        write(tmp_path / "jaas", f'{PLAIN_MODULE} required username="{USER}" password="{password}";\n')

    hold(other, "wrong")
    with LocalKafka(ClusterSettings(brokers=1, listeners=listeners)) as kafka:
        stores = "".join(
            f'[clusters.{form}]\nbootstrap_servers = "{kafka.address(1, listener=MUTUAL)}"\n'
            f'[clusters.{form}.client]\n"security.protocol" = "SSL"\n"ssl.key.password" = "{KEY_PASSWORD}"\n'
            + "".join(
                f'"ssl.{side}store.location" = "{tmp_path}/{form}.{side}"\n'
                f'"ssl.{side}store.password" = "{STORE_PASSWORD}"\n'
                for side in ("trust", "key")
            )
            for form in FORMS
        )
        login = (
            f'[clusters.login]\nbootstrap_servers = "{kafka.address(1, listener=LOGIN)}"\n'
            '[clusters.login.client]\n"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "PLAIN"\n'
            f'"ssl.truststore.location" = "{good.path("ca.pem")}"\n"sasl.jaas.config_file" = "{tmp_path}/jaas"\n'
        )
        (tmp_path / "config.toml").write_text(stores + login)
        arguments = ("--config", str(tmp_path / "config.toml"), "--state-dir", str(tmp_path / "state"))
        with ServiceProcess(*arguments, *service_ports(), "--json", log=tmp_path / "log") as service:

            def brokers(name: str) -> str:
                return service.get(f"/v1/clusters/{name}/brokers").text

            def state(name: str) -> str:
                return str(service.json(f"/v1/clusters/{name}/status")["state"])

            for name, verdict in {**dict.fromkeys(FORMS, "tls_failed"), "login": "auth_failed"}.items():
                eventually(lambda: verdict in brokers(name), DEADLINE, f"a refusal of {name}")  # noqa: B023
            for form in FORMS:
                assert expiry(service, "kafka_trust", f"{form}.trust") > 0
                assert expiry(service, "kafka_identity", f"{form}.key") > 0
            hold(good, USER_PASSWORD)
            for name in (*FORMS, "login"):
                eventually(lambda: state(name) == "fresh", DEADLINE, f"a view of {name}")  # noqa: B023
            assert service.stop()[0] == 0, "the same process all the time"
    assert '"reload_refused"' not in (tmp_path / "log").read_text()


@pytest.mark.kafka
def test_given_a_sink_and_a_ledger_in_kafka_when_both_sides_change_authority_then_their_next_clients_take_it_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_stores, "_CONTENTS_CHECK_SECONDS", 0.0)
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = make_certificates(tmp_path / "old"), make_certificates(tmp_path / "new")

    def hold(made: Certificates) -> None:
        """Give them to the broker, which reads them when it starts, and to the query."""
        for name in ("ca.pem", "broker.pem", "client.pem"):
            write(tmp_path / name, made.text(name))

    hold(old)
    listeners = {MUTUAL: secured_settings(Certificates(tmp_path)).listeners[MUTUAL]}
    with LocalKafka(ClusterSettings(brokers=1, listeners=listeners)) as kafka:
        kafka.create_topic("events", 1, 1)
        given = {
            "kafka.bootstrap.servers": kafka.address(1, listener=MUTUAL),
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
            "kafka.ssl.keystore.location": str(tmp_path / "client.pem"),
            "kafka.ssl.key.password": KEY_PASSWORD,
            "stateDir": str(tmp_path / "state"),
        }
        sink = parse_sink_options({**given, "sinkId": "s", "topic": "events"}).opened()
        source = with_open_stores(parse_options({**given, "subscribe": "events"}))
        ledger = feeds._kafka_ledger(source, "dau", TopicName("cuts"), ScriptedFeed(), 30)
        ledger.open()

        def batch() -> SinkLedger:
            plan = prepare(sink)
            transaction_of(plan, 0).fence(until(30))
            with kept_ledger(plan) as kept:
                kept.control(timeout_seconds=30)
            return kept

        before = batch()
        assert batch() is before
        hold(new)
        kafka.kill([1])
        kafka.restart([1])
        ledger.append([Incarnation(number=1)])
        assert batch() is not before, "its clients would go on with the old key"
