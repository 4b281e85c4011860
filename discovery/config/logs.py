"""Logs: one line per thing that happened, JSON unless a person is reading, tracebacks without local variables."""

import json
import logging
import re
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

_OURS = ("discovery", "kafka_discovery")
"""Roots of our loggers: the host's own loggers stay as they are."""
_THEIRS = ("uvicorn", "asyncio")
_COLORS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m"}
_PLAIN = "\x1b[0m"
_NEEDS_QUOTES = re.compile(r"[\s=\"']|^$")
_LOGGINGS_OWN = frozenset({"exc_info", "stack_info", "stacklevel"})


class EventLog(logging.LoggerAdapter[logging.Logger]):
    """Logs events by name with facts as keywords: `log.info("reloaded", clusters=["main"])`. Thread-safe."""

    def process(self, msg: str, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        """Keep event and facts apart for our own handler, and together in the message for any other."""
        facts = {name: value for name, value in kwargs.items() if name not in _LOGGINGS_OWN}
        rest = {name: value for name, value in kwargs.items() if name in _LOGGINGS_OWN}
        return _text(msg, facts), {**rest, "extra": {"event": msg, "facts": facts}}


def event_log(name: str) -> EventLog:
    """Return the log of a part of the program, below `discovery`."""
    return EventLog(logging.getLogger(name))


class _Lines(logging.Formatter):
    """One record as one line, and its traceback."""

    def __init__(self, *, as_json: bool, colors: bool) -> None:
        super().__init__()
        self._as_json = as_json
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        level, trace = record.levelname.lower(), self.formatException(record.exc_info) if record.exc_info else ""
        if self._as_json:
            line = {"event": getattr(record, "event", record.getMessage()), "level": level, "timestamp": moment}
            exception = {"exception": trace} if trace else {}
            return json.dumps({**line, **getattr(record, "facts", {}), **exception}, sort_keys=True, default=str)
        color = _COLORS.get(record.levelno, "") if self._colors else ""
        text = f"{moment} {color}[{level:<7}]{color and _PLAIN} {record.getMessage()}"
        return f"{text}\n{trace}" if trace else text


def configure_logging(
    *, stream: TextIO | None = None, as_json: bool | None = None, level: int = logging.INFO, owns_process: bool = False
) -> None:
    """Set up our loggers for this process, unless its host already did.

    Args:
        stream: stderr if None.
        as_json: JSON if True, plain if False; None: JSON unless the stream is a terminal.
        level: Least level that is written.
        owns_process: True where nobody else logs here: warnings of the HTTP server and of asyncio take the same form.

    Runs: once per process, at its start.
    """
    if logging.getLogger(_OURS[0]).handlers:
        return
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    handler.setFormatter(_Lines(as_json=not out.isatty() if as_json is None else as_json, colors=out.isatty()))
    levels = dict.fromkeys(_OURS, level) | dict.fromkeys(_THEIRS if owns_process else (), logging.WARNING)
    for name, least in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(least)


def set_level(level: str) -> None:
    """Write nothing below this level from now on. Runs: anywhere, at any time."""
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())


def current_level() -> str:
    """Return the least level that is written."""
    return logging.getLevelName(logging.getLogger(_OURS[0]).getEffectiveLevel()).lower()


def _text(event: str, facts: MutableMapping[str, Any]) -> str:
    return " ".join([event, *(f"{name}={_shown(value)}" for name, value in sorted(facts.items()))])


def _shown(value: object) -> str:
    """Return a value as it is searched for: a word as it stands, anything else quoted."""
    return value if isinstance(value, str) and not _NEEDS_QUOTES.search(value) else repr(value)
