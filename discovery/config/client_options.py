"""JVM client options as users write them -> librdkafka properties.

Pure. The decisions stand in `client_tables.py`, one line per name; here they are carried out.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from discovery.config import client_tables as tables
from discovery.config.jaas import Login, parse_jaas
from discovery.config.stores import translate_stores
from discovery.core.errors import ConfigError
from discovery.core.model import Isolation

PREFIX = "kafka."
_JAAS = "sasl.jaas.config"
_HANDLER = "sasl.login.callback.handler.class"
_KNOWN_HANDLER = "OAuthBearerLoginCallbackHandler"
_PASSWORD_MODULES = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}
_OAUTH_MODULE = "OAuthBearerLoginModule"
_OAUTH_NAMES = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_EXTENSION = "extension_"


@dataclass(frozen=True, slots=True, repr=False)
class ClientOptions:
    """librdkafka properties without `bootstrap.servers`, and what a reader may see. Picklable.

    Holds passwords in plain text, as the client needs them; `repr` shows names only.
    """

    librdkafka: Mapping[str, str] = field(default_factory=dict)
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    without_effect: Mapping[str, str] = field(default_factory=dict)
    """Accepted names that change nothing here, with the reason; worth one log line."""

    @property
    def connection(self) -> Mapping[str, str]:
        """Only what concerns connections, for clients that do not consume."""
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
    properties |= translate_stores(plain, prefix=PREFIX)
    properties |= _login(plain, properties)
    # The JVM client reads uncommitted records unless told otherwise, librdkafka does not.
    isolation = Isolation(properties.setdefault("isolation.level", Isolation.READ_UNCOMMITTED.value))
    _check_login(properties)
    return ClientOptions(
        librdkafka=properties,
        isolation=isolation,
        without_effect={
            f"{PREFIX}{name}": tables.WITHOUT_EFFECT[name] for name in plain if name in tables.WITHOUT_EFFECT
        },
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


def _choice(name: str, text: str) -> str:
    for choice in tables.CHOICES[name]:
        if choice.lower() == text.lower():
            return choice
    hint = f"; {tables.REFUSED['sasl.kerberos.service.name']}" if text.upper() == "GSSAPI" else ""
    raise ConfigError(f"{_spelled(name)}: {text!r} is none of {', '.join(tables.CHOICES[name])}{hint}")


def _spelled(name: str) -> str:
    """Return the name a user of the JVM client knows, beside librdkafka's where they differ."""
    jvm = next((old for old, new in tables.RENAMED.items() if new == name and old != "sasl.mechanisms"), None)
    return f"{PREFIX}{jvm} ({name})" if jvm else f"{PREFIX}{name}"


def _login(plain: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """Translate `sasl.jaas.config` and what belongs to it."""
    handler = plain.get(_HANDLER, _KNOWN_HANDLER).rpartition(".")[2]
    if handler != _KNOWN_HANDLER:
        raise ConfigError(f"{PREFIX}{_HANDLER} is not supported: {tables.REFUSED['sasl.login.class']}")
    mechanism = properties.get("sasl.mechanism", "")
    login = parse_jaas(plain[_JAAS], option=PREFIX + _JAAS) if _JAAS in plain else None
    if login is not None and login.module in _PASSWORD_MODULES:
        return _password_login(login, mechanism)
    if login is not None and login.module != _OAUTH_MODULE:
        supported = ", ".join((*_PASSWORD_MODULES, _OAUTH_MODULE))
        raise ConfigError(f"{PREFIX}{_JAAS}: this login module is not supported; use one of {supported}")
    return _oauth_login(login, properties) if mechanism == "OAUTHBEARER" else {}


def _password_login(login: Login, mechanism: str) -> dict[str, str]:
    allowed = _PASSWORD_MODULES[login.module]
    if mechanism not in allowed:
        raise ConfigError(
            f"{PREFIX}sasl.mechanism: {login.module} in {PREFIX}{_JAAS} needs {' or '.join(allowed)}, "
            f"not {mechanism or 'nothing (the JVM client would take GSSAPI)'}"
        )
    missing = [name for name in ("username", "password") if name not in login.options]
    if missing:
        raise ConfigError(f'{PREFIX}{_JAAS}: {missing[0]} is missing; add {missing[0]}="…"')
    return {"sasl.username": login.options["username"], "sasl.password": login.options["password"]}


def _oauth_login(login: Login | None, properties: Mapping[str, str]) -> dict[str, str]:
    options = login.options if login is not None else {}
    mapped = {_OAUTH_NAMES[name]: value for name, value in options.items() if name in _OAUTH_NAMES}
    extensions = [
        f"{name.removeprefix(_EXTENSION)}={value}" for name, value in options.items() if name.startswith(_EXTENSION)
    ]
    if extensions:
        mapped["sasl.oauthbearer.extensions"] = ",".join(extensions)
    if "sasl.oauthbearer.token.endpoint.url" in properties:
        mapped.setdefault("sasl.oauthbearer.method", "oidc")
    return mapped


def _check_login(properties: Mapping[str, str]) -> None:
    """Refuse a SASL protocol without a login: librdkafka would say so in its own words, far from here."""
    if not properties.get("security.protocol", "").startswith("SASL"):
        return
    mechanism = properties.get("sasl.mechanism")
    if mechanism is None:
        raise ConfigError(
            f"{PREFIX}sasl.mechanism: it is missing; {PREFIX}security.protocol={properties['security.protocol']} "
            f"needs one of {', '.join(tables.CHOICES['sasl.mechanism'])}"
        )
    if mechanism != "OAUTHBEARER":
        if "sasl.username" not in properties or "sasl.password" not in properties:
            raise ConfigError(f"{PREFIX}{_JAAS}: it is missing; {mechanism} needs a user name and a password")
    elif not {"sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.config"} & properties.keys():
        raise ConfigError(
            f"{PREFIX}sasl.oauthbearer.token.endpoint.url: it is missing; OAUTHBEARER needs where to fetch tokens"
        )
