"""Stores of the JVM, made by its own tools, opened without it where that can be."""

import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from discovery.config.client import keytool, opened_stores
from discovery.config.client.opened_stores import fresh, last_read, open_stores
from discovery.config.client.options import ClientOptions, map_client_options
from discovery.core.errors import ConfigError
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.shared import fetch_settings, with_open_stores
from tests.support.tls import KEY_PASSWORD, SECRETS, STORE_PASSWORD, Certificates, accepted, make_certificates


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def opened(options: dict[str, str]) -> ClientOptions:
    return open_stores(map_client_options(options))


def key_store(location: str, **more: str) -> dict[str, str]:
    return {"kafka.ssl.keystore.location": location} | {
        f"kafka.ssl.{name.replace('_', '.')}": value for name, value in more.items()
    }


def refusal(options: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        opened(options)
    text = str(caught.value)
    assert "\n" not in text
    assert not any(secret in text for secret in SECRETS)
    return text


@pytest.mark.parametrize("form", ["pem-files", "pkcs12", "jks"])
def test_given_one_client_in_any_form_when_opened_then_key_and_chain_are_the_same_pem(
    made: Certificates, form: str
) -> None:
    options = opened(accepted(made)[form][1])
    assert options.stores == ()
    assert options.librdkafka["ssl.certificate.pem"].strip() == made.text("client.crt").strip()
    assert options.librdkafka["ssl.ca.pem"].strip() == made.text("ca.pem").strip()
    assert "PRIVATE KEY" in options.librdkafka["ssl.key.pem"]
    locked = "ENCRYPTED" in options.librdkafka["ssl.key.pem"]
    assert ("ssl.key.password" in options.librdkafka) == locked
    assert not any(location in str(options.librdkafka) for location in ("client.", "trust."))
    assert options.connection


def test_given_a_renewed_store_when_a_client_is_made_again_then_it_gets_what_the_file_holds_now(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opened_stores, "_CONTENTS_CHECK_SECONDS", 0.0)
    store = tmp_path / "key.pem"
    store.write_text(made.text("stranger-client.pem"))
    options = opened(key_store(str(store), keystore_type="PEM", key_password=KEY_PASSWORD))
    assert fresh(options) is options, "nothing was changed"
    elsewhere = pickle.dumps(options)
    store.write_text("-----BEGIN half a file")
    assert fresh(options).librdkafka == options.librdkafka
    assert fresh(options).librdkafka == options.librdkafka
    assert [one for one in caplog.messages if one.startswith("store_not_read_again ")] == caplog.messages[-1:]
    store.write_text(made.text("client.pem"))
    assert last_read(options) is options, "nobody has looked"
    assert fresh(options).librdkafka["ssl.certificate.pem"].strip() == made.text("client.crt").strip()
    assert last_read(options) == fresh(options)
    assert not any(secret in caplog.text for secret in SECRETS)
    store.write_text(made.text("stranger-client.pem"))
    with monkeypatch.context() as broken:
        broken.setattr(opened_stores, "_key", lambda _: (_ for _ in ()).throw(ConfigError("keytool took too long")))
        assert fresh(options).librdkafka["ssl.certificate.pem"].strip() == made.text("client.crt").strip()
    assert fresh(options).librdkafka == options.librdkafka, "a content that could not be read once is read later"
    code = (
        "import sys, pickle; from discovery.config.client.opened_stores import fresh\n"
        "options = pickle.loads(sys.stdin.buffer.read()); assert fresh(options) is options"
    )
    subprocess.run([sys.executable, "-c", code], input=elsewhere, check=True, timeout=60)


def test_given_a_renewed_store_when_tasks_are_planned_then_their_clients_get_it(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_stores, "_CONTENTS_CHECK_SECONDS", 0.0)
    store = tmp_path / "trust.pem"
    store.write_text(made.text("stranger.pem"))
    named = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "kafka.ssl.truststore.location": str(store)}
    options = with_open_stores(parse_options(named))
    before = fetch_settings(options)
    store.write_text(made.text("ca.pem"))
    after = fetch_settings(options).client_options
    assert after["ssl.ca.pem"].strip() == made.text("ca.pem").strip()
    assert {**before.client_options, "ssl.ca.pem": after["ssl.ca.pem"]} == after


