"""Durations as people and Spark write them: `30s`, `500ms`, `10 minutes`, `1 day`."""

import re

from discovery.core.errors import ConfigError

_UNITS = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0,
    "microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": 86_400.0,
}  # fmt: skip
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)


def seconds(value: object, *, bare_unit: str = "s") -> float:
    """Return a duration in seconds.

    Args:
        value: A number of seconds, or text like `30s`.
        bare_unit: The unit of text that is a number alone; empty: it must have one.

    Raises:
        ValueError: neither; the text says what is expected.

    Runs: anywhere (pure).
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    found = _FORM.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    unit = found and (found[2] or bare_unit)
    scale = unit and (_UNITS.get(unit) or _UNITS.get(unit.removesuffix("s")))
    if not found or not scale:
        raise ValueError('a duration is a number of seconds or text like "500ms", "30s", "5m"')
    return float(found[1]) * scale


def duration_option(
    text: str, *, option: str, bare_unit: str = "", above_zero: bool = True, within: tuple[str, str] | None = None
) -> float:
    """Return the seconds of an option's duration.

    Raises:
        ConfigError: no number with a known unit, zero where it must be more, or outside `within`; names `option`.

    Runs: anywhere (pure).
    """
    try:
        found = seconds(text, bare_unit=bare_unit)
    except ValueError:
        found = -1.0
    if found < 0 or (above_zero and not found):
        more = " above zero" if above_zero else ""
        raise ConfigError(f'{option}: {text!r} is not a duration{more}; write a number with a unit, like "10s"')
    if within is not None and not seconds(within[0]) <= found <= seconds(within[1]):
        raise ConfigError(f"{option}: {text!r} is outside {within[0]} to {within[1]}; write a duration between them")
    return found
