"""Logs: one line per thing that happened, JSON unless a person is reading, tracebacks without local variables."""

import logging
import sys
from typing import TextIO

import structlog

_OURS = ("discovery", "kafka_discovery")
"""Roots of our loggers: the host's own loggers stay as they are."""
_THEIRS = ("uvicorn", "asyncio")
LEVELS = ("debug", "info", "warning", "error")


def configure_logging(
    *, stream: TextIO | None = None, as_json: bool | None = None, level: int = logging.INFO, owns_process: bool = False
) -> None:
    """Set up structlog, and our loggers of the standard library, for this process, unless its host already did.

    Local variables stay out of tracebacks: they hold client options, and those hold passwords.

    Args:
        stream: stderr if None.
        as_json: JSON if True, plain if False; None: JSON unless the stream is a terminal.
        level: Least level that is written.
        owns_process: True where nobody else logs here: warnings of the HTTP server and of asyncio take the same form.

    Runs: once per process, at its start.
    """
    if structlog.is_configured():
        return
    out = stream or sys.stderr
    common: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
    ]
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=common,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_last(as_json=not out.isatty() if as_json is None else as_json, colors=out.isatty()),
            ],
        )
    )
    for name in _OURS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)
    for name in _THEIRS if owns_process else ():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *common,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def set_level(level: str) -> None:
    """Write nothing below this level from now on. Runs: anywhere, at any time."""
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())


def current_level() -> str:
    """Return the least level that is written."""
    return logging.getLevelName(logging.getLogger(_OURS[0]).getEffectiveLevel()).lower()


def _last(*, as_json: bool, colors: bool) -> list[structlog.typing.Processor]:
    if not as_json:
        return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True, default=str)]
