"""Sizes as Spark writes them: `64m`, `1g`, `65536k`, or plain bytes."""

import re

from discovery.core.errors import ConfigError

_SHIFTS = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30}
_SHAPE = re.compile(r"(\d{1,15})\s*([a-z]*)", re.ASCII)


def parse_size(text: str, *, option: str, least: str, most: str) -> int:
    """Return the bytes of a size.

    Raises:
        ConfigError: not a size, or outside `least` to `most`; names `option`.

    Runs: anywhere (pure).
    """
    size = _bytes(text)
    if size is None:
        raise ConfigError(f'{option}: {text!r} is not a size; write a whole number with a unit, like "64m"')
    if not (_bytes(least) or 0) <= size <= (_bytes(most) or 0):
        raise ConfigError(f"{option}: {text!r} is outside {least} to {most}")
    return size


def _bytes(text: str) -> int | None:
    match = _SHAPE.fullmatch(text.strip().lower())
    shift = _SHIFTS.get(match[2]) if match else None
    return None if match is None or shift is None else int(match[1]) << shift
