"""Which engine reads in this process: the fast one where it works, else the plain one, said once and counted."""

import logging
from functools import cache
from importlib.util import find_spec

from discovery.core.errors import ConfigError
from discovery.spark.fetch.client import ClientFactory
from discovery.spark.fetch.heap import share_arenas
from discovery.spark.fetch.python_client import PythonClient

_log = logging.getLogger("kafka_discovery.fetch")
fallbacks: list[str] = []
"""Why this process reads with the plain engine although the fast one was wanted; empty or one reason."""


def client_factory(engine: str) -> ClientFactory:
    """Choose by the option `fetchEngine`: `auto`, `native` or `python`.

    Raises:
        ConfigError: `native` was demanded and does not work here.

    Runs: worker; the first time in a process it loads the compiled code.
    """
    share_arenas()
    if engine == "python":
        return PythonClient
    found = _native()
    if not isinstance(found, str):
        return found
    if engine == "native":
        raise ConfigError(f'fetchEngine: "native" does not work here: {found}; use "auto" or "python"')
    return PythonClient


@cache
def not_installed() -> str | None:
    """Name a package that the fast engine needs and that is not here; both come with the extra `spark`.

    Runs: anywhere; looks for files, imports nothing.
    """
    return next((name for name in ("llvmlite", "numba") if find_spec(name) is None), None)


@cache
def _native() -> ClientFactory | str:
    """Load the fast engine; or say, in one line, why it does not work here."""
    try:
        from discovery.spark.fetch.native.client import NativeClient  # noqa: PLC0415 - costs a while, and may fail
        from discovery.spark.fetch.native.code import code  # noqa: PLC0415
        from discovery.spark.fetch.native.library import library  # noqa: PLC0415

        library()
        code()
    except Exception as error:  # noqa: BLE001 - whatever is missing here, the plain engine reads the same
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        _log.warning("reading with the plain engine, several times slower: %s", reason)
        fallbacks.append(reason)
        return reason
    return NativeClient
