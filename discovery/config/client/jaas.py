"""Reads `sasl.jaas.config`, the JVM client's way to write a login. No message ever repeats any part of its text."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from discovery.core.errors import ConfigError
from discovery.core.plural import counted

_SHAPE = 'write it as: <LoginModule class> required username="…" password="…";'
_ENTRY = re.compile(
    r'\s*([A-Za-z_][\w.\-]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([^\s;"\']+))', re.DOTALL
)
_HEAD = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """One login module and its options. `repr` shows neither names nor values."""

    module: str
    """Class name without its package."""
    options: Mapping[str, str]


def parse_jaas(text: str, *, option: str) -> Login:
    """Read one JAAS entry as Kafka does.

    Raises:
        ConfigError: malformed, or more than one entry; names `option`, never the text.

    Runs: anywhere (pure).
    """
    head = _HEAD.match(text)
    if head is None:
        raise ConfigError(f"{option}: it does not begin with a login module and a flag; {_SHAPE}")
    options: dict[str, str] = {}
    position = head.end()
    while entry := _ENTRY.match(text, position):
        name, double, single, bare = entry.groups()
        quoted = double if double is not None else single
        options[name] = bare if quoted is None else _ESCAPE.sub(_unescaped, quoted)
        position = entry.end()
    rest = text[position:].strip()
    if rest != ";":
        problem = (
            "the closing semicolon is missing" if not rest else f"unreadable after {counted(len(options), 'option')}"
        )
        raise ConfigError(f"{option}: {problem}; {_SHAPE}")
    return Login(head.group(1).rpartition(".")[2], options)


def _unescaped(match: re.Match[str]) -> str:
    character = match.group(1)
    return _CONTROL.get(character, character)
