"""Client options of the JVM, each with its decided fate."""

import contextlib
import pickle

import pytest
from confluent_kafka import Consumer, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from discovery.config.client import tables
from discovery.config.client.jaas import parse_jaas
from discovery.config.client.options import ClientOptions, map_client_options
from discovery.core.errors import ConfigError, StateError
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


def unsecured(login: str) -> dict[str, str]:
    properties = sasl(OAUTH_MODULE, "OAUTHBEARER", login)
    assert properties.pop("enable.sasl.oauthbearer.unsecure.jwt") == "true"
    return dict(word.split("=") for word in properties["sasl.oauthbearer.config"].split())


def test_given_an_unsecured_login_then_librdkafka_makes_the_same_token() -> None:
    assert unsecured(
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|a|b" '
        'unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_traceId="7"'
    ) == {
        "principalClaimName": "sub", "principal": "alice", "scopeClaimName": "scope", "scope": "a,b",
        "lifeSeconds": "60", "extension_traceId": "7",
    }  # fmt: skip
    named = unsecured('unsecuredLoginPrincipalClaimName="azp" unsecuredLoginStringClaim_azp="bob"')
    assert (named["principalClaimName"], named["principal"]) == ("azp", "bob")


@pytest.mark.parametrize(
    "login",
    [
        'unsecuredLoginStringClaim_other="SECRET"',
        'unsecuredLoginStringClaim_sub="SEC RET"',
        'unsecuredLoginStringClaim_sub="a" unsecuredLoginNumberClaim_exp="5"',
        'unsecuredLoginStringClaim_sub="a" ssl.truststore.location="/SECRET"',
    ],
)
def test_given_an_unsecured_login_that_cannot_be_made_then_what_can_is_named(login: str) -> None:
    message = refusal(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_jaas_config=f"{OAUTH_MODULE} required {login};",
    )
    assert "SECRET" not in message
    assert message.startswith("kafka.sasl.jaas.config: ")


def test_given_a_class_that_fetches_tokens_then_the_same_grant_is_asked_for() -> None:
    options = {
        "security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": "https://issuer.example/token",
    }  # fmt: skip
    name = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
    properties = mapped(**options, sasl_oauthbearer_jwt_retriever_class=name)
    assert properties["sasl.oauthbearer.grant.type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert "use one of" in refusal(**options, sasl_oauthbearer_jwt_retriever_class="my.Retriever")
    assert "an https address" in refusal(**{**options, "sasl_oauthbearer_token_endpoint_url": "file:///token"})


def test_given_a_login_class_of_the_users_then_other_ways_to_log_in_are_named() -> None:
    assert "log in with SCRAM" in refusal(sasl_login_callback_handler_class="my.Handler")
    assert "SCRAM-SHA-512" in refusal(sasl_mechanism="AWS_MSK_IAM")


def test_given_cipher_suites_then_those_of_tls_1_2_are_chosen_and_those_of_1_3_are_said_to_stay() -> None:
    options = map_client_options(
        {"kafka.ssl.cipher.suites": "TLS_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
    )
    assert options.librdkafka["ssl.cipher.suites"] == "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    assert "always offered" in options.without_effect["kafka.ssl.cipher.suites"]


def test_given_tls_protocols_then_old_ones_alone_are_refused() -> None:
    options = map_client_options({"kafka.ssl.enabled.protocols": "TLSv1.3,TLSv1.2"})
    assert "the broker chooses" in options.without_effect["kafka.ssl.enabled.protocols"]
    assert "let the brokers take TLSv1.2" in refusal(ssl_enabled_protocols="TLSv1,TLSv1.1")


def test_given_a_pem_trust_store_as_text_on_one_line_then_it_is_wrapped_for_openssl() -> None:
    expected = "-----BEGIN CERTIFICATE-----\nQUJDREVG\n-----END CERTIFICATE-----\n"
    assert mapped(ssl_truststore_certificates=PEM) == {"ssl.ca.pem": expected}


def test_given_stores_in_files_then_they_wait_to_be_opened_and_no_client_can_be_made_before() -> None:
    options = map_client_options(
        {
            "kafka.ssl.truststore.location": "/ca.jks", "kafka.ssl.keystore.location": "/me.p12",
            "kafka.ssl.keystore.type": "PKCS12", "kafka.ssl.keystore.password": "SECRET",
        }
    )  # fmt: skip
    assert [(s.side.value, s.location) for s in options.stores] == [("truststore", "/ca.jks"), ("keystore", "/me.p12")]
    assert "SECRET" not in f"{options.stores!r} {options!r}"
    with pytest.raises(StateError, match="not opened") as caught:
        _ = options.connection
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"ssl_truststore_location": "/a", "ssl_truststore_certificates": PEM},
        {"ssl_truststore_location": "/a", "ssl_ca_location": "/b"},
        {"ssl_keystore_location": "/a", "ssl_key_pem": "x"},
    ],
)
def test_given_the_same_store_twice_then_one_has_to_go(options: dict[str, str]) -> None:
    assert "keep one of the two" in refusal(**options)


def test_given_a_store_type_nobody_knows_then_the_conversion_is_named() -> None:
    assert refusal(ssl_keystore_location="/x", ssl_keystore_type="BCFKS").startswith("kafka.ssl.keystore.type: 'BCFKS'")


def test_given_a_pem_key_as_text_then_key_and_chain_go_together() -> None:
    properties = mapped(ssl_keystore_key=KEY, ssl_keystore_certificate_chain=PEM)
    assert set(properties) == {"ssl.key.pem", "ssl.certificate.pem"}
    assert "kafka.ssl.keystore.certificate.chain: it is missing" in refusal(ssl_keystore_key=KEY)


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
