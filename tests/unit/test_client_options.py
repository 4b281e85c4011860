"""Client options of the JVM, each with its decided fate."""

import contextlib
import pickle

import pytest
from confluent_kafka import Consumer, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from discovery.config import client_tables as tables
from discovery.config.client_options import ClientOptions, map_client_options
from discovery.config.jaas import parse_jaas
from discovery.core.errors import ConfigError
from discovery.core.model import Isolation

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PEM = "-----BEGIN CERTIFICATE----- QUJD REVG -----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----"


def mapped(**options: str) -> dict[str, str]:
    """Map `fetch_min_bytes="1"` as `kafka.fetch.min.bytes`; without what is always there."""
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    properties = dict(map_client_options(given).librdkafka)
    properties.pop("isolation.level")
    return properties


def refusal(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        mapped(**options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def sasl(module: str, mechanism: str, login: str) -> dict[str, str]:
    return mapped(
        security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_jaas_config=f"{module} required {login};"
    )


def test_given_no_options_then_uncommitted_records_are_read_as_the_jvm_client_does() -> None:
    options = map_client_options({})
    assert options.librdkafka == {"isolation.level": "read_uncommitted"}
    assert options.isolation is Isolation.READ_UNCOMMITTED


def test_given_read_committed_then_it_is_known_and_passed_on() -> None:
    options = map_client_options({"kafka.isolation.level": "READ_COMMITTED"})
    assert options.librdkafka["isolation.level"] == "read_committed"
    assert options.isolation is Isolation.READ_COMMITTED


def test_given_names_with_and_without_prefix_in_any_case_then_they_mean_the_same() -> None:
    assert map_client_options({"KAFKA.Client.Rack": "r"}) == map_client_options({"client.rack": "r"})


@pytest.mark.parametrize(
    ("jvm", "value", "librdkafka"),
    [
        ("request.timeout.ms", "30000", "socket.timeout.ms"),
        ("fetch.max.wait.ms", "500", "fetch.wait.max.ms"),
        ("receive.buffer.bytes", "65536", "socket.receive.buffer.bytes"),
        ("send.buffer.bytes", "131072", "socket.send.buffer.bytes"),
        ("fetch.min.bytes", "1", "fetch.min.bytes"),
        ("max.partition.fetch.bytes", "1048576", "max.partition.fetch.bytes"),
        ("metadata.max.age.ms", "300000", "metadata.max.age.ms"),
        ("reconnect.backoff.max.ms", "1000", "reconnect.backoff.max.ms"),
        ("socket.connection.setup.timeout.ms", "10000", "socket.connection.setup.timeout.ms"),
        ("client.id", "me", "client.id"),
    ],
)
def test_given_an_option_of_the_jvm_then_librdkafka_gets_it_under_its_own_name(
    jvm: str, value: str, librdkafka: str
) -> None:
    options = map_client_options({f"kafka.{jvm}": value})
    assert options.librdkafka[librdkafka] == value


def test_given_the_jvms_minus_one_for_buffers_then_the_system_decides() -> None:
    assert mapped(receive_buffer_bytes="-1") == {"socket.receive.buffer.bytes": "0"}


def test_given_a_plain_login_then_user_and_password_are_read() -> None:
    properties = sasl(PLAIN_MODULE, "PLAIN", r'username="alice" password="a\"b;c\\d"')
    assert properties == {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
        "sasl.username": "alice", "sasl.password": 'a"b;c\\d',
    }  # fmt: skip


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_given_a_scram_login_then_user_and_password_are_read(mechanism: str) -> None:
    properties = sasl(SCRAM_MODULE, mechanism, "\n  username=alice\n  password='s p'\n  tokenauth=true")
    assert (properties["sasl.username"], properties["sasl.password"]) == ("alice", "s p")


def test_given_client_credentials_then_librdkafka_fetches_tokens_itself() -> None:
    properties = mapped(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f'{OAUTH_MODULE} required clientId="id" clientSecret="s" scope="x" extension_region="l";',
        sasl_oauthbearer_token_endpoint_url="https://issuer.example/token",  # noqa: S106 - an address
        sasl_login_callback_handler_class="org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    )
    assert properties["sasl.oauthbearer.method"] == "oidc"
    assert properties["sasl.oauthbearer.client.id"] == "id"
    assert properties["sasl.oauthbearer.client.secret"] == "s"
    assert properties["sasl.oauthbearer.scope"] == "x"
    assert properties["sasl.oauthbearer.extensions"] == "region=l"


def test_given_a_pem_trust_store_as_text_on_one_line_then_it_is_wrapped_for_openssl() -> None:
    expected = "-----BEGIN CERTIFICATE-----\nQUJDREVG\n-----END CERTIFICATE-----\n"
    assert mapped(ssl_truststore_certificates=PEM) == {"ssl.ca.pem": expected}


def test_given_pem_files_then_librdkafka_reads_them() -> None:
    properties = mapped(
        ssl_truststore_type="PEM", ssl_truststore_location="/ca.pem",
        ssl_keystore_type="PEM", ssl_keystore_location="/me.pem", ssl_key_password="p",  # noqa: S106
    )  # fmt: skip
    assert properties == {
        "ssl.ca.location": "/ca.pem", "ssl.key.location": "/me.pem", "ssl.certificate.location": "/me.pem",
        "ssl.key.password": "p",
    }  # fmt: skip


def test_given_a_pem_key_as_text_then_key_and_chain_go_together() -> None:
    properties = mapped(ssl_keystore_key=KEY, ssl_keystore_certificate_chain=PEM)
    assert set(properties) == {"ssl.key.pem", "ssl.certificate.pem"}
    assert "kafka.ssl.keystore.certificate.chain: it is missing" in refusal(ssl_keystore_key=KEY)


def test_given_a_pkcs12_key_store_then_openssl_opens_it() -> None:
    properties = mapped(
        ssl_keystore_type="PKCS12",
        ssl_keystore_location="/me.p12",
        ssl_keystore_password="p",  # noqa: S106
    )
    assert properties == {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "p"}


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_given_a_trust_store_of_the_jvm_then_the_conversion_is_named(kind: str) -> None:
    text = refusal(ssl_truststore_location="/x", ssl_truststore_type=kind)
    assert text.startswith(f"kafka.ssl.truststore.location: a trust store of type {kind}")
    assert "kafka.ssl.truststore.type=PEM" in text


def test_given_a_store_without_type_then_it_is_taken_for_jks_as_the_jvm_does() -> None:
    assert "type JKS" in refusal(ssl_keystore_location="/x")
    assert "type JKS" in refusal(ssl_truststore_location="/x")


def test_given_text_that_is_no_pem_then_it_is_not_repeated() -> None:
    assert "hunter2" not in refusal(ssl_keystore_key="hunter2", ssl_keystore_certificate_chain=PEM)


@pytest.mark.parametrize(("given", "expected"), [("", "none"), ("https", "https"), ("HTTPS", "https")])
def test_given_a_host_check_then_empty_means_none(given: str, expected: str) -> None:
    assert mapped(ssl_endpoint_identification_algorithm=given) == {"ssl.endpoint.identification.algorithm": expected}


@pytest.mark.parametrize("name", sorted(tables.REFUSED))
def test_given_an_option_that_cannot_be_honoured_then_the_remedy_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="is not supported: ") as caught:
        map_client_options({f"kafka.{name}": "x"})
    assert tables.REFUSED[name] in str(caught.value)


@pytest.mark.parametrize("name", sorted(tables.WITHOUT_EFFECT))
def test_given_an_option_without_meaning_here_then_it_is_accepted_with_a_reason(name: str) -> None:
    options = map_client_options({f"kafka.{name}": "5"})
    assert options.librdkafka == map_client_options({}).librdkafka
    assert options.without_effect == {f"kafka.{name}": tables.WITHOUT_EFFECT[name]}


def test_given_a_typing_mistake_then_the_nearest_name_is_offered() -> None:
    text = refusal(fetch_min_byte="1")
    assert text == "kafka.fetch.min.byte: unknown client option; did you mean kafka.fetch.min.bytes?"


@pytest.mark.parametrize("value", ["5s", "", "-5", "1e3", "99999999", "٣٠٠٠"])
def test_given_a_number_out_of_range_then_option_value_and_limit_are_named(value: str) -> None:
    text = refusal(request_timeout_ms=value)
    assert text.startswith("kafka.request.timeout.ms (socket.timeout.ms)")
    assert repr(value.strip()) in text
    assert "10..300000" in text


def test_given_kerberos_then_the_alternatives_are_named() -> None:
    assert "use PLAIN, SCRAM or OAUTHBEARER" in refusal(sasl_mechanism="GSSAPI")


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"security_protocol": "SASL_SSL"}, "kafka.sasl.mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "kafka.sasl.jaas.config"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "kafka.sasl.oauthbearer.token.endpoint.url",
        ),
    ],
)
def test_given_a_login_protocol_without_a_login_then_the_missing_option_is_named(
    options: dict[str, str], missing: str
) -> None:
    assert refusal(**options).startswith(f"{missing}: it is missing")


