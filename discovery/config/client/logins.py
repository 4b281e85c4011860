"""Logins as the JVM client writes them (`sasl.jaas.config` and what belongs to it) -> librdkafka properties. Pure."""

from collections.abc import Mapping

from discovery.config.client import tables
from discovery.config.client.jaas import Login, parse_jaas
from discovery.core.errors import ConfigError

_JAAS = "sasl.jaas.config"
_HANDLER = "sasl.login.callback.handler.class"
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")
_GRANTS = {
    "DefaultJwtRetriever": None,
    "ClientCredentialsJwtRetriever": "client_credentials",
    "JwtBearerJwtRetriever": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}
_PASSWORD_MODULES = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}
_OAUTH_MODULE = "OAuthBearerLoginModule"
_OAUTH_NAMES = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_EXTENSION, _UNSECURED = "extension_", "unsecuredLogin"
_TOKEN_SOURCES = {_ENDPOINT, "sasl.oauthbearer.config", "sasl.oauthbearer.metadata.authentication.type"}


def login_properties(plain: Mapping[str, str], properties: Mapping[str, str], *, prefix: str) -> dict[str, str]:
    """Translate `sasl.jaas.config` and what belongs to it.

    Args:
        plain: The user's options without prefix.
        properties: What they came to so far.
        prefix: In front of option names in messages.

    Raises:
        ConfigError: a login that librdkafka cannot make; names the replacement, never a part of the login.

    Runs: anywhere (pure).
    """
    handler = plain.get(_HANDLER, _HANDLERS[0]).strip().rpartition(".")[2]
    if handler not in _HANDLERS:
        raise ConfigError(
            f"{prefix}{_HANDLER} is not supported: classes of the JVM client cannot run here; log in with SCRAM, "
            "PLAIN, a client certificate, or OAUTHBEARER with a token endpoint"
        )
    mechanism = properties.get("sasl.mechanism", "")
    login = parse_jaas(plain[_JAAS], option=prefix + _JAAS) if _JAAS in plain else None
    if login is not None and login.module in _PASSWORD_MODULES:
        return _password_login(login, mechanism, prefix)
    if login is not None and login.module != _OAUTH_MODULE:
        supported = ", ".join((*_PASSWORD_MODULES, _OAUTH_MODULE))
        raise ConfigError(f"{prefix}{_JAAS}: this login module is not supported; use one of {supported}")
    if mechanism != "OAUTHBEARER":
        return {}
    return _oauth_login(login, properties, prefix) | _grant(plain, prefix)


def check_login(properties: Mapping[str, str], *, prefix: str) -> None:
    """Refuse a SASL protocol without a login: librdkafka would say so in its own words, far from here.

    Raises:
        ConfigError: the missing option is named.

    Runs: anywhere (pure).
    """
    if not properties.get("security.protocol", "").startswith("SASL"):
        return
    mechanism = properties.get("sasl.mechanism")
    if mechanism is None:
        raise ConfigError(
            f"{prefix}sasl.mechanism: it is missing; {prefix}security.protocol={properties['security.protocol']} "
            f"needs one of {', '.join(tables.CHOICES['sasl.mechanism'])}"
        )
    if mechanism != "OAUTHBEARER":
        if "sasl.username" not in properties or "sasl.password" not in properties:
            raise ConfigError(f"{prefix}{_JAAS}: it is missing; {mechanism} needs a user name and a password")
    elif not _TOKEN_SOURCES & properties.keys():
        raise ConfigError(f"{prefix}{_ENDPOINT}: it is missing; OAUTHBEARER needs where to fetch tokens")


def _password_login(login: Login, mechanism: str, prefix: str) -> dict[str, str]:
    allowed = _PASSWORD_MODULES[login.module]
    if mechanism not in allowed:
        raise ConfigError(
            f"{prefix}sasl.mechanism: {login.module} in {prefix}{_JAAS} needs {' or '.join(allowed)}, "
            f"not {mechanism or 'nothing (the JVM client would take GSSAPI)'}"
        )
    missing = [name for name in ("username", "password") if name not in login.options]
    if missing:
        raise ConfigError(f'{prefix}{_JAAS}: {missing[0]} is missing; add {missing[0]}="…"')
    return {"sasl.username": login.options["username"], "sasl.password": login.options["password"]}


def _oauth_login(login: Login | None, properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    options = login.options if login is not None else {}
    if any(name.startswith("ssl.") for name in options):
        raise ConfigError(
            f"{prefix}{_JAAS}: ssl options in it are not supported; name the authority of the token endpoint in "
            f"{prefix}https.ca.location (a PEM file)"
        )
    if _ENDPOINT not in properties and any(name.startswith(_UNSECURED) for name in options):
        return _unsecured_login(options, prefix)
    mapped = {_OAUTH_NAMES[name]: value for name, value in options.items() if name in _OAUTH_NAMES}
    extensions = [
        f"{name.removeprefix(_EXTENSION)}={value}" for name, value in options.items() if name.startswith(_EXTENSION)
    ]
    if extensions:
        mapped["sasl.oauthbearer.extensions"] = ",".join(extensions)
    if _ENDPOINT in properties:
        if properties[_ENDPOINT].strip().lower().startswith("file:"):
            raise ConfigError(f"{prefix}{_ENDPOINT}: a token in a file is not supported; give an https address")
        mapped.setdefault("sasl.oauthbearer.method", "oidc")
    return mapped


def _grant(plain: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Translate the class that fetches tokens to the way librdkafka fetches them."""
    if _RETRIEVER not in plain:
        return {}
    name = plain[_RETRIEVER].strip().rpartition(".")[2]
    if name not in _GRANTS:
        raise ConfigError(f"{prefix}{_RETRIEVER} is not supported; use one of {', '.join(_GRANTS)}")
    grant = _GRANTS[name]
    return {} if grant is None else {"sasl.oauthbearer.grant.type": grant}


def _unsecured_login(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Translate unsigned tokens, which only brokers of a test accept."""
    given = {name.removeprefix(_UNSECURED): value for name, value in options.items() if name.startswith(_UNSECURED)}
    principal_claim = given.pop("PrincipalClaimName", "sub")
    scope_claim = given.pop("ScopeClaimName", "scope")
    words = {
        "principalClaimName": principal_claim,
        "principal": given.pop(f"StringClaim_{principal_claim}", ""),
        "scopeClaimName": scope_claim,
        "scope": _scopes(given.pop(f"ListClaim_{scope_claim}", given.pop(f"StringClaim_{scope_claim}", ""))),
        "lifeSeconds": given.pop("LifetimeSeconds", ""),
    }
    words |= {f"extension_{name.removeprefix('Extension_')}": given.pop(name) for name in list(given) if "Ext" in name}
    if (
        given
        or not words["principal"]
        or any(set(' ,="') & set(word) for word in words.values() if word != words["scope"])
    ):
        raise ConfigError(
            f"{prefix}{_JAAS}: of an unsecured login only a principal without blanks "
            f"(unsecuredLoginStringClaim_{principal_claim}), scopes, lifetime and extensions can be used here"
        )
    return {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": " ".join(f"{name}={word}" for name, word in words.items() if word),
    }


def _scopes(text: str) -> str:
    """Read a JVM list, whose first character parts the others."""
    if not text or text[0].isalnum():
        return text
    return ",".join(part for part in text[1:].split(text[0]) if part)
