"""Brokers that want signed tokens, and an issuer that gives them, gives them to others alone, is silent or away."""

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trustme

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import map_client_options
from discovery.core.errors import KafkaUnreachableError
from discovery.core.model import BrokerAddress, Verdict
from discovery.core.policy import Policy
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.fetch import FetchSettings, fetch
from discovery.spark.source.batch import KafkaDiscoveryReader
from discovery.spark.source.options.parse import parse_options
from tests.support.faults import refused_port
from tests.support.fetch import closed_consumers, end_of, range_of
from tests.support.helpers import eventually, numbered, produce
from tests.support.oidc import (
    AUDIENCE,
    CLIENT_SECRET,
    TOKENS,
    Issuer,
    issuing,
    settings_with_tokens,
    silenced,
    token_login,
)
from tests.support.service import ServiceProcess, serving
from tests.support.sink import Sink

__all__ = ["closed_consumers"]

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("closed_consumers")]
TOPIC, COUNT = "orders", 20
LIFE_SECONDS = 4
WRONG = "Wrong-Secret-9"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(issuer: Issuer) -> Iterator[LocalKafka]:
    """One broker, and a topic with records."""
    with LocalKafka(settings_with_tokens(issuer)) as made:
        made.create_topic(TOPIC, 2)
        produce(made.bootstrap_servers, TOPIC, *numbered(COUNT))
        yield made


def read(cluster: LocalKafka, login: dict[str, str], **options: str) -> list[str]:
    """Read as a batch, as Spark would; returns the values."""
    servers = cluster.bootstrap_servers_of(TOKENS)
    reader = KafkaDiscoveryReader(
        parse_options({**login, "kafka.bootstrap.servers": servers, "subscribe": TOPIC, **options})
    )
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(value.decode() for batch in batches for value in batch.column("value").to_pylist())


def test_given_an_issuer_of_tokens_when_read_and_written_then_records_flow(
    cluster: LocalKafka, issuer: Issuer, tmp_path: Path
) -> None:
    login, before = token_login(issuer.url), issuer.granted
    assert read(cluster, login) == sorted(numbered(COUNT))
    cluster.create_topic("written")
    more = {**login, "kafka.bootstrap.servers": cluster.bootstrap_servers_of(TOKENS)}
    sink = Sink(cluster, tmp_path, sink_id="tokens", topic="written", more=more)
    sink.confirm(sink.write(0, ["a", "b"]))
    assert sink.visible() == ["a", "b"]
    assert issuer.granted > before


def vetted(cluster: LocalKafka, login: dict[str, str]) -> tuple[Verdict | None, str]:
    """Vet the broker as the loop does; nothing secret may show in what it says."""
    seen: list[tuple[Verdict | None, str]] = []
    LibrdkafkaVetter(open_stores(map_client_options(login)), Policy()).vet(
        [parsed := BrokerAddress.parse(cluster.bootstrap_servers_of(TOKENS))],
        full=[parsed],
        connect_timeout_seconds=2,
        request_timeout_seconds=5,
        on_outcome=lambda outcome: seen.append((outcome.failure, outcome.detail)),
    )
    assert "\n" not in seen[0][1]
    assert not any(secret in seen[0][1] for secret in (CLIENT_SECRET, WRONG))
    return seen[0]


def test_given_no_token_when_vetted_then_the_endpoint_and_what_to_look_at_are_named(
    cluster: LocalKafka, issuer: Issuer
) -> None:
    with refused_port() as nobody:
        verdict, detail = vetted(cluster, token_login(f"http://{nobody}"))
    assert verdict is Verdict.AUTH_FAILED
    assert f"no token from {nobody}: look at kafka.sasl.oauthbearer.token.endpoint.url" in detail
    verdict, detail = vetted(cluster, token_login(issuer.url, secret=WRONG))
    assert verdict is Verdict.AUTH_FAILED
    assert "unknown client or wrong secret" in detail
    assert "clientSecret in kafka.sasl.jaas.config" in detail


def test_given_a_token_for_others_when_vetted_then_the_broker_refuses_it(cluster: LocalKafka, issuer: Issuer) -> None:
    issuer.audience = "others"
    try:
        verdict, detail = vetted(cluster, token_login(issuer.url))
    finally:
        issuer.audience = AUDIENCE
    assert verdict is Verdict.AUTH_FAILED
    assert "invalid_token" in detail


def test_given_https_when_the_system_trusts_the_issuer_then_tokens_come_and_else_the_option_is_named(
    cluster: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with issuing(authority.issue_cert("127.0.0.1")) as foreign:
        _, detail = vetted(cluster, token_login(foreign.url))
        assert "unable to get local issuer certificate" in detail
        assert "for https, at kafka.https.ca.location" in detail
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        _, detail = vetted(cluster, token_login(foreign.url))
    assert foreign.granted
    assert "invalid_token" in detail, "its key is not the one that the broker knows"


def test_given_an_issuer_that_is_away_or_silent_when_a_read_starts_then_it_ends_in_time_with_one_line(
    cluster: LocalKafka, issuer: Issuer
) -> None:
    def refusal(url: str) -> str:
        began = time.monotonic()
        with pytest.raises(KafkaUnreachableError) as error:
            read(cluster, token_login(url), startupTimeout="6s")
        assert time.monotonic() - began < 12
        return str(error.value)

    with refused_port() as nobody:
        assert f"no token from {nobody}: look at" in refusal(f"http://{nobody}")
    with silenced(issuer):
        host = issuer.url.partition("://")[2]
        assert f"or {host} gives no token" in refusal(issuer.url)


def test_given_tokens_that_expire_when_all_go_on_then_all_log_in_again(
    cluster: LocalKafka, issuer: Issuer, tmp_path: Path
) -> None:
    login, servers = token_login(issuer.url), cluster.bootstrap_servers_of(TOKENS)
    cluster.create_topic("renewed")
    names = {name.removeprefix("kafka."): value for name, value in login.items()}
    lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in names.items()]
    config = tmp_path / "service.toml"
    config.write_text("\n".join(["[clusters.default.client]", *lines]) + "\n")
    more = {**login, "kafka.bootstrap.servers": servers}
    sink = Sink(cluster, tmp_path, sink_id="renewed", topic="renewed", more=more)
    issuer.life_seconds = LIFE_SECONDS
    with serving(servers, tmp_path, "--config", str(config)) as service:
        until, number = time.monotonic() + 2.5 * LIFE_SECONDS, 0
        while time.monotonic() < until:
            sink.confirm(sink.write(number, [str(number)]))
            number += 1
            end = end_of(cluster, "renewed")
            assert fetched(login, servers, end) == {"native": number, "python": number}
        # Nobody reads there, so that ends are asked for every ten seconds.
        eventually(partial(is_seen, service, end), 20, f"offset {end} at the service")
    assert number > 2


def fetched(login: dict[str, str], servers: str, end: int) -> dict[str, int]:
    """Read all with each engine, as tasks do; return how many rows came."""
    client = open_stores(map_client_options(login)).librdkafka
    found = {}
    for engine in ("native", "python"):
        settings = FetchSettings(client_options={"group.id": engine, **client}, engine=engine)
        ranges = [range_of("renewed", 0, 0, end)]
        batches = fetch(ranges, [BrokerAddress.parse(servers)], settings, on_waiting=lambda _: None)
        found[engine] = sum(batch.num_rows for batch in batches)
    return found


def is_seen(service: ServiceProcess, end: int) -> bool:
    answer = service.get("/v1/topics/renewed")
    return answer.status_code == 200 and answer.json()["partitions"][0]["high_watermark"] == end
