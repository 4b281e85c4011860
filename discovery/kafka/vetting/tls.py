"""Says why a TLS handshake failed: librdkafka has one sentence for every certificate it does not believe."""

import contextlib
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_VERIFY_FAILED = "certificate verify failed"
_OF_TLS = ("SSL routines", "SSL handshake failed")
_REFUSED_OURS = ("alert bad certificate", "certificate required", "alert certificate", "alert unknown ca")
_EXPIRED, _NOT_YET, _OTHER_NAMES = 10, 9, (62, 64)
_OWN_KEY = ("ssl.certificate.pem", "ssl.certificate.location", "ssl.keystore.location")


def is_tls_failure(reason: str) -> bool:
    """Tell whether a connection error of librdkafka's comes out of its TLS layer.

    Runs: anywhere (pure).
    """
    return any(sign in reason for sign in _OF_TLS)


def is_certain(reason: str) -> bool:
    """Tell whether the error itself proves that the other side speaks TLS: it showed or judged a certificate.

    Runs: anywhere (pure).
    """
    return is_tls_failure(reason) and (_VERIFY_FAILED in reason or any(sign in reason for sign in _REFUSED_OURS))


def explain_tls(
    reason: str, endpoint: tuple[str, int], properties: Mapping[str, Any], *, timeout_seconds: float
) -> str:
    """Return the cause and the remedy in one line; shakes hands once more where librdkafka's text hides the cause.

    Args:
        reason: What librdkafka said.
        endpoint: Where the connection went.
        properties: Of the client, with this address as its only bootstrap server.
        timeout_seconds: For that handshake.

    Runs: a thread of the vetting; blocks <= about twice timeout_seconds.
    """
    if any(sign in reason for sign in _REFUSED_OURS):
        if not any(name in properties for name in _OWN_KEY):
            return "the broker wants a client certificate; set kafka.ssl.keystore.location to one it trusts"
        return (
            "the broker refuses this client's certificate; the one in kafka.ssl.keystore.location must be in date and "
            "signed by an authority that the broker trusts"
        )
    if _VERIFY_FAILED not in reason:
        return reason
    host = str(properties["bootstrap.servers"]).rpartition(":")[0].strip("[]")
    checks_name = properties.get("ssl.endpoint.identification.algorithm", "https") == "https"
    with contextlib.suppress(OSError, ValueError):  # then librdkafka's own words must do
        found = _verify(endpoint, host, properties, checks_name=checks_name, timeout_seconds=timeout_seconds)
        if found is not None:
            return _in_words(found, host)
    return reason


def _verify(
    endpoint: tuple[str, int], host: str, properties: Mapping[str, Any], *, checks_name: bool, timeout_seconds: float
) -> ssl.SSLCertVerificationError | None:
    authority = properties.get("ssl.ca.location")
    context = ssl.create_default_context(
        cafile=authority if authority and Path(authority).is_file() else None,
        capath=authority if authority and Path(authority).is_dir() else None,
        cadata=properties.get("ssl.ca.pem"),
    )
    context.check_hostname = checks_name
    try:
        with (
            socket.create_connection(endpoint, timeout=timeout_seconds) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as error:
        return error


def _in_words(error: ssl.SSLCertVerificationError, host: str) -> str:
    if error.verify_code in (_EXPIRED, _NOT_YET):
        state = "has expired" if error.verify_code == _EXPIRED else "is not valid yet"
        return f"the broker's certificate {state}; renew it at the broker (or set the clock right)"
    if error.verify_code in _OTHER_NAMES:
        return (
            f"the broker's certificate is not made out to {host}; list the brokers by the names in their certificates, "
            "or renew these with that name"
        )
    return (
        f"the broker's certificate cannot be trusted ({error.verify_message}); put the authority that signed it into "
        "kafka.ssl.truststore.location"
    )
