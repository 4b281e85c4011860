"""Texts of a command line, and the parser that refuses in one line."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from discovery.core.errors import ConfigError

_EXIT_CODES = "Exit codes: 0 stopped or all read, 1 the query failed, 2 wrong options, 3 Kafka unreachable."


class Parser(argparse.ArgumentParser):
    """Raises instead of printing the usage and leaving."""

    def __init__(self, *, prog: str, description: str) -> None:
        """Name the job, and say what it does."""
        super().__init__(prog=prog, description=description, epilog=_EXIT_CODES, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{message}; see --help")


def positive(text: str | None, option: str) -> int | None:
    """Return a whole number above 0. Raises ConfigError where it is none."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"{option}: {text!r} is not a whole number above 0")
    return int(text)


def pairs(texts: Sequence[str], option: str) -> tuple[tuple[str, str], ...]:
    """Part NAME=VALUE. Raises ConfigError where there is no name or no value."""
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise ConfigError(f"{option}: {text!r} has no name or no value; write NAME=VALUE")
    return tuple((text.partition("=")[0], text.partition("=")[2]) for text in texts)


def local_folder(text: str) -> str:
    """Make a plain path absolute; leave `hdfs://...` and the like to Spark.

    Raises:
        ConfigError: it is a file, or a place in HDFS without the name node, with which Spark cannot start.
    """
    if text.startswith("hdfs:///"):
        place = text.removeprefix("hdfs://")
        raise ConfigError(f"--checkpoint: {text} names no name node; write hdfs://HOST:PORT{place}, as in fs.defaultFS")
    if "://" in text:
        return text
    path = Path(text).absolute()
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--checkpoint: {path} is a file; name a folder")
    return str(path)