@pytest.mark.parametrize(
    "text",
    [
        "SECRET",
        f'{PLAIN_MODULE} required username="u" password="SECRET"',
        f'{PLAIN_MODULE} required username="u" password="SECRET;',
        f"{PLAIN_MODULE} required username=SECRET;",
        f'{PLAIN_MODULE} required username="u" password="SECRET"; second.Module required;',
        'com.sun.security.auth.module.Krb5LoginModule required keyTab="SECRET";',
        f'{SCRAM_MODULE} required username="u" password="SECRET";',
    ],
)
def test_given_a_login_that_cannot_be_used_then_no_part_of_it_is_repeated(text: str) -> None:
    message = refusal(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=text)
    assert "SECRET" not in message
    assert "kafka.sasl.jaas.config" in message


@given(user=st.text(), password=st.text())
def test_given_any_user_and_password_when_quoted_then_they_come_back_unchanged(user: str, password: str) -> None:
    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    login = parse_jaas(f"{PLAIN_MODULE} required username={quoted(user)} password={quoted(password)};", option="o")
    assert (login.module, login.options) == ("PlainLoginModule", {"username": user, "password": password})


@given(text=st.text())
def test_given_any_text_as_a_login_then_it_is_read_or_refused_in_one_way(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_jaas(text, option="o").module


def test_given_secrets_then_no_representation_shows_them() -> None:
    options = map_client_options(
        {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{PLAIN_MODULE} required username="u" password="SECRET";',
            "kafka.ssl.key.password": "SECRET",
        }
    )
    assert "SECRET" not in f"{options!r} {options!s}"
    assert "SECRET" not in repr(parse_jaas(f'{PLAIN_MODULE} required password="SECRET";', option="o"))
    assert options.librdkafka["sasl.password"] == "SECRET"


def test_given_options_when_pickled_for_a_worker_then_they_are_the_same() -> None:
    options = map_client_options({"kafka.client.id": "x"})
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own bytes


def test_given_reading_options_then_a_client_that_only_asks_does_not_get_them() -> None:
    options = ClientOptions({"fetch.min.bytes": "1", "isolation.level": "read_committed", "client.id": "x"})
    assert options.connection == {"client.id": "x"}


def test_given_every_name_of_the_tables_then_it_has_exactly_one_fate() -> None:
    fates = [tables.SAME, tables.RENAMED, tables.STORES, tables.COMPOSED, tables.WITHOUT_EFFECT, tables.REFUSED]
    names = [name for fate in fates for name in fate]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", sorted(tables.SAME - {"ssl.ca.location", "ssl.crl.location"}))
def test_given_a_name_that_is_passed_on_then_librdkafka_knows_it(name: str) -> None:
    low = str(tables.RANGES[name][0]) if name in tables.RANGES else None
    value = low or tables.CHOICES.get(name, ("",))[0] or _SAMPLES.get(name, "x")
    options: dict[str, object] = {"group.id": "g", "log_level": 0, name: value}
    if name == "fetch.max.bytes":
        options["message.max.bytes"] = "1000"
    assert "No such configuration property" not in _complaint(options)


def _complaint(options: dict[str, object]) -> str:
    """Return why librdkafka refuses the options; many sample values are refused, so that is no failure."""
    try:
        Consumer(options)
    except KafkaException as refused:
        return str(refused.args[0].str())
    return ""


_SAMPLES = {"debug": "conf", "check.crcs": "true"}
