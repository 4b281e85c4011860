"""Certificates made for one test run, in every form a user may hold them, and brokers that ask for them."""

import datetime as dt
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import trustme
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.acls import AUTHORIZER, DENY, rule

STORE_PASSWORD, KEY_PASSWORD = "Store-Secret-1", "Key-Secret-2"
USER, USER_PASSWORD = "alice", "User-Secret-3"
SECRETS = (STORE_PASSWORD, KEY_PASSWORD, USER_PASSWORD)
LOGIN, OPEN_LOGIN, MUTUAL, EXPIRED, MISNAMED = "LOGIN", "OPENLOGIN", "MUTUAL", "EXPIRED", "MISNAMED"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_LONG_AGO = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in one folder. The client's certificate hangs on an intermediate authority that only its chain names."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


def make_certificates(folder: Path) -> Certificates:
    """Write an authority, broker certificates good and bad, and one client's in every form."""
    made = Certificates(folder)
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(made.path("ca.pem"))
    stranger.cert_pem.write_to_path(made.path("stranger.pem"))
    good = authority.issue_cert("127.0.0.1", "localhost")
    expired = authority.issue_cert("127.0.0.1", not_before=_LONG_AGO, not_after=_LONG_AGO + dt.timedelta(days=9))
    misnamed = authority.issue_cert("kafka.example.com")
    for name, leaf in {"broker": good, "expired": expired, "misnamed": misnamed}.items():
        (made.folder / f"{name}.pem").write_text(_key_text(leaf) + _chain_text(leaf))
    # The JVM refuses a certificate without any name in it, so the client has one too.
    client = authority.create_child_ca().issue_cert("client.example.com", common_name="alice")
    _write_client(made, client)
    other = stranger.issue_cert("client.example.com")
    (made.folder / "stranger-client.pem").write_text(_key_text(other) + _chain_text(other))
    _keytool(
        "-importcert", "-noprompt", "-alias", "ca", "-file", made.path("ca.pem"), "-storetype", "JKS",
        "-keystore", made.path("trust.jks"), "-storepass:env", "P", P=STORE_PASSWORD,
    )  # fmt: skip
    _keytool(
        "-importkeystore", "-noprompt", "-srckeystore", made.path("trust.jks"), "-srcstorepass:env", "P",
        "-destkeystore", made.path("trust.p12"), "-deststoretype", "PKCS12", "-deststorepass:env", "P",
        P=STORE_PASSWORD,
    )  # fmt: skip
    return made


def _write_client(made: Certificates, client: trustme.LeafCert) -> None:
    key = cast("EllipticCurvePrivateKey", load_pem_private_key(client.private_key_pem.bytes(), None))
    chain = [load_pem_x509_certificate(blob.bytes()) for blob in client.cert_chain_pems]
    lock = BestAvailableEncryption(KEY_PASSWORD.encode())
    locked_key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock).decode()
    chain_text = _chain_text(client)
    (made.folder / "client.key").write_text(_key_text(client))
    (made.folder / "client.crt").write_text(chain_text)
    (made.folder / "client.pem").write_text(locked_key + chain_text)
    store = pkcs12.serialize_key_and_certificates(
        b"me",
        key,
        chain[0],
        chain[1:],
        BestAvailableEncryption(STORE_PASSWORD.encode()),
    )
    (made.folder / "client.p12").write_bytes(store)
    # The JVM's own form, whose key has a password apart from the store's.
    _keytool(
        "-importkeystore", "-noprompt", "-srckeystore", made.path("client.p12"), "-srcstorepass:env", "P",
        "-srcalias", "me", "-destkeystore", made.path("client.jks"), "-deststoretype", "JKS",
        "-deststorepass:env", "P", "-destkeypass:env", "K", P=STORE_PASSWORD, K=KEY_PASSWORD,
    )  # fmt: skip


def _key_text(leaf: trustme.LeafCert) -> str:
    """Return the key as PKCS#8, the only form the JVM reads."""
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _chain_text(leaf: trustme.LeafCert) -> str:
    return b"".join(blob.bytes() for blob in leaf.cert_chain_pems).decode()


