"""The layers a configuration is made of: a strict file, a lax environment, the command line; each with its origin.

A layer maps paths such as `("api", "port")` to raw values. Later layers win, leaf by leaf.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from discovery.core.errors import ConfigError

Where = tuple[str, ...]
PREFIX = "KAFKA_DISCOVERY_"
_SECTIONS = ("api", "probes", "endpoint", "log", "metrics", "loop")
_FILE = "_file"
_SECRET_MAX_BYTES = 262_144


@dataclass(frozen=True, slots=True, repr=False)
class Said:
    """A raw value and who said it."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Layer:
    """What one place said, and names it held that mean nothing to us."""

    said: Mapping[Where, Said]
    ignored: tuple[str, ...] = ()
    clusters: frozenset[str] = field(default_factory=frozenset)


def file_layer(path: Path) -> Layer:
    """Read a TOML file.

    Raises:
        ConfigError: it cannot be read or is not TOML; names file and place.

    Runs: at start and reload; reads one file.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config: {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path} is not TOML: {error}") from error
    said = {where: Said(value, f"file {path}") for where, value in _leaves(content, ())}
    return Layer(said=_read_secrets(said, relative_to=path.parent))


def environment_layer(environment: Mapping[str, str]) -> Layer:
    """Pick our names out of an environment; what merely looks like ours is ignored, for Kubernetes injects such.

    `KAFKA_DISCOVERY_API__PORT` is `api.port`; a cluster's are `KAFKA_DISCOVERY_CLUSTERS__MAIN__BOOTSTRAP_SERVERS`
    and `…__CLIENT__SASL_JAAS_CONFIG_FILE`; `KAFKA_DISCOVERY_BOOTSTRAP_SERVERS` belongs to the only cluster.

    Runs: at start and reload.
    """
    said: dict[Where, Said] = {}
    ignored = []
    for name in sorted(environment):
        if not name.startswith(PREFIX):
            continue
        where = _where(name.removeprefix(PREFIX).lower().split("__"))
        if where is None:
            ignored.append(name)
        else:
            said[where] = Said(environment[name], f"environment {name}")
    return Layer(said=_read_secrets(said, relative_to=Path()), ignored=tuple(ignored))


def command_line_layer(options: Mapping[Where, tuple[str, Any]]) -> Layer:
    """Take what was typed: `{("api", "port"): ("--port", 9463)}`; None means it was not.

    Runs: at start and reload.
    """
    return Layer(
        said={
            where: Said(value, f"command line {option}")
            for where, (option, value) in options.items()
            if value is not None
        }
    )


def _where(parts: list[str]) -> Where | None:
    match parts:
        case ["state_dir" | "silence_seconds" | "events_max" | "bootstrap_servers" as name]:
            return (name,)
        case [section, name] if section in _SECTIONS and name:
            return (section, name)
        case ["clusters", cluster, name] if cluster and name not in {"client", "loop"}:
            return ("clusters", cluster, name)
        case ["clusters", cluster, "client", option] if cluster and option:
            secret = option.endswith(_FILE)
            return ("clusters", cluster, "client", option.removesuffix(_FILE).replace("_", ".") + _FILE * secret)
        case ["clusters", cluster, "loop", name] if cluster and name:
            return ("clusters", cluster, "loop", name)
    return None


def _leaves(table: Mapping[str, Any], where: Where) -> Iterator[tuple[Where, Any]]:
    """Walk nested tables; TOML reads an unquoted `security.protocol = …` below `client` as tables, so join them."""
    client = len(where) >= 3 and where[0] == "clusters" and where[2] == "client"  # noqa: PLR2004 - clusters.NAME.client
    for name, value in table.items():
        inner = (*where[:3], ".".join((*where[3:], name))) if client else (*where, name)
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, inner)
        else:
            yield inner, value


def _read_secrets(said: Mapping[Where, Said], *, relative_to: Path) -> dict[Where, Said]:
    """Replace a client option's `<name>_file` by what the file holds, without the line end editors add."""
    read = dict(said)
    for where, one in said.items():
        if len(where) > 3 and where[2] == "client" and where[-1].endswith(_FILE):  # noqa: PLR2004
            del read[where]
            name = (*where[:-1], where[-1].removesuffix(_FILE))
            if name in said:
                raise ConfigError(f"{'.'.join(name)} is given twice, as a value and as a file; keep one")
            path = relative_to / str(one.value)
            read[name] = Said(_content(path, ".".join(where)), f"{one.origin}, read from {path}")
    return read


def _content(path: Path, option: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_SECRET_MAX_BYTES + 1)
        if len(content) > _SECRET_MAX_BYTES:
            raise ConfigError(f"{option}: {path} is larger than {_SECRET_MAX_BYTES} bytes; that is no secret")
        return content.decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{option}: {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option}: {path} is not text in UTF-8") from error
