"""One configuration out of its layers, with the origin of every value and a form that hides secrets."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from discovery.config.layers import Layer, Said, Where, command_line_layer, environment_layer, file_layer
from discovery.config.settings import (
    ApiSettings,
    ClusterSettings,
    EndpointSettings,
    LogSettings,
    MetricsSettings,
    ProbeSettings,
    Settings,
)
from discovery.core.errors import ConfigError

MASK = "***"
_WORDS = {"Input should be": "it must be", "tuple": "list", "dictionary": "table", "string": "text"}
"""pydantic's words -> those of a TOML file."""
_SECRET = re.compile(r"password|passwd|secret|jaas|credential|private|\.key\b|keystore\.key|token$|extensions|username")
_SECTIONS: Mapping[str, type[BaseModel]] = {
    "api": ApiSettings,
    "probes": ProbeSettings,
    "endpoint": EndpointSettings,
    "log": LogSettings,
    "metrics": MetricsSettings,
}


@dataclass(frozen=True, slots=True, repr=False)
class Effective:
    """Settings that hold, and where each value came from. `repr` shows nothing: some values are secrets."""

    settings: Settings
    origins: Mapping[str, str]
    """By dotted name; a name that is missing has its default."""
    ignored: tuple[str, ...] = ()
    """Environment variables that look like ours and mean nothing."""

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (name, value with secrets hidden, origin) of every setting, in the order of the file.

        Runs: anywhere (pure).
        """
        return [(name, shown(name, value), self.origins.get(name, "default")) for name, value in _walk(self.settings)]


def load(*, config: Path | None, environment: Mapping[str, str], options: Mapping[Where, tuple[str, Any]]) -> Effective:
    """Bring defaults, file, environment and command line together; the later wins.

    Raises:
        ConfigError: all that is wrong, each with name, origin and remedy; secrets are never repeated.

    Runs: at start and reload; reads the file and the secrets it names.
    """
    layers = [environment_layer(environment), command_line_layer(options)]
    if config is not None:
        layers.insert(0, file_layer(config))
    said = _merge(layers)
    try:
        settings = Settings.model_validate(_nest(said))
    except ValidationError as error:
        raise ConfigError("; ".join(dict.fromkeys(_one(e, said) for e in error.errors(include_url=False)))) from None
    return Effective(
        settings=settings,
        origins={".".join(where): one.origin for where, one in said.items()},
        ignored=tuple(name for layer in layers for name in layer.ignored),
    )


def shown(name: str, value: object) -> str:
    """Return a value for the eyes of anybody.

    Runs: anywhere (pure).
    """
    if ".client" in name and (name.endswith(".client") or _SECRET.search(name)):
        return MASK
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _merge(layers: Sequence[Layer]) -> dict[Where, Said]:
    merged: dict[Where, Said] = {}
    for layer in layers:
        clusters = {where[1] for where in merged if where[0] == "clusters" and len(where) > 1}
        for where, one in layer.said.items():
            merged[_of_the_only_cluster(where, clusters, one.origin)] = one
    return merged


def _of_the_only_cluster(where: Where, clusters: set[str], origin: str) -> Where:
    """Let the short `bootstrap_servers` mean the one cluster there is; `default` where none has a name yet."""
    if where[0] != "bootstrap_servers" or len(where) > 1:
        return where
    if len(clusters) > 1:
        named = ", ".join(sorted(clusters))
        raise ConfigError(f"bootstrap_servers ({origin}): which of {named}? set clusters.<name>.{where[0]}")
    return ("clusters", next(iter(clusters), "default"), where[0])


def _nest(said: Mapping[Where, Said]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for where, one in said.items():
        table = root
        for name in where[:-1]:
            inner = table.setdefault(name, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{'.'.join(where)} ({one.origin}): {name} is a value elsewhere; it must be a table")
            table = inner
        table[where[-1]] = one.value
    return root


def _one(error: ErrorDetails, said: Mapping[Where, Said]) -> str:
    where = tuple(str(part) for part in error["loc"])
    name = ".".join(where)
    one = next((said[where[:n]] for n in range(len(where), 0, -1) if where[:n] in said), None)
    origin = f" ({one.origin})" if one else ""
    match error["type"]:
        case "extra_forbidden":
            return f"{name}{origin}: unknown setting; did you mean {_near(where)}?"
        case "missing" if name == "clusters":
            return 'clusters: none is given; set --bootstrap HOST:PORT or [clusters.<name>] bootstrap_servers = ["…"]'
        case "missing":
            return f"{name}: it is missing; set it in the file, the environment or on the command line"
        case "value_error" if not name:
            return str(error["ctx"]["error"])
    leaf = one is not None and where in said and shown(name, one.value) != MASK
    value = f" {said[where].value!r}:" if leaf else ""
    return f"{name}{origin}:{value} {expected(error)}"


def expected(error: ErrorDetails) -> str:
    """Return what pydantic would have accepted, in a user's words."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    text = error["msg"]
    for theirs, ours in _WORDS.items():
        text = text.replace(theirs, ours)
    return f"{text[0].lower()}{text[1:]}".split(" or instance of")[0]


def _near(where: Where) -> str:
    model: type[BaseModel] = Settings
    parent: Where = ()
    if where[0] in _SECTIONS and len(where) > 1:
        model, parent = _SECTIONS[where[0]], where[:1]
    elif where[0] == "clusters" and len(where) > 2:  # noqa: PLR2004 - clusters.NAME.field
        model, parent = ClusterSettings, where[:2]
    near = difflib.get_close_matches(where[len(parent)], model.model_fields, n=1, cutoff=0.0)
    return ".".join((*parent, near[0]))


def _walk(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        yield from _leaves(f"{prefix}{name}", value)


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, BaseModel):
        yield from _walk(value, f"{name}.")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    else:
        yield name, value
