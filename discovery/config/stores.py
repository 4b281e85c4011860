"""JVM key and trust stores as librdkafka's PEM and PKCS#12 options."""

import re
from collections.abc import Mapping

from discovery.core.errors import ConfigError

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_PEM_LINE = 64
_CONVERT_TRUST = (
    "only PEM is read here; export it (keytool -exportcert -rfc), then set kafka.ssl.truststore.type=PEM "
    "and kafka.ssl.truststore.location to the .pem file"
)
_CONVERT_KEY = (
    "convert it (keytool -importkeystore -deststoretype PKCS12), then set kafka.ssl.keystore.type=PKCS12, "
    "or use PEM with kafka.ssl.keystore.type=PEM"
)


def translate_stores(given: Mapping[str, str], *, prefix: str) -> dict[str, str]:
    """Translate the `ssl.keystore.*` and `ssl.truststore.*` options among `given`.

    Raises:
        ConfigError: a store type that cannot be read here; names the conversion.

    Runs: anywhere (pure); files are opened later, by librdkafka.
    """
    return {**_truststore(given, prefix), **_keystore(given, prefix)}


def _store_type(given: Mapping[str, str], side: str, inline: tuple[str, ...]) -> str:
    """Return the type as the JVM client understands it: JKS unless said otherwise; inline text is PEM."""
    implied = "PEM" if any(name in given for name in inline) else "JKS"
    return given.get(f"ssl.{side}.type", implied).strip().upper()


def _truststore(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    location = given.get("ssl.truststore.location")
    certificates = given.get("ssl.truststore.certificates")
    if location is None and certificates is None:
        return {}
    kind = _store_type(given, "truststore", ("ssl.truststore.certificates",))
    if kind != "PEM":
        raise ConfigError(f"{prefix}ssl.truststore.location: a trust store of type {kind}: {_CONVERT_TRUST}")
    if certificates is not None:
        return {"ssl.ca.pem": _pem(certificates, option=f"{prefix}ssl.truststore.certificates")}
    return {"ssl.ca.location": str(location)}


def _keystore(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    location = given.get("ssl.keystore.location")
    inline = ("ssl.keystore.key", "ssl.keystore.certificate.chain")
    if location is None and not any(name in given for name in inline):
        return {}
    kind = _store_type(given, "keystore", inline)
    if kind == "PEM" and location is not None:
        # One file holds key and certificates; OpenSSL picks what it needs.
        return {"ssl.key.location": location, "ssl.certificate.location": location}
    if kind == "PEM":
        return _inline_key(given, inline, prefix)
    if kind == "PKCS12" and location is not None:
        password = given.get("ssl.keystore.password")
        return {"ssl.keystore.location": location} | ({"ssl.keystore.password": password} if password else {})
    raise ConfigError(f"{prefix}ssl.keystore.location: a key store of type {kind} cannot be read here; {_CONVERT_KEY}")


def _inline_key(given: Mapping[str, str], inline: tuple[str, str], prefix: str) -> dict[str, str]:
    missing = [name for name in inline if name not in given]
    if missing:
        raise ConfigError(f"{prefix}{missing[0]}: it is missing; a PEM key needs its certificate chain and vice versa")
    key, chain = (_pem(given[name], option=f"{prefix}{name}") for name in inline)
    return {"ssl.key.pem": key, "ssl.certificate.pem": chain}


def _pem(text: str, *, option: str) -> str:
    """Put line breaks where OpenSSL wants them; the JVM client also takes PEM on a single line."""
    blocks = _BLOCK.findall(text)
    if not blocks:
        raise ConfigError(f"{option}: no PEM block in it; paste the text from -----BEGIN to -----END")
    return "".join(_wrapped(label, body) for label, body in blocks)


def _wrapped(label: str, body: str) -> str:
    if ":" in body:  # an encrypted key of the old form carries header lines, which must stay as they are
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"
    joined = "".join(body.split())
    lines = [joined[start : start + _PEM_LINE] for start in range(0, len(joined), _PEM_LINE)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))
