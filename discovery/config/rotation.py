"""The files that settings name, by content: whether one was rotated, and until when the certificates in them hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from discovery.config.client.options import map_client_options
from discovery.config.contents import fingerprint
from discovery.config.settings import ApiSettings, ClusterSettings, Settings

API = ""
"""Whose the API's files are, among those of clusters by name; no cluster has an empty name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How long what a file holds is worth something."""

    use: str
    """`api`, `api_clients`, `kafka_identity`, `kafka_trust`."""
    file: str
    """Its path; the setting, where the text stands in the configuration itself."""
    expires_wall: float
    """Seconds since the epoch: the first of a chain to expire, or the last of the trusted authorities."""


def fingerprints(settings: Settings) -> dict[str, str]:
    """Return a digest of the files of the API and of each cluster.

    Runs: a worker thread, every few seconds; reads the files.
    """
    api = settings.api
    found = {API: fingerprint([api.token_file, api.tls_certificate_file, api.tls_key_file, api.tls_client_ca_file])}
    return found | {name: fingerprint(_client_files(cluster)) for name, cluster in settings.clusters.items()}


def certificates(settings: Settings) -> tuple[Certificate, ...]:
    """Return the certificates in use.

    Raises:
        ConfigError: a store cannot be opened.

    Runs: a worker thread, at start and reload; starts `keytool` for a JKS store.
    """
    found = {(one.use, one.file): one for one in _of_api(settings.api)}
    for name, cluster in settings.clusters.items():
        found |= {(one.use, one.file): one for one in _of_client(name, cluster)}
    return tuple(found.values())


def _client_files(cluster: ClusterSettings) -> list[Path]:
    options = map_client_options(cluster.client)
    named = [value for name, value in options.librdkafka.items() if name.endswith(".location")]
    return [Path(one) for one in (*(store.location for store in options.stores), *named)]


def _of_api(api: ApiSettings) -> Iterator[Certificate]:
    for use, path in (("api", api.tls_certificate_file), ("api_clients", api.tls_client_ca_file)):
        if path is not None:
            yield from _valid(use, str(path), path.read_bytes())


def _of_client(name: str, cluster: ClusterSettings) -> Iterator[Certificate]:
    stores = {store.side.value: store.location for store in map_client_options(cluster.client).stores}
    properties = cluster.client_options.librdkafka
    for use, store, option in (("kafka_identity", "keystore", "certificate"), ("kafka_trust", "truststore", "ca")):
        path = properties.get(f"ssl.{option}.location", "")
        text = properties.get(f"ssl.{option}.pem", "")
        if Path(path).is_file():
            yield from _valid(use, path, Path(path).read_bytes())
        elif text:
            yield from _valid(use, stores.get(store, f"clusters.{name}.client"), text.encode())


def _valid(use: str, file: str, pem: bytes) -> Iterator[Certificate]:
    from cryptography import x509  # noqa: PLC0415 - only where there are certificates

    try:
        ends = [one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(pem)]
    except ValueError:  # OpenSSL has taken what cryptography does not read
        return
    # A chain is worth nothing after its first end; of authorities the old one may expire beside the new one.
    yield Certificate(use=use, file=file, expires_wall=min(ends) if use in {"api", "kafka_identity"} else max(ends))
