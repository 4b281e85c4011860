"""Durations as people write them: `30s`, `500ms`, `5m`, `1h`, or a bare number of seconds."""

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s*", re.ASCII)


def seconds(value: object) -> float:
    """Return a duration in seconds.

    Args:
        value: A number of seconds, or text like `30s`.

    Raises:
        ValueError: neither; the text says what is expected.

    Runs: anywhere (pure).
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    found = _FORM.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('a duration is a number of seconds or text like "500ms", "30s", "5m"')
    return float(found[1]) * _UNITS[found[2] or "s"]
