"""Compile once per machine: the kernel's machine code is kept in the user's cache folder, not beside the package."""

import hashlib
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config

_log = logging.getLogger("kafka_discovery.fetch")
_compiled: list[Any] = []


def cache_folder() -> Path:
    """Return where compiled code is kept: below `$XDG_CACHE_HOME`, or `~/.cache` without it; one folder per version.

    Runs: anywhere.
    """
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - a home may be missing
    return Path(root) / "kafka-discovery" / f"kernel-{_fingerprint()}"


@cache
def _fingerprint() -> str:
    """Name the sources that the code is made from: numba looks at one file's age, but there are several."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def compiled(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for one signature, or load its code from the cache.

    Runs: worker, when the module is imported; seconds the first time on a machine, else milliseconds.
    """

    def compile_(function: Callable[..., Any]) -> Any:
        try:
            dispatcher = _compile(function, signature, keep=True)
        except (RuntimeError, OSError) as error:
            _log.warning("compiled code cannot be kept (%s): every worker compiles for some seconds", error)
            dispatcher = _compile(function, signature, keep=False)
        _compiled.append(dispatcher)
        return dispatcher

    return compile_


def _compile(function: Callable[..., Any], signature: str, *, keep: bool) -> Any:
    # numba asks for the folder when it decorates; users' own functions keep theirs.
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder())
    try:
        return numba.njit(signature, cache=keep, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before


def compilations() -> int:
    """Count the functions that this process had to compile, for want of cached code.

    Runs: anywhere.
    """
    return sum(sum(dispatcher.stats.cache_misses.values()) for dispatcher in _compiled)
