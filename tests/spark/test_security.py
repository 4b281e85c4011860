"""Brokers that want TLS and a login, asked with the options a JVM user has, Spark's own source beside ours."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import map_client_options
from discovery.core.errors import GatewayError
from discovery.core.model import BrokerAddress, TopicName, TopicPartition, Verdict
from discovery.core.policy import Policy
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.fetch import FetchRange, FetchSettings, fetch
from discovery.spark.fetch.cache import close_all
from tests.spark.conftest import Reading, ReadStream
from tests.support.endpoint import CONSUMER, endpoint_to, kafka_tool, properties_file
from tests.support.helpers import numbered, produce
from tests.support.manual import long_run
from tests.support.manual.markdown import blocks
from tests.support.spark.driver import SparkDriver
from tests.support.tls import (
    EXPIRED,
    KEY_PASSWORD,
    LOGIN,
    MISNAMED,
    MUTUAL,
    OPEN_LOGIN,
    SECRETS,
    STORE_PASSWORD,
    USER_PASSWORD,
    Certificates,
    accepted,
    add_users,
    deny_reading,
    make_certificates,
    password_login,
    secured_settings,
    set_password,
    trust_jks,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TOPIC = "secured"
COUNT = 50
TOKEN_SECONDS = 6
KINDS = ("plain", "scram-256", "scram-512", "oauth", "pem-files", "pem-text", "pkcs12", "jks")
OURS_ALONE = frozenset({"pem-files"})
"""Their key is encrypted as OpenSSL does today (PBES2), which Java 17 cannot open in a PEM file."""
WRONG = "Wr0ng-Secret"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(made: Certificates) -> Iterator[LocalKafka]:
    """One broker with a listener per kind of security, and records to read."""
    with LocalKafka(secured_settings(made)) as cluster:
        add_users(cluster)
        cluster.create_topic(TOPIC, 2)
        produce(cluster.bootstrap_servers, TOPIC, *numbered(COUNT))
        yield cluster


@pytest.mark.parametrize("kind", KINDS)
def test_given_the_options_of_a_jvm_client_when_read_then_the_rows_are_those_of_the_native_source(
    read_stream: ReadStream, secured: LocalKafka, made: Certificates, kind: str
) -> None:
    listener, options = accepted(made)[kind]
    given = {
        **options,
        "kafka.bootstrap.servers": secured.bootstrap_servers_of(listener),
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
    }
    ours = read_stream(given, checkpoint="ours", available_now=True)
    if kind not in OURS_ALONE:
        native = read_stream(given, checkpoint="native", format="kafka", available_now=True)
        native.wait_end()
        assert native.values() == sorted(numbered(COUNT))
    ours.wait_end()
    assert ours.values() == sorted(numbered(COUNT))


@pytest.mark.skipif(not long_run(), reason="with the other snippets: make test-docs")
def test_given_the_snippet_of_the_how_to_when_it_is_run_then_its_rows_come(
    spark: SparkSession, secured: LocalKafka, made: Certificates, tmp_path: Path
) -> None:
    (text,) = (block.text for block in blocks(Path("docs/how-to/security.md")) if block.language == "python")
    for said, meant in {
        "b1:9093,b2:9093,b3:9093": secured.bootstrap_servers_of(LOGIN),
        'password="..."': f'password="{USER_PASSWORD}"',
        "/etc/kafka/trust.jks": made.path("trust.jks"),
        '"..."': f'"{STORE_PASSWORD}"',
        '"events")': f'"{TOPIC}").option("startingOffsets", "earliest")',
    }.items():
        assert said in text
        text = text.replace(said, meant)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(text, "security.md", "exec"), names)  # noqa: S102 - our own page
    reading = Reading(names["events"], tmp_path / "checkpoint", trigger={"availableNow": True})
    reading.wait_end()
    assert reading.values() == sorted(numbered(COUNT))


def test_given_a_batch_read_with_a_jks_store_then_its_rows_come_as_in_a_stream(
    spark: SparkSession, secured: LocalKafka, made: Certificates
) -> None:
    listener, options = accepted(made)["jks"]
    given = {**options, "kafka.bootstrap.servers": secured.bootstrap_servers_of(listener), "subscribe": TOPIC}
    assert spark.read.format("kafka-discovery").options(**given).load().count() == COUNT


def _refused(options: dict[str, str], address: str) -> tuple[Verdict | None, str]:
    """Vet one address as the loop does; nothing secret may show in what it tells."""
    seen: list[tuple[Verdict | None, str]] = []
    client = open_stores(map_client_options(options))
    LibrdkafkaVetter(client, Policy()).vet(
        [parsed := BrokerAddress.parse(address)],
        full=[parsed],
        connect_timeout_seconds=2,
        request_timeout_seconds=5,
        on_outcome=lambda outcome: seen.append((outcome.failure, outcome.detail)),
    )
    assert "\n" not in seen[0][1]
    assert not any(secret in f"{seen} {client!r}" for secret in (*SECRETS, WRONG))
    return seen[0]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_given_a_wrong_password_when_vetted_then_the_login_failed_and_the_option_is_named(
    secured: LocalKafka, made: Certificates, mechanism: str
) -> None:
    options = {**password_login(mechanism, WRONG), **trust_jks(made)}
    verdict, detail = _refused(options, secured.address(1, listener=LOGIN))
    assert verdict is Verdict.AUTH_FAILED
    assert "correct kafka.sasl.jaas.config" in detail


def test_given_tls_without_a_login_when_vetted_then_the_login_is_asked_for(
    secured: LocalKafka, made: Certificates
) -> None:
    options = {"kafka.security.protocol": "SSL", **trust_jks(made)}
    verdict, detail = _refused(options, secured.address(1, listener=LOGIN))
    assert verdict is Verdict.AUTH_FAILED
    assert "SASL_SSL" in detail


@pytest.mark.parametrize(
    ("listener", "trusted", "remedy"),
    [
        (LOGIN, "stranger.pem", "put the authority that signed it into kafka.ssl.truststore.location"),
        (LOGIN, None, "put the authority that signed it into kafka.ssl.truststore.location"),
        (EXPIRED, "ca.pem", "certificate has expired; renew it"),
        (MISNAMED, "ca.pem", "not made out to 127.0.0.1; list the brokers by the names in their certificates"),
        (MUTUAL, "ca.pem", "wants a client certificate; set kafka.ssl.keystore.location"),
    ],
)
def test_given_certificates_that_do_not_fit_when_vetted_then_tls_failed_and_the_remedy_is_named(
    secured: LocalKafka, made: Certificates, listener: str, trusted: str | None, remedy: str
) -> None:
    options = {"kafka.security.protocol": "SSL"}
    if trusted:
        options["kafka.ssl.truststore.location"] = made.path(trusted)
    verdict, detail = _refused(options, secured.address(1, listener=listener))
    assert verdict is Verdict.TLS_FAILED
    assert remedy in detail


def test_given_a_client_certificate_of_a_stranger_when_vetted_then_it_is_the_one_to_change(
    secured: LocalKafka, made: Certificates
) -> None:
    options = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": made.path("ca.pem"),
        "kafka.ssl.keystore.location": made.path("stranger-client.pem"),
    }
    verdict, detail = _refused(options, secured.address(1, listener=MUTUAL))
    assert verdict is Verdict.TLS_FAILED
    assert "refuses this client's certificate" in detail


def test_given_the_host_check_switched_off_when_vetted_then_another_name_will_do(
    secured: LocalKafka, made: Certificates
) -> None:
    options = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.endpoint.identification.algorithm": "",
        **trust_jks(made),
    }
    assert _refused(options, secured.address(1, listener=MISNAMED))[0] is None


def test_given_tokens_that_expire_when_workers_read_on_then_they_are_renewed(
    secured: LocalKafka, made: Certificates
) -> None:
    options = dict(accepted(made)["oauth"][1])
    options["kafka.sasl.jaas.config"] = options["kafka.sasl.jaas.config"].replace(
        ";", f' unsecuredLoginLifetimeSeconds="{TOKEN_SECONDS}";'
    )
    client = open_stores(map_client_options(options)).librdkafka
    brokers = [BrokerAddress.parse(secured.address(1, listener=LOGIN))]
    partition = TopicPartition(TopicName("tokens"), 0)
    secured.create_topic("tokens", 1)
    until, number = time.monotonic() + 1.6 * TOKEN_SECONDS, 0
    while time.monotonic() < until:
        produce(secured.bootstrap_servers, "tokens", "x")
        for engine in ("native", "python"):
            settings = FetchSettings(client_options={"group.id": engine, **client}, engine=engine)
            ranges = [FetchRange(topic_partition=partition, start_offset=number, end_offset=number + 1)]
            assert sum(b.num_rows for b in fetch(ranges, brokers, settings, on_waiting=lambda _: None)) == 1
        number += 1
    close_all()


def test_given_a_topic_that_may_not_be_read_when_fetched_then_either_engine_fails_in_one_line(
    secured: LocalKafka, made: Certificates
) -> None:
    secured.create_topic("forbidden")
    produce(secured.bootstrap_servers, "forbidden", "x")
    deny_reading(secured, "forbidden")
    client = open_stores(map_client_options({**password_login("PLAIN"), **trust_jks(made)})).librdkafka
    brokers = (BrokerAddress.parse(secured.address(1, listener=LOGIN)),)
    ranges = [FetchRange(topic_partition=TopicPartition(TopicName("forbidden"), 0), start_offset=0, end_offset=1)]

    def failure(engine: str) -> str:
        settings = FetchSettings(client_options=client, engine=engine)
        with pytest.raises(GatewayError) as error:
            list(fetch(ranges, brokers, settings, on_waiting=lambda _: None))
        return str(error.value)

    with ThreadPoolExecutor(2) as both:
        seen = list(both.map(failure, ("native", "python")))
    wanted = "forbidden-0 cannot be read: Broker: Topic authorization failed; grant this user READ on the topic"
    assert seen == [wanted, wanted]


def test_given_a_changed_password_when_the_query_restarts_with_it_then_it_goes_on(
    read_stream: ReadStream, secured: LocalKafka, made: Certificates, topic_name: str
) -> None:
    secured.create_topic(topic_name, 1)
    old, new = "Old-Passw0rd", "New-Passw0rd"

    def read_on(password: str, *wanted: str) -> None:
        set_password(secured, "rotated", password)
        produce(secured.bootstrap_servers, topic_name, *wanted)
        login = password_login("SCRAM-SHA-512", password, user="rotated")
        options = {**login, **trust_jks(made), "kafka.bootstrap.servers": secured.bootstrap_servers_of(LOGIN)}
        reading = read_stream({**options, "subscribe": topic_name, "startingOffsets": "earliest"}, available_now=True)
        reading.wait_end()
        assert reading.values() == sorted(wanted)

    read_on(old, *numbered(10))
    read_on(new, *numbered(10, prefix="later"))


def test_given_wrong_secrets_when_queries_start_then_each_fails_in_one_line_and_no_secret_is_written_anywhere(
    driver: SparkDriver, secured: LocalKafka, made: Certificates, tmp_path: Path
) -> None:
    login, mutual = secured.bootstrap_servers_of(LOGIN), secured.bootstrap_servers_of(MUTUAL)
    keys = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.location": made.path("client.jks"),
        "kafka.ssl.key.password": KEY_PASSWORD,
    }
    cases = {
        "auth_failed": (login, {**password_login("SCRAM-SHA-512", WRONG), **trust_jks(made)}),
        "tls_failed": (
            mutual,
            {
                **keys,
                "kafka.ssl.keystore.password": STORE_PASSWORD,
                "kafka.ssl.truststore.location": made.path("stranger.pem"),
            },
        ),
        "correct kafka.ssl.keystore.password": (
            mutual,
            {**keys, "kafka.ssl.keystore.password": WRONG, **trust_jks(made)},
        ),
    }
    queries = {
        expected: driver.query(
            {
                "kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startupTimeout": "6s",
                "stateDir": str(tmp_path / "state"), **options,
            }
        )
        for expected, (bootstrap, options) in cases.items()
    }  # fmt: skip
    failures = {expected: query.wait_failure(60) for expected, query in queries.items()}
    for expected, failure in failures.items():
        assert expected in failure
        assert "Traceback" not in failure
    written = "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    for secret in (*SECRETS, WRONG, "PRIVATE KEY"):
        assert secret not in f"{failures} {written} {driver.log()}"


@pytest.mark.parametrize("listener", [LOGIN, OPEN_LOGIN])
def test_given_brokers_that_want_a_login_when_native_clients_use_the_endpoint_then_they_read_as_ever(
    read_stream: ReadStream, secured: LocalKafka, made: Certificates, listener: str
) -> None:
    options = dict(accepted(made)["scram-512"][1])
    if listener == OPEN_LOGIN:
        options["kafka.security.protocol"] = "SASL_PLAINTEXT"
    with endpoint_to(secured.bootstrap_servers_of(listener), client=options) as running:
        assert running.endpoint.shown().findings == ()
        given = {
            **options,
            "kafka.bootstrap.servers": running.endpoint.address,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
        }
        query = read_stream(given, format="kafka", available_now=True)
        query.wait_end()
        assert len(query.rows) == COUNT
        assert running.endpoint.shown().sticky is not None
        assert not running.endpoint.counts.lost, "a living broker was taken for dead"


def test_given_a_certificate_without_the_endpoints_name_when_it_leads_there_then_the_finding_predicts_the_error(
    secured: LocalKafka, made: Certificates, tmp_path: Path
) -> None:
    trust = {"kafka.security.protocol": "SSL", **trust_jks(made)}
    careless = {**trust, "kafka.ssl.endpoint.identification.algorithm": ""}
    with endpoint_to(secured.bootstrap_servers_of(MISNAMED), client=careless) as running:
        (finding,) = running.endpoint.shown().findings
        assert "made out to kafka.example.com, not to 127.0.0.1" in finding.text
        assert "give clients kafka.example.com:" in finding.text
        config = properties_file(tmp_path / "client.properties", trust)
        arguments = ["--topic", TOPIC, "--from-beginning", "--timeout-ms", "20000", "--consumer.config", config]
        done = kafka_tool(CONSUMER, ["--bootstrap-server", running.endpoint.address, *arguments])
    assert "No subject alternative names matching IP address 127.0.0.1 found" in done.stderr + done.stdout
