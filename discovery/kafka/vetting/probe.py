"""Step two of vetting: a metadata request through a client that knows one address alone."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from discovery.core.errors import GatewayError
from discovery.core.model import Broker, ClusterId, Verdict
from discovery.kafka import codes
from discovery.kafka.settings import PROBE_TOPIC, QuietLog, make_client
from discovery.kafka.translate import metadata_answer, said
from discovery.kafka.vetting.sniff import Sniffed, sniff
from discovery.kafka.vetting.tls import explain_tls, is_certain

_FIRST_SLICE_SECONDS = 0.1
"""How long one wait inside librdkafka lasts before we look whether the connection failed; doubled each time."""
_LAST_SLICE_SECONDS = 0.4
_SNIFF_SECONDS = 0.5
_LOGIN_FIRST = (
    "answers as Kafka does, but closes the connection when asked for metadata; the listener probably wants a login: "
    "set kafka.security.protocol to SASL_PLAINTEXT or SASL_SSL"
)
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"  # noqa: S105 - what librdkafka says


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What the full probe showed."""

    failure: Verdict | None = None
    detail: str = ""
    cluster_id: ClusterId | None = None
    brokers: tuple[Broker, ...] = ()
    wandered: bool = False
    """Another broker answered in the address's place, and for another cluster: proves nothing about the address."""


class _Symptoms:
    """Connection errors of one probe: the first telling one, and how often the connection went down."""

    def __init__(self) -> None:
        self.telling: KafkaError | None = None
        self.downs = 0

    def note(self, error: KafkaError) -> None:
        """Take one error; `error_cb` of librdkafka. A plain disconnect shows only as "all brokers down"."""
        if error.code() == codes.ALL_BROKERS_DOWN:
            self.downs += 1
        elif self.telling is None or self.telling.code() == codes.TRANSPORT:
            self.telling = error


def probe(
    properties: Mapping[str, Any],
    endpoint: tuple[str, int],
    *,
    timeout_seconds: float,
    log: QuietLog,
    on_probed: Callable[[Probed], None],
) -> None:
    """Ask one address for its cluster id and brokers.

    Args:
        properties: Of a client with this address as its only bootstrap server.
        endpoint: What accepted the TCP connection in step one; looked at once more if the client was cut off
            without a reason.
        timeout_seconds: Until `on_probed` is called.
        log: Where the client writes.
        on_probed: Gets the result before the client's threads are ended, which may wait for a slow resolver.

    Raises:
        ConfigError: librdkafka refuses a property.

    Runs: a thread of the vetting; may block longer than the timeout, but only after `on_probed`.
    """
    symptoms = _Symptoms()
    client = make_client({**properties, "error_cb": symptoms.note}, log)
    on_probed(_ask(client, symptoms, endpoint, properties, timeout_seconds=timeout_seconds))


def _ask(
    client: AdminClient,
    symptoms: _Symptoms,
    endpoint: tuple[str, int],
    properties: Mapping[str, Any],
    *,
    timeout_seconds: float,
) -> Probed:
    deadline = time.monotonic() + timeout_seconds
    wait, last = _FIRST_SLICE_SECONDS, ""
    own_id: str | None = None
    while (left := deadline - time.monotonic()) > 0:
        try:
            own_id = own_id or client.cluster_id(timeout=min(wait, left))
            answer = metadata_answer(client.list_topics(PROBE_TOPIC, timeout=min(wait, left)))
            # The first id came over the only connection there was. By now librdkafka knows the broker's peers and may
            # have asked one whose address has gone to another cluster.
            wandered = own_id is not None and answer.cluster_id != own_id
            return Probed(cluster_id=answer.cluster_id, brokers=answer.brokers, wandered=wandered)
        except GatewayError as exc:
            return Probed(failure=Verdict.SILENT, detail=exc.detail)
        except KafkaException as exc:
            last = exc.args[0].str()
        client.poll(0)
        failed = _conclude(symptoms, endpoint, properties, left=left)
        if failed is not None:
            return failed
        # Each wait for metadata is a request of its own, so a slow broker needs a longer one; its id came by itself.
        wait = 2 * wait if own_id else min(2 * wait, _LAST_SLICE_SECONDS)
    issuer = _issuer(properties)
    waiting = f"; or {issuer} gives no token, without which nobody is asked" if issuer else ""
    return Probed(
        failure=Verdict.SILENT,
        detail=f"accepted a connection, but no answer within {timeout_seconds:g} s: {last}{waiting}",
    )


