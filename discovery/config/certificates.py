"""Until when the certificates in use hold."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from discovery.config.client.opened_stores import files_of, last_read
from discovery.config.client.options import ClientOptions
from discovery.config.client.stores import Side
from discovery.config.service_files import ServiceFiles

_CHAINS = {"api", "kafka_identity", "service_identity"}
"""Uses of a chain; the others are of authorities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How long what a file holds is worth something."""

    use: str
    """`api`, `api_clients`, `kafka_identity`, `kafka_trust`, `service_identity`, `service_trust`."""
    file: str
    """Its path; the setting, where the text stands in the configuration itself."""
    expires_wall: float
    """Seconds since the epoch: the first of a chain to expire, or the last of the trusted authorities."""


def of_client(options: ClientOptions, setting: str) -> Iterator[Certificate]:
    """Yield the certificates that a Kafka client made now would use.

    Args:
        options: With stores that were opened; what was last read of them counts.
        setting: Where text stands that comes from no file.

    Runs: any thread; reads the files that librdkafka's own properties name.
    """
    files, properties = files_of(options), last_read(options).librdkafka
    for use, side, name in (("kafka_identity", Side.KEY, "certificate"), ("kafka_trust", Side.TRUST, "ca")):
        path, text = properties.get(f"ssl.{name}.location", ""), properties.get(f"ssl.{name}.pem", "")
        if pem := _content(path) if path else text.encode():
            yield from valid(use, path or files.get(side, setting), pem)


def of_service(files: ServiceFiles) -> Iterator[Certificate]:
    """Yield the certificates with which a follower logs in to its service, and the authorities it verifies it by.

    Runs: any thread; reads the files.
    """
    for use, path in (("service_identity", files.certificate), ("service_trust", files.ca)):
        if path is not None:
            yield from valid(use, str(path), _content(str(path)))


def _content(path: str) -> bytes:
    with contextlib.suppress(OSError):  # a folder of authorities, or nothing that a client could read either
        return Path(path).read_bytes()
    return b""


@lru_cache(maxsize=32)
def _ends(pem: bytes) -> tuple[float, ...]:
    """Read them once: a driver's status is written every second, and a bundle holds a hundred and more."""
    from cryptography import x509  # noqa: PLC0415 - only where there are certificates

    try:
        return tuple(one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(pem))
    except (ValueError, x509.InvalidVersion):  # OpenSSL has taken what cryptography does not read
        return ()


def valid(use: str, file: str, pem: bytes) -> Iterator[Certificate]:
    """Yield until when the certificates in `pem` hold; nothing where they cannot be read.

    Runs: anywhere (pure).
    """
    if not (ends := _ends(pem)):
        return
    # A chain is worth nothing after its first end; of authorities the old one may expire beside the new one.
    yield Certificate(use=use, file=file, expires_wall=min(ends) if use in _CHAINS else max(ends))
