"""JVM client options as users write them -> librdkafka properties.

Pure. The decisions stand in `client_tables.py`, one line per name; here they are carried out.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from discovery.config.client import tables
from discovery.config.client.logins import check_login, login_properties
from discovery.config.client.stores import StoreFile, translate_stores
from discovery.core.errors import ConfigError, StateError
from discovery.core.model import Isolation

PREFIX = "kafka."
_API_TIMEOUT = "default.api.timeout.ms"
_CIPHERS, _PROTOCOLS = "ssl.cipher.suites", "ssl.enabled.protocols"


@dataclass(frozen=True, slots=True, repr=False)
class ClientOptions:
    """librdkafka properties without `bootstrap.servers`, and what a reader may see. Picklable.

    Holds passwords in plain text, as the client needs them; `repr` shows names only.
    """

    librdkafka: Mapping[str, str] = field(default_factory=dict)
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    without_effect: Mapping[str, str] = field(default_factory=dict)
    """Accepted names that change nothing here, with the reason; worth one log line."""
    api_timeout_seconds: float | None = None
    """How long a slow leader may take to report offsets; None: the default of discovery."""
    stores: tuple[StoreFile, ...] = ()
    """Key and trust stores still to be read, by `opened_stores.open_stores`; before that no client can be made."""
    opened: str = ""
    """Names the stores that were read, in the process that read them: see `opened_stores.fresh`."""

    @property
    def connection(self) -> Mapping[str, str]:
        """Only what concerns connections, for clients that do not consume.

        Raises:
            StateError: `open_stores` was not called.
        """
        if self.stores:
            raise StateError(f"the client options name stores that were not opened: {self.stores}")
        return {name: value for name, value in self.librdkafka.items() if name not in tables.CONSUMER_ONLY}

    def __repr__(self) -> str:
        """Show which options are set, and no value: some are secrets."""
        return f"ClientOptions({', '.join(sorted(self.librdkafka))}; {self.isolation.value})"


def map_client_options(given: Mapping[str, str]) -> ClientOptions:
    """Translate the `kafka.*` options of a user.

    Args:
        given: Names with or without the `kafka.` prefix, in any case; without `kafka.bootstrap.servers`.

    Raises:
        ConfigError: an unknown name (the nearest known one is named), a value out of range, or an option
            that cannot be honoured (the replacement is named). Secrets are never repeated.

    Runs: anywhere (pure).
    """
    plain = {name.strip().lower().removeprefix(PREFIX): value for name, value in given.items()}
    for name in plain:
        _admit(name)
    mapped = {
        tables.RENAMED.get(name, name): value
        for name, value in plain.items()
        if name in tables.SAME or name in tables.RENAMED
    }
    properties = {name: _checked(name, value) for name, value in mapped.items()}
    properties |= _ciphers(plain)
    stores = translate_stores(plain, prefix=PREFIX)
    properties |= stores.properties
    properties |= login_properties(plain, properties, prefix=PREFIX)
    # The JVM client reads uncommitted records by default, librdkafka does not.
    isolation = Isolation(properties.setdefault("isolation.level", Isolation.READ_UNCOMMITTED.value))
    check_login(properties, prefix=PREFIX)
    return ClientOptions(
        librdkafka=properties,
        isolation=isolation,
        api_timeout_seconds=int(_checked(_API_TIMEOUT, plain[_API_TIMEOUT])) / 1_000 if _API_TIMEOUT in plain else None,
        stores=stores.files,
        without_effect=_without_effect(plain),
    )


def _admit(name: str) -> None:
    """Refuse what is unknown or cannot be honoured."""
    if name in tables.REFUSED:
        raise ConfigError(f"{PREFIX}{name} is not supported: {tables.REFUSED[name]}")
    known = {*tables.SAME, *tables.RENAMED, *tables.STORES, *tables.COMPOSED, *tables.WITHOUT_EFFECT}
    if name not in known:
        near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
        raise ConfigError(f"{PREFIX}{name}: unknown client option; did you mean {PREFIX}{near[0]}?")


def _checked(name: str, value: str) -> str:
    text = value.strip() if name in tables.RANGES or name in tables.CHOICES else value
    if name in tables.RANGES:
        return _number(name, text)
    if name in tables.CHOICES:
        return _choice(name, text)
    if name == "ssl.endpoint.identification.algorithm":
        return text.strip().lower() or "none"
    return text


def _number(name: str, text: str) -> str:
    low, high = tables.RANGES[name]
    if text == "-1" and name.endswith("buffer.bytes"):  # the JVM client's "whatever the system does"
        return "0"
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or not low <= int(text) <= high:
        raise ConfigError(f"{_spelled(name)}: {text!r} is not a whole number of {low}..{high}")
    return text


def _ciphers(plain: Mapping[str, str]) -> dict[str, str]:
    """Keep the suites that can be chosen: OpenSSL takes the JVM's names, but always offers all of TLS 1.3."""
    named = [name.strip() for name in plain.get(_CIPHERS, "").replace(":", ",").split(",") if name.strip()]
    older = [name for name in named if not name.startswith(tables.TLS_13_SUITES)]
    return {_CIPHERS: ":".join(older)} if older else {}


def _without_effect(plain: Mapping[str, str]) -> dict[str, str]:
    """Name what is accepted and changes nothing, with the reason."""
    found = {name: tables.WITHOUT_EFFECT[name] for name in plain if name in tables.WITHOUT_EFFECT}
    if _PROTOCOLS in plain:
        wanted = {part.strip() for part in plain[_PROTOCOLS].split(",")}
        if not wanted & {"TLSv1.2", "TLSv1.3"}:
            raise ConfigError(
                f"{PREFIX}{_PROTOCOLS}: {plain[_PROTOCOLS]!r} has neither TLSv1.2 nor TLSv1.3, and older ones are "
                "not spoken here; let the brokers take TLSv1.2"
            )
        found[_PROTOCOLS] = tables.PROTOCOLS
    if any(part.strip().startswith(tables.TLS_13_SUITES) for part in plain.get(_CIPHERS, "").split(",")):
        found[_CIPHERS] = "the suites of TLS 1.3 are always offered; those of TLS 1.2 are taken as listed"
    return {f"{PREFIX}{name}": reason for name, reason in found.items()}


def _choice(name: str, text: str) -> str:
    for choice in tables.CHOICES[name]:
        if choice.lower() == text.lower():
            return choice
    hint = f"; {tables.MECHANISM_HINTS[text.upper()]}" if text.upper() in tables.MECHANISM_HINTS else ""
    raise ConfigError(f"{_spelled(name)}: {text!r} is none of {', '.join(tables.CHOICES[name])}{hint}")


def _spelled(name: str) -> str:
    """Return the name a user of the JVM client knows, beside librdkafka's where they differ."""
    jvm = next((old for old, new in tables.RENAMED.items() if new == name and old != "sasl.mechanisms"), None)
    return f"{PREFIX}{jvm} ({name})" if jvm else f"{PREFIX}{name}"
