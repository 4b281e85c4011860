"""The files that settings name, by content: whether one was rotated, and until when the certificates in them hold."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from discovery.config.certificates import Certificate, of_client, valid
from discovery.config.client.options import map_client_options
from discovery.config.contents import fingerprint
from discovery.config.settings import ApiSettings, ClusterSettings, Settings

API = ""
"""Whose the API's files are, among those of clusters by name; no cluster has an empty name."""


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
    named = settings.clusters.items()
    clients = (of_client(cluster.client_options, f"clusters.{name}.client") for name, cluster in named)
    return tuple(chain(_of_api(settings.api), *clients))


def _client_files(cluster: ClusterSettings) -> list[Path]:
    options = map_client_options(cluster.client)
    named = [value for name, value in options.librdkafka.items() if name.endswith(".location")]
    return [Path(one) for one in (*(store.location for store in options.stores), *named)]


def _of_api(api: ApiSettings) -> Iterator[Certificate]:
    for use, path in (("api", api.tls_certificate_file), ("api_clients", api.tls_client_ca_file)):
        if path is not None:
            yield from valid(use, str(path), path.read_bytes())
