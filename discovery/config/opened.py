"""The files that the API's settings name, opened: what is wrong with one is said before anything listens."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from discovery.config.settings import ApiSettings
from discovery.core.errors import ConfigError

_TOKEN_MIN = 16


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Opened:
    """What the files hold; `repr` shows nothing of it."""

    tokens: tuple[bytes, ...] = ()
    """Any of them is let in; none: everybody on this host."""
    tls: ssl.SSLContext | None = None
    """For the API's listener; None: plain HTTP."""


def open_files(api: ApiSettings) -> Opened:
    """Open the files of the API: its token, its certificate.

    Raises:
        ConfigError: one cannot be read or does not hold what it should; names setting, path and reason.

    Runs: at start, reload and `config check`.
    """
    tokens = _tokens(api.token_file) if api.token_file is not None else ()
    return Opened(tokens=tokens, tls=_server_context(api))


def _tokens(path: Path) -> tuple[bytes, ...]:
    """Return one token per line: while one is rotated, the old and the new one are let in."""
    lines = _content(path, "api.token_file").splitlines()
    tokens = tuple(line.strip() for line in lines if line.strip()) or (b"",)
    for token in tokens:
        if len(token) < _TOKEN_MIN:
            raise ConfigError(f"api.token_file: {path} holds {len(token)} bytes; a token has at least {_TOKEN_MIN}")
    return tokens


def _server_context(api: ApiSettings) -> ssl.SSLContext | None:
    certificate, key = api.tls_certificate_file, api.tls_key_file
    if certificate is None or key is None:
        return None
    for path, name in ((certificate, "api.tls_certificate_file"), (key, "api.tls_key_file")):
        if b"-----BEGIN " not in _content(path, name):
            raise ConfigError(f"{name}: {path} is not PEM; write -----BEGIN … blocks into it")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password OpenSSL would ask for one on the terminal, and wait for it.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise ConfigError(f"api.tls_key_file: {_mismatch(error, certificate, key)}") from error
    if api.tls_client_ca_file is not None:
        _content(api.tls_client_ca_file, "api.tls_client_ca_file")
        try:
            context.load_verify_locations(api.tls_client_ca_file)
        except ssl.SSLError as error:
            raise ConfigError(f"api.tls_client_ca_file: {api.tls_client_ca_file} holds no PEM certificate") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _mismatch(error: ssl.SSLError, certificate: Path, key: Path) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the key in {key} is not that of the certificate in {certificate}; name the pair"
    return f"{certificate} and {key} are no certificate and its key; write both as PEM, the key without a password"


def _content(path: Path, setting: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: {path} cannot be read: {error.strerror or error}") from error
