"""Where in a command, its environment and its files a bootstrap list stands. Pure, but for a reader handed in."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from discovery.core.errors import ConfigError
from discovery.core.model import parse_bootstrap_servers

_NAMED = re.compile(r"bootstrap|broker|kafka", re.IGNORECASE)
_ADDRESS = re.compile(r"^(?:[A-Z_]+://)?[A-Za-z0-9_.\-\[\]:]+:\d{1,5}$")
_FLAGS = frozenset({"-v", "--verbose", "--version", "-h", "--help", "--supervise", "--usage-error"})
"""Options of spark-submit that take no value."""
_LINE = re.compile(r"^(?P<key>\s*[^#!\s:=][^\s:=]*)(?P<sep>\s*[=:\s]\s*)(?P<value>.*)$")
_SERVERS = "bootstrap.servers"


class Kind(Enum):
    """What holds a list."""

    ARGUMENT = "argument"
    CONF = "Spark setting"
    VARIABLE = "environment variable"
    FILE = "properties file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One list and where it stands."""

    kind: Kind
    name: str
    """The option, setting, variable or key; empty for an argument without a name."""
    servers: str
    index: int = -1
    """Position in the command, for all but variables."""
    head: str = ""
    """What stands before the list in that argument; for a file: its path."""

    def __str__(self) -> str:
        """Say it in words."""
        where = f" of {self.head.rpartition('=')[2] or self.head}" if self.kind is Kind.FILE else ""
        return f"{self.kind.value} {self.name or 'without a name'}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a command is."""

    spark_submit: bool
    master: str
    cluster_mode: bool
    """The driver runs on another host."""
    arguments_from: int
    """Position of the first argument that is the job's own."""


def shape_of(command: Sequence[str]) -> Shape:
    """Read a command as far as it concerns us.

    Runs: anywhere (pure).
    """
    program = command[0].rpartition("/")[2]
    if program not in {"spark-submit", "spark-submit.cmd", "pyspark", "spark-submit2.cmd"}:
        return Shape(spark_submit=False, master="", cluster_mode=False, arguments_from=1)
    master, mode, position = "", "", 1
    while position < len(command) and command[position].startswith("-"):
        name, equals, value = command[position].partition("=")
        if name in _FLAGS:
            position += 1
            continue
        if not equals:
            value = command[position + 1] if position + 1 < len(command) else ""
            position += 1
        master = value if name == "--master" else _setting(name, value, "spark.master") or master
        mode = value if name == "--deploy-mode" else _setting(name, value, "spark.submit.deployMode") or mode
        position += 1
    return Shape(spark_submit=True, master=master, cluster_mode=mode == "cluster", arguments_from=position + 1)


def find_places(
    command: Sequence[str], environment: Mapping[str, str], read: Callable[[str], str | None]
) -> tuple[Place, ...]:
    """Find every list, best guesses included: what is a list of Kafka brokers, the vetting decides.

    Args:
        command: The job's command, program first.
        environment: What the job would inherit.
        read: Returns a small text file's content, or None.

    Runs: anywhere (pure, but for `read`).
    """
    shape = shape_of(command)
    return (
        *_in_submit_options(command[: shape.arguments_from], read if shape.spark_submit else lambda _: None),
        *_in_arguments(command, shape.arguments_from, read),
        *(
            Place(kind=Kind.VARIABLE, name=name, servers=value)
            for name, value in sorted(environment.items())
            if _NAMED.search(name) and is_list(value) and not name.startswith("KAFKA_DISCOVERY_")
        ),
    )


def is_list(text: str) -> bool:
    """Tell whether the whole text is a list of host:port.

    Runs: anywhere (pure).
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(_ADDRESS.match(part) for part in parts):
        return False
    try:
        parse_bootstrap_servers(text)
    except ConfigError:
        return False
    return True


def replaced(text: str, changes: Mapping[str, str], extra: Mapping[str, str]) -> str:
    """Return a properties file's text with other values for some keys, and keys added where they are missing.

    Args:
        text: A Java properties file, or one of spark-submit's.
        changes: New values by key.
        extra: Client options by their JVM names; added behind each changed `…bootstrap.servers` with its prefix.

    Runs: anywhere (pure).
    """
    present = {found.group("key").strip() for line in text.splitlines() if (found := _LINE.match(line))}
    lines: list[str] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        key = found.group("key").strip() if found else ""
        if found is None or key not in changes:
            lines.append(line)
            continue
        lines.append(f"{found.group('key')}{found.group('sep')}{changes[key]}")
        if key.endswith(_SERVERS):
            prefix = key.removesuffix(_SERVERS)
            added = {f"{prefix}{name}": value for name, value in extra.items()}
            lines += [f"{name}{found.group('sep')}{v}" for name, v in added.items() if name not in present]
    return "\n".join(lines) + "\n"


def keys_of(text: str) -> dict[str, str]:
    """Return a properties file's keys and values.

    Runs: anywhere (pure).
    """
    return {
        found.group("key").strip(): found.group("value").strip()
        for line in text.splitlines()
        if (found := _LINE.match(line))
    }


def _setting(option: str, value: str, wanted: str) -> str:
    name, _, said = value.partition("=")
    return said if option in {"--conf", "-c"} and name == wanted else ""


def _in_submit_options(options: Sequence[str], read: Callable[[str], str | None]) -> Iterator[Place]:
    for position, word in enumerate(options):
        name, equals, value = word.partition("=")
        joined = bool(equals) and name in {"--conf", "--properties-file"}
        option = name if joined else (options[position - 1] if position else "")
        value = value if joined else word
        head = f"{name}=" if joined else ""
        if option in {"--conf", "-c"}:
            key, _, said = value.partition("=")
            if _NAMED.search(key) and is_list(said):
                yield Place(kind=Kind.CONF, name=key, servers=said, index=position, head=f"{head}{key}=")
        elif option == "--properties-file":
            yield from _in_file(value, position, head, read)


def _in_arguments(command: Sequence[str], start: int, read: Callable[[str], str | None]) -> Iterator[Place]:
    for position in range(start, len(command)):
        word = command[position]
        name, equals, value = word.partition("=")
        if equals and is_list(value):
            yield Place(kind=Kind.ARGUMENT, name=name, servers=value, index=position, head=f"{name}=")
        elif is_list(word):
            before = command[position - 1] if position > start else ""
            named = before if before.startswith("-") else ""
            yield Place(kind=Kind.ARGUMENT, name=named, servers=word, index=position)
        elif (value if equals else word).endswith(".properties"):
            yield from _in_file(value if equals else word, position, f"{name}=" if equals else "", read)


def _in_file(path: str, position: int, head: str, read: Callable[[str], str | None]) -> Iterator[Place]:
    for key, value in keys_of(read(path) or "").items():
        if _NAMED.search(key) and is_list(value):
            yield Place(kind=Kind.FILE, name=key, servers=value, index=position, head=f"{head}{path}")
