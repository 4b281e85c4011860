"""Logs: one line per thing that happened, JSON unless a person is reading, tracebacks without local variables."""

import contextlib
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    import structlog

_OURS = ("discovery", "kafka_discovery")
"""Roots of our loggers: the host's own loggers stay as they are."""
_THEIRS = ("uvicorn", "asyncio")
_COLORS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m"}
_PLAIN = "\x1b[0m"
_NEEDS_QUOTES = re.compile(r"[\s=\"']|^$")
_FOLD_SECONDS = 10.0
_MOST_LINES = 1_000
"""Different events that are distinguished within that time."""
_PASSING = frozenset({"cycle", "generation"})
_WHOSE = ("cluster", "source")
"""Facts that tell loops apart; they take turns."""
_NOTHING: Mapping[str, Any] = {}
_LOGGINGS_OWN = frozenset({"exc_info", "stack_info", "stacklevel"})


class _MadeWhenUsed:
    """A logger of structlog's that is made when a line is written.

    Its import would cost each Python worker of Spark's processor time, and hardly one of them writes an event.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return getattr(_logger(self._name), method)


def event_log(name: str) -> "structlog.stdlib.BoundLogger":
    """Return the log of a part of the program, below `discovery`.

    Facts are keywords: `log.info("reloaded", clusters=["main"])`. Thread-safe. A host's own configuration of structlog
    is neither used nor changed; lines go to `logging`.
    """
    return cast("structlog.stdlib.BoundLogger", _MadeWhenUsed(name))


@cache
def _logger(name: str) -> "structlog.stdlib.BoundLogger":
    import structlog  # noqa: PLC0415 - see `_MadeWhenUsed`

    made: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _as_record],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return made


def _as_record(_logger: object, _method: str, facts: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """Keep event and facts apart for our own handler, and together in the message for any other."""
    event = str(facts.pop("event"))
    own = {name: facts.pop(name) for name in _LOGGINGS_OWN & facts.keys()}
    return (_text(event, facts),), {**own, "extra": {"event": event, "facts": dict(facts)}}


def bind(**facts: Any) -> None:
    """Put facts on every line of this thread, or task, from now on: whose loop it is, and in which turn."""
    import structlog  # noqa: PLC0415 - see `_MadeWhenUsed`

    structlog.contextvars.bind_contextvars(**facts)


@contextlib.contextmanager
def bound(**facts: Any) -> Iterator[None]:
    """Put facts on every line that is logged within, and in threads that copy this context."""
    import structlog  # noqa: PLC0415 - see `_MadeWhenUsed`

    before = structlog.contextvars.get_contextvars()
    bind(**facts)
    try:
        yield
    finally:
        structlog.contextvars.clear_contextvars()
        bind(**before)


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
            line["component"] = record.name.removeprefix("discovery.")
            exception = {"exception": trace} if trace else {}
            return json.dumps({**line, **getattr(record, "facts", {}), **exception}, sort_keys=True, default=str)
        color = _COLORS.get(record.levelno, "") if self._colors else ""
        text = f"{moment} {color}[{level:<7}]{color and _PLAIN} {record.getMessage()}"
        return f"{text}\n{trace}" if trace else text


class FoldingHandler(logging.StreamHandler[TextIO]):
    """Writes a line that repeats once, and within twice `_FOLD_SECONDS` once more with its number.

    Only an uninterrupted run is folded: another line of the same event ends it, so that a state that returns is shown.
    """

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[float, Callable[[], None]], threading.Timer] = threading.Timer,
    ) -> None:
        """Write here; `clock` gives seconds, `timer` calls after as many."""
        super().__init__(stream)
        self._clock = clock
        self._make_timer = timer
        self._timer: threading.Timer | None = None
        """Goes off when the first repeats are due; needed where nothing else is logged until then."""
        self._runs: dict[object, _Run] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`; the handler's lock is held."""
        now = self._clock()
        self._write_overdue(now)
        key, said = _event(record), _said(record)
        run = self._runs.get(key)
        if run is not None and run.said == said:
            run.times, run.last = run.times + 1, record
            if self._timer is None or not self._timer.is_alive():  # that of a parent process ended with the fork
                self._arm(now)
            return
        if run is not None:
            self._end(key)
        if len(self._runs) < _MOST_LINES:
            self._runs[key] = _Run(said=said, began=now)
        super().emit(record)

    def close(self) -> None:
        """See `logging.Handler`: writes what is still held back."""
        with self.lock or contextlib.nullcontext():
            self._write_overdue(float("inf"))
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        super().close()

    def _arm(self, now: float) -> None:
        due = [run.began + _FOLD_SECONDS for run in self._runs.values() if run.times]
        self._timer = self._make_timer(max(0.0, min(due) - now), self._go_off) if due else None
        if self._timer is not None:
            self._timer.daemon = True
            with contextlib.suppress(RuntimeError):  # no thread to be had: the next line writes them
                self._timer.start()

    def _go_off(self) -> None:
        """Runs: the timer's thread."""
        with self.lock or contextlib.nullcontext():
            if self._timer is not None:  # else closed meanwhile
                now = self._clock()
                self._write_overdue(now)
                self._arm(now)

    def _write_overdue(self, now: float) -> None:
        for key in [key for key, run in self._runs.items() if now - run.began >= _FOLD_SECONDS]:
            self._end(key)

    def _end(self, key: object) -> None:
        run = self._runs.pop(key)
        if (last := run.last) is not None:
            last.msg, last.args = f"{last.getMessage()} repeated={run.times}", None
            last.facts = {**getattr(last, "facts", _NOTHING), "repeated": run.times}
            super().emit(last)


@dataclass(slots=True)
class _Run:
    """A line that was written, and its repeats."""

    said: object
    began: float
    times: int = 0
    last: logging.LogRecord | None = None


def _event(record: logging.LogRecord) -> object:
    """Return what a line tells the present state of: an event of one loop."""
    facts = getattr(record, "facts", _NOTHING)
    return (record.name, str(getattr(record, "event", record.msg)), *(repr(facts.get(name)) for name in _WHOSE))


def _said(record: logging.LogRecord) -> object:
    """Return what makes two lines of an event the same: all but when they were written, and in which turn."""
    facts = getattr(record, "facts", None)
    if facts is None:
        return (record.levelno, record.getMessage(), repr(record.exc_info))
    rest = sorted((name, repr(value)) for name, value in facts.items() if name not in _PASSING)
    return (repr(record.exc_info), *rest)


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
    handler = FoldingHandler(out)
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
