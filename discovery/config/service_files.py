"""The files with which a client identifies a service, and itself to it."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from discovery.config.contents import fingerprint
from discovery.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFiles:
    """Paths; each None where nothing of the kind is needed."""

    token: Path | None = None
    ca: Path | None = None
    """The only authorities to trust; else those of SSL_CERT_FILE and SSL_CERT_DIR, else public ones."""
    certificate: Path | None = None
    """The client's own certificate chain, for a service that asks for one."""
    key: Path | None = None
    """Its private key; in the certificate's file if None."""

    def read_token(self) -> str | None:
        """Return the token, the first where a service is given several; None without a file.

        Raises:
            ConfigError: it cannot be read.
        """
        if self.token is None:
            return None
        try:
            return next(iter(self.token.read_text(encoding="utf-8").split()), "")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"discoveryTokenFile, --token-file: {self.token} cannot be read: {error}") from error

    def fingerprint(self) -> str:
        """Return a digest of what the files hold now, those of SSL_CERT_FILE included.

        Runs: anywhere; reads the files.
        """
        authorities = Path(os.environ["SSL_CERT_FILE"]) if "SSL_CERT_FILE" in os.environ else None
        return fingerprint([self.token, self.ca or authorities, self.certificate, self.key])

    def tls(self) -> ssl.SSLContext:
        """Return how to verify the service, and to log in by certificate.

        Raises:
            ConfigError: a file cannot be read, or does not hold what it should; names the option.

        Runs: anywhere; reads the files.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            text = f"discoveryCaFile, --ca-file: {self.ca} holds no certificate that can be read: {error}"
            raise ConfigError(text) from error
        if self.ca is None and not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
            import certifi  # noqa: PLC0415 - comes with httpx; a slim image has no authorities of its own

            context.load_verify_locations(certifi.where())
        if self.key is not None and self.certificate is None:
            raise ConfigError("discoveryKeyFile: a key without its certificate; set discoveryCertificateFile too")
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password="")  # never ask on a terminal
            except OSError as error:
                where = f"{self.certificate} and {self.key}" if self.key else str(self.certificate)
                text = f"{where} are no PEM certificate and its key without a password: {error}"
                raise ConfigError(f"discoveryCertificateFile, --certificate-file: {text}") from error
        return context


SERVICE_FILES = ("discoveryTokenFile", "discoveryCaFile", "discoveryCertificateFile", "discoveryKeyFile")
"""Spark options of source and sink."""


def service_files(given: Mapping[str, str]) -> ServiceFiles:
    """Read them from Spark options.

    Raises:
        ConfigError: one is empty.

    Runs: anywhere (pure).
    """
    paths: list[Path | None] = []
    for name in SERVICE_FILES:
        text = given.get(name)
        if text is not None and not text.strip():
            raise ConfigError(f"{name}: it is empty; name a file or leave the option out")
        paths.append(Path(text) if text is not None else None)
    token, ca, certificate, key = paths
    return ServiceFiles(token=token, ca=ca, certificate=certificate, key=key)