def _issuer(properties: Mapping[str, Any]) -> str:
    """Return the host of the token endpoint, nothing of its address that could be a secret; empty: there is none."""
    address = str(properties.get("sasl.oauthbearer.token.endpoint.url", ""))
    return re.split("[/?#]", address.partition("://")[2])[0].rpartition("@")[2]


def _login_remedy(reason: str, properties: Mapping[str, Any]) -> str:
    issuer = _issuer(properties)
    if not issuer or _NO_TOKEN not in reason:
        return "correct kafka.sasl.jaas.config"
    return (
        f"no token from {issuer}: look at kafka.sasl.oauthbearer.token.endpoint.url, at clientId and "
        "clientSecret in kafka.sasl.jaas.config and, for https, at kafka.https.ca.location"
    )


def _conclude(
    symptoms: _Symptoms, endpoint: tuple[str, int], properties: Mapping[str, Any], *, left: float
) -> Probed | None:
    """Say what the connection errors so far mean; None: go on waiting."""
    tls = "SSL" in str(properties.get("security.protocol", "")).upper().replace("SASL", "")
    telling = symptoms.telling
    reason = said(telling) if telling is not None else "the client was cut off"
    code = telling.code() if telling is not None else codes.TRANSPORT
    if code == codes.LOGIN:
        return Probed(failure=Verdict.AUTH_FAILED, detail=f"{reason}; {_login_remedy(reason, properties)}")
    if code == codes.BAD_MESSAGE:
        return Probed(failure=Verdict.NOT_KAFKA, detail=reason)
    if is_certain(reason):
        why = explain_tls(reason, endpoint, properties, timeout_seconds=min(_SNIFF_SECONDS, left))
        return Probed(failure=Verdict.TLS_FAILED, detail=why)
    if not symptoms.downs:
        return None
    seen = sniff(endpoint, timeout_seconds=min(_SNIFF_SECONDS, left))
    if (seen is Sniffed.KAFKA and not tls) or (seen is Sniffed.TLS and tls and telling is None):
        # A broker that cuts a client off twice after the TLS handshake, if there is one, wants a login first.
        return Probed(failure=Verdict.AUTH_FAILED, detail=_LOGIN_FIRST) if symptoms.downs > 1 else None
    return _by_sight(seen, reason, tls=tls, tls_error=code == codes.SSL)


def _by_sight(seen: Sniffed, reason: str, *, tls: bool, tls_error: bool) -> Probed:
    """Decide by what a plain-text request brought, where the client's own errors leave it open."""
    match seen:
        case Sniffed.OTHER:
            return Probed(failure=Verdict.NOT_KAFKA, detail=f"{seen.value}; {reason}")
        case Sniffed.TLS:
            hint = "" if tls else "; the listener expects TLS: set kafka.security.protocol to SSL or SASL_SSL"
            return Probed(failure=Verdict.TLS_FAILED, detail=f"{reason}{hint}")
        case Sniffed.KAFKA:
            hint = "; the listener speaks plain text: set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT"
            return Probed(failure=Verdict.TLS_FAILED, detail=f"{reason}{hint}")
        case Sniffed.CLOSED | Sniffed.SILENT if tls_error:
            return Probed(failure=Verdict.TLS_FAILED, detail=reason)
        case Sniffed.CLOSED:
            return Probed(failure=Verdict.REFUSED, detail=f"accepts and {seen.value} (a proxy without a broker?)")
        case _:
            return Probed(failure=Verdict.SILENT, detail=f"accepts and {seen.value}")
