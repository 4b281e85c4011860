"""JVM key and trust stores as librdkafka's PEM options: texts are read at once, files later, in `opened_stores`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from discovery.core.errors import ConfigError

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_PEM_LINE = 64
_OWN_NAMES = {
    "truststore": ("ssl.ca.location", "ssl.ca.pem"),
    "keystore": ("ssl.key.location", "ssl.key.pem", "ssl.certificate.location", "ssl.certificate.pem"),
}
_TYPES = ("JKS", "PKCS12", "PEM", "JCEKS")


class Side(Enum):
    """Which of the two stores."""

    TRUST = "truststore"
    KEY = "keystore"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class StoreFile:
    """A store that is still to be read. `repr` shows where it is, and no password."""

    side: Side
    location: str
    password: str | None
    key_password: str | None
    prefix: str
    """In front of option names in messages."""

    def option(self, name: str = "location") -> str:
        """Name an option of this store as its user writes it."""
        return f"{self.prefix}ssl.{self.side.value}.{name}"

    def __repr__(self) -> str:
        """Leave the passwords out."""
        return f"StoreFile({self.side.value}, {self.location!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Stores:
    """What the store options came to: librdkafka properties, and files to read."""

    properties: Mapping[str, str]
    files: tuple[StoreFile, ...]


def translate_stores(given: Mapping[str, str], *, prefix: str) -> Stores:
    """Translate the `ssl.keystore.*` and `ssl.truststore.*` options among `given`.

    Raises:
        ConfigError: a type nobody knows, text that is no PEM, half a key, or the same said twice.

    Runs: anywhere (pure); files are opened later, by `material.open_stores`.
    """
    properties: dict[str, str] = {}
    files: list[StoreFile] = []
    for side, inline in ((Side.TRUST, _trusted), (Side.KEY, _own_key)):
        _refuse_contradiction(given, side.value, prefix)
        text, location = inline(given, prefix), given.get(f"ssl.{side.value}.location", "").strip()
        if text and location:
            raise ConfigError(f"{prefix}ssl.{side.value}.location: there is PEM text beside it; keep one of the two")
        properties |= text
        if location:
            files.append(
                StoreFile(
                    side=side,
                    location=location,
                    password=given.get(f"ssl.{side.value}.password") or None,
                    key_password=given.get("ssl.key.password") or None,
                    prefix=prefix,
                )
            )
    return Stores(properties, tuple(files))


def certificates_in(text: str) -> str:
    """Return the certificates of a PEM text as OpenSSL wants them; empty if there are none."""
    return "".join(_wrapped(label, body) for label, body in _BLOCK.findall(text) if label.endswith("CERTIFICATE"))


def keys_in(text: str) -> list[str]:
    """Return the private keys of a PEM text as OpenSSL wants them."""
    return [_wrapped(label, body) for label, body in _BLOCK.findall(text) if label.endswith("PRIVATE KEY")]


def _refuse_contradiction(given: Mapping[str, str], side: str, prefix: str) -> None:
    kind = given.get(f"ssl.{side}.type", "JKS").strip().upper()
    if kind not in _TYPES:
        raise ConfigError(f"{prefix}ssl.{side}.type: {kind!r} cannot be read here; convert the store to PEM or PKCS12")
    own = [name for name in _OWN_NAMES[side] if name in given]
    theirs = [name for name in given if name.startswith(f"ssl.{side}.") and not name.endswith((".type", ".password"))]
    if own and theirs:
        raise ConfigError(f"{prefix}{own[0]}: {prefix}{theirs[0]} says the same in another way; keep one of the two")


def _trusted(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    name = "ssl.truststore.certificates"
    return {"ssl.ca.pem": _pem(given[name], option=f"{prefix}{name}", find=certificates_in)} if name in given else {}


def _own_key(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    inline = ("ssl.keystore.key", "ssl.keystore.certificate.chain")
    if not any(name in given for name in inline):
        return {}
    missing = [name for name in inline if name not in given]
    if missing:
        raise ConfigError(f"{prefix}{missing[0]}: it is missing; a PEM key needs its certificate chain and vice versa")
    key = _pem(given[inline[0]], option=f"{prefix}{inline[0]}", find=lambda text: "".join(keys_in(text)))
    chain = _pem(given[inline[1]], option=f"{prefix}{inline[1]}", find=certificates_in)
    return {"ssl.key.pem": key, "ssl.certificate.pem": chain}


def _pem(text: str, *, option: str, find: Callable[[str], str]) -> str:
    """Put line breaks where OpenSSL wants them; the JVM client also takes PEM on a single line."""
    found = find(text)
    if not found:
        raise ConfigError(f"{option}: no PEM block in it; paste the text from -----BEGIN to -----END")
    return found


def _wrapped(label: str, body: str) -> str:
    if ":" in body:  # an encrypted key of the old form carries header lines, which must stay as they are
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"
    joined = "".join(body.split())
    lines = [joined[start : start + _PEM_LINE] for start in range(0, len(joined), _PEM_LINE)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))
