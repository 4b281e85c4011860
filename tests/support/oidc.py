"""An OpenID Connect issuer on loopback: signed tokens for one client, its public key, and faults on request."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import trustme
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from discovery.localkafka.properties import ClusterSettings
from tests.support.tls import OAUTH_MODULE

TOKENS = "TOKENS"
"""The listener that wants them."""
_KAFKA = "org.apache.kafka.common.security.oauthbearer"
CLIENT, CLIENT_SECRET, AUDIENCE = "spark-jobs", "Client-Secret-4", "kafka"


class Issuer(ThreadingHTTPServer):
    """`POST /token` for a client that proves its secret, `GET /jwks` for brokers. Settings may change at any time."""

    daemon_threads = True

    def __init__(self, certificate: trustme.LeafCert | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            certificate.configure_cert(context)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self._scheme = "https"
        self.life_seconds = 300
        self.audience = AUDIENCE
        self.granted = 0
        self.valid_until = 0.0
        """When the last token that was granted expires, in seconds since the epoch."""
        self.speaks = threading.Event()
        """While it is not set, requests for tokens are accepted and wait."""
        self.speaks.set()
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that did not wait for their answer."""

    @property
    def url(self) -> str:
        """Without a path."""
        return f"{self._scheme}://127.0.0.1:{self.server_address[1]}"

    def keys(self) -> dict[str, object]:
        """Return the public key as brokers fetch it."""
        numbers = self._key.public_key().public_numbers()
        modulus, exponent = (_base64(n.to_bytes((n.bit_length() + 7) // 8)) for n in (numbers.n, numbers.e))
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": modulus, "e": exponent}]}

    def token(self) -> str:
        """Return a signed token of the client."""
        now = int(time.time())
        self.valid_until = float(now + self.life_seconds)
        claims = {"iss": self.url, "aud": self.audience, "sub": CLIENT, "iat": now, "exp": now + self.life_seconds}
        text = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1"}, claims))
        return f"{text}.{_base64(self._key.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"


class _Handler(BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        self._answer(200, self.server.keys())

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.speaks.wait()
        expected = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {expected}" or form.get("grant_type") != ["client_credentials"]:
            self._answer(401, {"error": "invalid_client", "error_description": "unknown client or wrong secret"})
            return
        self.server.granted += 1
        token = {"access_token": self.server.token(), "token_type": "Bearer", "expires_in": self.server.life_seconds}
        self._answer(200, token)

    def log_message(self, *_: object) -> None:
        """Stay quiet."""

    def _answer(self, status: int, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def silenced(issuer: Issuer) -> Iterator[None]:
    """Let an issuer answer nobody until the end of the block."""
    issuer.speaks.clear()
    try:
        yield
    finally:
        issuer.speaks.set()


@contextmanager
def issuing(certificate: trustme.LeafCert | None = None) -> Iterator[Issuer]:
    """Run an issuer until the end of the block, over https where it has a certificate."""
    with Issuer(certificate) as issuer:
        thread = threading.Thread(target=issuer.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            issuer.speaks.set()
            issuer.shutdown()
            thread.join()


def settings_with_tokens(issuer: Issuer, *, brokers: int = 1) -> ClusterSettings:
    """Configure brokers with a plain listener for the tests themselves and one that wants tokens of this issuer."""
    plain, keys = ClusterSettings(brokers=brokers), f"{issuer.url}/jwks"
    return replace(
        plain,
        jvm_options=(*plain.jvm_options, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"),
        listeners={
            TOKENS: {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;",
                "oauthbearer.sasl.server.callback.handler.class": f"{_KAFKA}.OAuthBearerValidatorCallbackHandler",
                # The default of 4.1.0 looks at no signature, issuer or audience.
                "sasl.oauthbearer.jwt.validator.class": f"{_KAFKA}.BrokerJwtValidator",
                # Without it a connection would outlive its token.
                "oauthbearer.connections.max.reauth.ms": "3600000",
                "sasl.oauthbearer.jwks.endpoint.url": keys,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.oauthbearer.expected.issuer": issuer.url,
            }
        },
    )


def token_login(url: str, *, secret: str = CLIENT_SECRET) -> dict[str, str]:
    """Return what a JVM user writes to log in with tokens of the issuer at this address."""
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f'{OAUTH_MODULE} required clientId="{CLIENT}" clientSecret="{secret}";',
        "kafka.sasl.oauthbearer.token.endpoint.url": f"{url}/token",
    }


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
