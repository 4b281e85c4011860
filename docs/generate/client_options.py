"""The client options as a reference page, made from the tables: `python -m docs.generate.client_options`."""

import textwrap
from collections.abc import Collection
from pathlib import Path

from discovery.config.client import tables

PAGE = Path("docs/reference/client-options.md")
_HEAD = """# Client options

`kafka.*` takes the names of the JVM client and of librdkafka; each has a decided fate. A name that is in no table is a
typing mistake and is answered with the nearest known one. How to write logins and stores:
[brokers that want a login](../how-to/security.md).
"""
_STORES = """Files are read once, on the driver, when the query starts; workers get what was in them. The file's content
decides how it is read, whatever `type` says: PEM, PKCS12, or JKS and JCEKS (Java's `keytool` reads these). The names
of librdkafka's own, `ssl.ca.location`, `ssl.certificate.location` and `ssl.key.location`, are paths on
every host instead."""
_SLOW = """`kafka.request.timeout.ms` and `kafka.socket.connection.setup.timeout.ms` also raise, and never lower, what
discovery itself waits for one answer (5 s) and for a connection with its first answer (2 s): to 10 s at most. A cluster
of which *every* broker takes longer cannot start without: give both a little more than twice the time of an answer.
One slow leader among others needs neither."""
_COMPOSED = {
    "default.api.timeout.ms": "how long a slow leader may take for an answer, 1000..3600000; 60000 by default",
    "sasl.jaas.config": "PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule",
    "sasl.login.callback.handler.class": "OAuthBearerLoginCallbackHandler, OAuthBearerUnsecuredLoginCallbackHandler",
    "sasl.oauthbearer.jwt.retriever.class": "DefaultJwtRetriever, ClientCredentialsJwtRetriever, JwtBearerJwtRetriever",
    "ssl.cipher.suites": "names of the JVM or of OpenSSL; those of TLS 1.3 are always offered",
    "ssl.enabled.protocols": f"TLSv1.2 or TLSv1.3 must be among them; {tables.PROTOCOLS}",
}


def page() -> str:
    """Return the whole page."""
    return "\n".join(
        (
            _HEAD,
            _list("Passed on", tables.SAME),
            _table("Renamed", ("JVM client", "librdkafka"), list(tables.RENAMED.items()), _SLOW),
            _list("Key and trust stores", tables.STORES, _STORES),
            _table("Translated", ("option", "what is taken"), list(_COMPOSED.items())),
            _table("Accepted, without effect", ("option", "because"), list(tables.WITHOUT_EFFECT.items())),
            _table("Refused", ("option", "instead"), list(tables.REFUSED.items())),
        )
    )


def _list(title: str, names: Collection[str], text: str = "") -> str:
    listed = textwrap.fill(", ".join(f"`kafka.{name}`" for name in sorted(names)), 118, break_on_hyphens=False)
    return "\n".join((f"## {title}", "", *([text, ""] if text else []), listed, ""))


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], text: str = "") -> str:
    lines = [
        f"## {title}",
        "",
        *([text, ""] if text else []),
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
    ]
    lines += [f"| `kafka.{row[0]}` |" + "".join(f" {cell} |" for cell in row[1:]) for row in sorted(rows)]
    return "\n".join((*lines, ""))


if __name__ == "__main__":
    PAGE.write_text(page())
