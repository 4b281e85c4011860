"""Reads key and trust stores of the JVM into PEM text where the query is planned; workers get the text.

PEM and PKCS#12 are read here (`cryptography`); the JVM's own JKS form is turned into PKCS#12 by Java's `keytool`,
which comes with the Java that Spark needs.
"""

import contextlib
import ssl
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from discovery.config.client.keytool import KeytoolError, as_pkcs12, trusted_certificates
from discovery.config.client.options import ClientOptions
from discovery.config.client.stores import Side, StoreFile, certificates_in, keys_in
from discovery.config.contents import fingerprint
from discovery.config.logs import event_log
from discovery.core.errors import ConfigError
from discovery.core.plural import counted

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_CONTENTS_CHECK_SECONDS = 10.0
_HERE = uuid.uuid4().hex
"""Another process may hold options that were read here, but not the files."""
_log = event_log("discovery.config.stores")
_MAX_BYTES = 16 << 20
_JKS, _JCEKS, _DER, _PEM = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x30", b"-----BEGIN"
_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")
"""Where Debian, Red Hat and SUSE have the authorities of the system."""
_WRONG_PASSWORD = "the password does not open it; correct"  # noqa: S105 - a sentence


def open_stores(options: ClientOptions) -> ClientOptions:
    """Read the stores that `options` names and put what is in them in their place.

    The file's content decides how it is read, whatever its declared type; so a store that a JVM opens is opened here.

    Returns:
        Options that need no file, and hold no password of a store; the same object if there was nothing to read. In
        this process `fresh` tells what the files hold later. The one file that clients open themselves is that of the
        operating system's authorities, where tokens come over https and no other authority is named.

    Raises:
        ConfigError: a file is missing, unreadable, locked by another password, empty, or of a form nobody can read;
            names option and file, never a password.

    Runs: driver, once per query and process; blocks for milliseconds, 1-2 s for each JKS store (a JVM starts).
    """
    options = _with_authorities(options)
    if not options.stores:
        return options
    digest = _digest(options)
    made = _opened(options)
    with _lock:
        name = next((one for one, read in _read_here.items() if read.given == options), f"{_HERE}.{len(_read_here)}")
        _read_here[name] = _Read(options, digest, made, time.monotonic())
    return replace(made, opened=name)


def _with_authorities(options: ClientOptions) -> ClientOptions:
    """Name the authorities of this system for the token endpoint: libcurl in librdkafka knows only Red Hat's file."""
    given = options.librdkafka
    address = given.get("sasl.oauthbearer.token.endpoint.url", "").strip().lower()
    if not address.startswith("https:") or given.keys() & {"https.ca.location", "https.ca.pem"}:
        return options
    found = next((path for path in (ssl.get_default_verify_paths().cafile, *_AUTHORITIES) if _is_file(path)), None)
    return replace(options, librdkafka={**given, "https.ca.location": found}) if found else options


def _is_file(path: str | None) -> bool:
    return path is not None and Path(path).is_file()


def fresh(options: ClientOptions) -> ClientOptions:
    """Return options with what the key and trust stores hold now, for a client that is about to be made.

    A file that was changed is read again, where and as `open_stores` read it, until that succeeds. Until then, which is
    logged once for each content, and in any other process the options stay as they are.

    Runs: any thread; looks at the files every 10 s at most, and blocks as `open_stores` where one was changed: one
    thread, while others get what was read before.
    """
    with _lock:
        read = _read_here.get(options.opened)
        if read is None:
            return options
        due = time.monotonic() - read.looked_at >= _CONTENTS_CHECK_SECONDS
        if due:
            _read_here[options.opened] = replace(read, looked_at=time.monotonic())
    if due:
        read = _looked_at(read)
        with _lock:
            _read_here[options.opened] = read
    return last_read(options)


def last_read(options: ClientOptions) -> ClientOptions:
    """Return options with what `fresh` found last in the key and trust stores.

    Runs: any thread; looks at no file.
    """
    with _lock:
        read = _read_here.get(options.opened)
    if read is None:
        return options
    now = {name: value for name, value in read.made.librdkafka.items() if name.startswith("ssl.")}
    same = now.items() <= options.librdkafka.items()
    return options if same else replace(options, librdkafka={**options.librdkafka, **now})


def files_of(options: ClientOptions) -> Mapping[Side, str]:
    """Return where the stores lie that were read for these options; nothing in a process that did not read them.

    Runs: any thread.
    """
    with _lock:
        read = _read_here.get(options.opened)
    return {} if read is None else {store.side: store.location for store in read.given.stores}


@dataclass(frozen=True, slots=True)
class _Read:
    """Stores that were read in this process."""

    given: ClientOptions
    digest: str
    made: ClientOptions
    looked_at: float
    refused: str = ""
    """Digest of a later content that could not be opened: said, and tried again."""


