"""Where things live for this user: jars in the cache, named clusters in the state folder."""

import os
import re
from pathlib import Path

from discovery.core.errors import ConfigError

DEFAULT_NAME = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}")


def cache_folder() -> Path:
    """Return the user's cache folder of this project; does not make it."""
    return _base("XDG_CACHE_HOME", ".cache") / "kafka-discovery"


def cluster_folder(name: str) -> Path:
    """Return the state folder of the cluster called `name`; does not make it.

    Raises:
        ConfigError: the name would not be a plain folder name.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--name {name!r}: use 1..50 letters, digits, '.', '_' or '-', beginning with a letter or digit"
        )
    return _base("XDG_STATE_HOME", ".local/state") / "kafka-discovery" / "local-kafka" / name


def _base(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG rules: a relative value is invalid and is ignored.
    return Path(value) if value.startswith("/") else Path.home() / fallback