def _keytool(*arguments: str, **passwords: str) -> None:
    done = subprocess.run(
        ["keytool", *arguments], env={**os.environ, **passwords}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def secured_settings(made: Certificates, *, brokers: int = 1) -> ClusterSettings:
    """Configure brokers with a plain listener for the tests themselves and one per kind of security."""
    oauth = f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker";'
    # A topic without rules is anybody's, so rules concern the tests that make some.
    authorizer = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    return ClusterSettings(
        brokers=brokers,
        extra_properties=authorizer,
        controller_properties=authorizer,
        listeners={
            LOGIN: {
                "security.protocol": "SASL_SSL",
                **_presents(made, "broker"),
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{USER_PASSWORD}";',
                "scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
                "scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
                "oauthbearer.sasl.jaas.config": oauth,
            },
            OPEN_LOGIN: {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            },
            MUTUAL: {
                "security.protocol": "SSL",
                **_presents(made, "broker"),
                "ssl.client.auth": "required",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": made.path("ca.pem"),
            },
            EXPIRED: {"security.protocol": "SSL", **_presents(made, "expired")},
            MISNAMED: {"security.protocol": "SSL", **_presents(made, "misnamed")},
        },
    )


def _presents(made: Certificates, name: str) -> dict[str, str]:
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": made.path(f"{name}.pem")}


def trust_jks(made: Certificates) -> dict[str, str]:
    """Return what a JVM user writes to trust these brokers."""
    return {
        "kafka.ssl.truststore.location": made.path("trust.jks"),
        "kafka.ssl.truststore.password": STORE_PASSWORD,
    }


def password_login(mechanism: str, password: str = USER_PASSWORD, *, user: str = USER) -> dict[str, str]:
    """Return what a JVM user writes to log in with a password."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def accepted(made: Certificates) -> Mapping[str, tuple[str, dict[str, str]]]:
    """Return, by name, a listener and the options of the JVM client that it accepts."""
    token = f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="alice";'
    oauth = {"kafka.sasl.mechanism": "OAUTHBEARER", "kafka.sasl.jaas.config": token}
    trust_p12 = {
        "kafka.ssl.truststore.type": "PKCS12",
        "kafka.ssl.truststore.location": made.path("trust.p12"),
        "kafka.ssl.truststore.password": STORE_PASSWORD,
    }
    trust_pem = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": made.path("ca.pem")}
    mutual = {"kafka.security.protocol": "SSL"}
    return {
        "plain": (LOGIN, {**password_login("PLAIN"), **trust_pem}),
        "scram-256": (LOGIN, {**password_login("SCRAM-SHA-256"), **trust_p12}),
        "scram-512": (LOGIN, {**password_login("SCRAM-SHA-512"), **trust_jks(made)}),
        "oauth": (LOGIN, {**oauth, "kafka.security.protocol": "SASL_SSL", **trust_jks(made)}),
        "pem-files": (
            MUTUAL,
            {
                **mutual, **trust_pem,
                "kafka.ssl.keystore.type": "PEM",
                "kafka.ssl.keystore.location": made.path("client.pem"),
                "kafka.ssl.key.password": KEY_PASSWORD,
            },
        ),
        "pem-text": (
            MUTUAL,
            {
                **mutual,
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.certificates": made.text("ca.pem"),
                "kafka.ssl.keystore.type": "PEM",
                "kafka.ssl.keystore.key": made.text("client.key"),
                "kafka.ssl.keystore.certificate.chain": made.text("client.crt"),
            },
        ),
        "pkcs12": (
            MUTUAL,
            {
                **mutual, **trust_p12,
                "kafka.ssl.keystore.type": "PKCS12",
                "kafka.ssl.keystore.location": made.path("client.p12"),
                "kafka.ssl.keystore.password": STORE_PASSWORD,
            },
        ),
        "jks": (
            MUTUAL,
            {
                **mutual, **trust_jks(made),
                "kafka.ssl.keystore.location": made.path("client.jks"),
                "kafka.ssl.keystore.password": STORE_PASSWORD,
                "kafka.ssl.key.password": KEY_PASSWORD,
            },
        ),
    }  # fmt: skip


def add_users(cluster: LocalKafka) -> None:
    """Give the cluster's SCRAM user its password."""
    set_password(cluster, USER, USER_PASSWORD)


def set_password(cluster: LocalKafka, user: str, password: str) -> None:
    """Add a SCRAM user, or change its password."""
    library: Any = kafka_admin  # its stubs hide what it exports
    admin = library.AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    mechanisms = library.ScramMechanism.SCRAM_SHA_256, library.ScramMechanism.SCRAM_SHA_512
    for mechanism in mechanisms:  # one change per user and request is all that Kafka takes
        credential = library.ScramCredentialInfo(mechanism, 4096)
        change = library.UserScramCredentialUpsertion(user, credential, password.encode())
        for done in admin.alter_user_scram_credentials([change], request_timeout=20).values():
            done.result(timeout=30)


def deny_reading(cluster: LocalKafka, topic: str) -> None:
    """Let the user see a topic and not read it."""
    rule(cluster, USER, ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    rule(cluster, USER, ResourceType.TOPIC, topic, AclOperation.READ, permission=DENY)