def _looked_at(read: _Read) -> _Read:
    digest, now = _digest(read.given), time.monotonic()
    if digest == read.digest:
        return replace(read, looked_at=now)
    try:
        return _Read(read.given, digest, _opened(read.given), now)
    except ConfigError as error:
        if digest != read.refused:
            _log.warning("store_not_read_again", error=str(error), consequence="its last content stays in use")
        return replace(read, looked_at=now, refused=digest)


_read_here: dict[str, _Read] = {}
_lock = threading.Lock()


def _digest(options: ClientOptions) -> str:
    return fingerprint(Path(store.location) for store in options.stores)


def _opened(options: ClientOptions) -> ClientOptions:
    properties = dict(options.librdkafka)
    for store in options.stores:
        with _blaming(store):
            properties |= _trust(store) if store.side is Side.TRUST else _key(store)
    if "ENCRYPTED" not in properties.get("ssl.key.pem", "ENCRYPTED"):
        properties.pop("ssl.key.password", None)
    return replace(options, librdkafka=properties, stores=())


@contextlib.contextmanager
def _blaming(store: StoreFile) -> Iterator[None]:
    where = f"{store.option()}: {store.location}"
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{where}: {error.strerror or error}; the file must be readable where the query is planned"
        ) from None
    except KeytoolError as error:
        raise ConfigError(f"{where}: {error}") from None


def _trust(store: StoreFile) -> dict[str, str]:
    data = _read(store)
    if _PEM in data:
        found = certificates_in(data.decode("utf-8", "replace"))
    elif data.startswith((_JKS, _JCEKS)):
        found = trusted_certificates(store)
    else:
        opened = _open_pkcs12(data, store)
        found = _pem_of(opened, own=True)
    if not found:
        raise ConfigError(f"{store.option()}: {store.location} holds no certificate; import the authority's into it")
    return {"ssl.ca.pem": found}


def _key(store: StoreFile) -> dict[str, str]:
    data = _read(store)
    if _PEM in data:
        return _pem_key(data.decode("utf-8", "replace"), store)
    if data.startswith((_JKS, _JCEKS)):
        data, store = as_pkcs12(store)
    opened = _open_pkcs12(data, store)
    if opened.key is None or opened.cert is None:
        raise ConfigError(f"{store.option()}: {store.location} holds no private key with its certificate")
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - workers never need it
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return {"ssl.key.pem": key, "ssl.certificate.pem": _pem_of(opened, own=True)}


def _pem_key(text: str, store: StoreFile) -> dict[str, str]:
    keys, chain = keys_in(text), certificates_in(text)
    if len(keys) != 1 or not chain:
        raise ConfigError(
            f"{store.option()}: {store.location} holds {counted(len(keys), 'private key')} and "
            f"{counted(chain.count('BEGIN'), 'certificate')}; it needs one key, then its certificate chain"
        )
    _check_key(keys[0], store)
    return {"ssl.key.pem": keys[0], "ssl.certificate.pem": chain}


def _check_key(key: str, store: StoreFile) -> None:
    """Refuse a wrong password here: librdkafka would say "bad decrypt", and on every worker."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - workers never need it
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    option = f"{store.prefix}ssl.key.password"
    locked = "ENCRYPTED" in key
    if locked and not store.key_password:
        raise ConfigError(f"{option}: it is missing; the key in {store.location} is encrypted")
    try:
        load_pem_private_key(key.encode(), store.key_password.encode() if locked and store.key_password else None)
    except UnsupportedAlgorithm:
        return  # OpenSSL inside librdkafka may know it
    except (ValueError, TypeError):
        what = "the password does not open the key in" if locked else "nothing can read the key in"
        raise ConfigError(f"{option}: {what} {store.location}") from None


def _read(store: StoreFile) -> bytes:
    path = Path(store.location)
    if path.is_file() and path.stat().st_size > _MAX_BYTES:
        raise ConfigError(f"{store.option()}: {path} is larger than {_MAX_BYTES >> 20} MiB: not a key or trust store")
    data = path.read_bytes()
    if not (data.startswith((_JKS, _JCEKS, _DER)) or _PEM in data):
        raise ConfigError(
            f"{store.option()}: {path} is neither PEM, PKCS12 nor JKS; convert it with keytool or openssl"
        )
    return data


def _open_pkcs12(data: bytes, store: StoreFile) -> "PKCS12KeyAndCertificates":
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415 - workers never need it

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the ciphers of old stores, which their users cannot change here
            return load_pkcs12(data, store.password.encode() if store.password else None)
    except ValueError:
        raise ConfigError(
            f"{store.option()}: {store.location}: {_WRONG_PASSWORD} {store.option('password')} "
            "(or the file is damaged, or no PKCS12)"
        ) from None


def _pem_of(opened: "PKCS12KeyAndCertificates", *, own: bool) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - workers never need it

    first = [opened.cert] if own and opened.cert is not None else []
    found = [*first, *opened.additional_certs]
    return "".join(item.certificate.public_bytes(Encoding.PEM).decode() for item in found)