def test_given_no_stores_when_opened_then_nothing_is_done() -> None:
    options = map_client_options({"kafka.client.id": "x"})
    assert open_stores(options) is options


def test_given_a_jks_trust_store_without_a_password_when_opened_then_it_is_read_as_a_jvm_does(
    made: Certificates,
) -> None:
    options = opened({"kafka.ssl.truststore.location": made.path("trust.jks")})
    assert options.librdkafka["ssl.ca.pem"].strip() == made.text("ca.pem").strip()


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("client.p12", {"keystore_password": "wrong"}, "correct kafka.ssl.keystore.password"),
        ("client.jks", {"keystore_password": "wrong"}, "correct kafka.ssl.keystore.password"),
        (
            "client.jks",
            {"keystore_password": STORE_PASSWORD, "key_password": "wrong"},
            "correct kafka.ssl.key.password",
        ),
        ("client.pem", {"key_password": "wrong"}, "kafka.ssl.key.password: the password does not open"),
        ("client.pem", {}, "kafka.ssl.key.password: it is missing"),
        ("ca.pem", {}, "it needs one key, then its certificate chain"),
        ("trust.jks", {"keystore_password": STORE_PASSWORD}, "holds no private key"),
        ("trust.p12", {"keystore_password": STORE_PASSWORD}, "holds no private key"),
        ("missing.jks", {}, "No such file"),
        ("", {}, "Is a directory"),
    ],
)
def test_given_a_key_store_that_cannot_be_used_then_option_file_and_remedy_are_named(
    made: Certificates, name: str, more: dict[str, str], expected: str
) -> None:
    text = refusal(key_store(made.path(name), **more))
    assert expected in text
    assert made.path(name) in text


def test_given_a_file_that_is_no_store_then_the_forms_are_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    assert "neither PEM, PKCS12 nor JKS" in refusal({"kafka.ssl.truststore.location": str(tmp_path / "x")})
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----")
    assert "holds no certificate" in refusal({"kafka.ssl.truststore.location": str(tmp_path / "key.pem")})


def test_given_two_keys_in_a_jks_store_then_it_is_said_how_to_take_one_out(made: Certificates, tmp_path: Path) -> None:
    both = tmp_path / "two.jks"
    for alias in ("one", "two"):
        subprocess.run(
            [
                keytool.keytool_command(), "-genkeypair", "-alias", alias, "-keyalg", "EC", "-dname", f"CN={alias}",
                "-storetype", "JKS", "-keystore", str(both), "-storepass", STORE_PASSWORD, "-keypass", KEY_PASSWORD,
            ],
            check=True, capture_output=True,
        )  # fmt: skip
    text = refusal(key_store(str(both), keystore_password=STORE_PASSWORD))
    assert "2 private keys (one, two)" in text
    assert "-srcalias" in text


def test_given_a_jks_store_when_opened_then_no_password_is_on_a_command_line_and_no_file_stays(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A keytool that notes how it is called and what it leaves, then does its work.
    notes = tmp_path / "notes"
    real, spy = keytool.keytool_command(), tmp_path / "bin" / "keytool"
    spy.parent.mkdir()
    spy.write_text(f'#!/bin/sh\necho "$@" >> {notes}\numask >> {notes}\nexec {real} "$@"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened(accepted(made)["jks"][1])
    seen = notes.read_text()
    assert "-importkeystore" in seen
    assert set(seen.splitlines()) & {"0077"}
    assert not any(secret in seen for secret in SECRETS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "notes"]


def test_given_no_keytool_then_a_jks_store_says_what_to_do(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    text = refusal({"kafka.ssl.truststore.location": made.path("trust.jks")})
    assert "convert it to PKCS12" in text
