"""Whether a client that checks names will believe a broker it reaches under the endpoint's name. Pure."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from discovery.core.model import BrokerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about a broker that will make clients of the endpoint fail, and what to do."""

    address: BrokerAddress
    text: str


def names_of(certificate_der: bytes) -> tuple[str, ...]:
    """Return the DNS names and IP addresses a certificate is made out to.

    Raises:
        ValueError: this is no certificate.

    Runs: anywhere (pure).
    """
    from cryptography import x509  # noqa: PLC0415 - seven megabytes that only endpoints of TLS listeners need

    certificate = x509.load_der_x509_certificate(certificate_der)
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return (*found.get_values_for_type(x509.DNSName), *addresses)


def covers(names: Sequence[str], host: str) -> bool:
    """Tell whether one of the names is this host's; a wildcard stands for one label.

    Runs: anywhere (pure).
    """
    wanted = host.lower()
    if _is_ip(wanted):
        return any(_is_ip(name) and ipaddress.ip_address(name) == ipaddress.ip_address(wanted) for name in names)
    return any(
        name.lower() == wanted or (name.startswith("*.") and wanted.partition(".")[2] == name[2:].lower())
        for name in names
    )


def judge(address: BrokerAddress, names: Sequence[str], *, host: str, port: int) -> Finding | None:
    """Return what is wrong for clients that reach this broker as `host` or localhost; None: nothing.

    Runs: anywhere (pure).
    """
    if covers(names, host) or covers(names, "localhost"):
        return None
    listed = ", ".join(names) or "no name at all"
    example = next((name for name in names if not _is_ip(name) and not name.startswith("*")), None)
    remedy = (
        f"let {example} mean {host} on this host (one line in /etc/hosts) and give clients {example}:{port}"
        if example
        else f"renew the certificate with {host} among its names"
    )
    return Finding(
        address=address,
        text=(
            f"the certificate of {address} is made out to {listed}, not to {host}: TLS clients that check names will"
            f" refuse the endpoint; {remedy}, or give clients the vetted list instead (kafka-discovery bootstrap)"
        ),
    )


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
