"""Durations as Spark writes them: `10s`, `500ms`, `10 minutes`."""

import re

from discovery.core.errors import ConfigError

_UNITS = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
    "microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0,
}  # fmt: skip
_SHAPE = re.compile(r"(\d+)\s*([a-z]+)", re.ASCII)


def parse_duration(text: str, *, option: str, bare_unit: str | None = None) -> float:
    """Return the seconds of a duration; a number alone has the unit `bare_unit`, if one is given.

    Raises:
        ConfigError: no number with a known unit, or not above zero; names `option`.

    Runs: anywhere (pure).
    """
    stripped = text.strip().lower()
    match = _SHAPE.fullmatch(stripped + (bare_unit or "") if stripped.isdigit() else stripped)
    scale = match and (_UNITS.get(match[2]) or _UNITS.get(match[2].removesuffix("s")))
    if not match or not scale or int(match[1]) == 0:
        raise ConfigError(f'{option}: {text!r} is not a duration above zero; write a number with a unit, like "10s"')
    return int(match[1]) * scale
