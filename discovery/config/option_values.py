"""Values of options as Spark hands them over, texts: read, or refused in one line that names the option."""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from discovery.core.errors import ConfigError
from discovery.core.model import TopicName

_T = TypeVar("_T")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def spelled(raw: str, known: Collection[str], *, of: str = "") -> str:
    """Return a name as we write it: Spark lowers names.

    Raises:
        ConfigError: it is not among `known`; names the nearest.
    """
    spelling = {name.lower(): name for name in known}
    if raw.lower() in spelling:
        return spelling[raw.lower()]
    near = difflib.get_close_matches(raw.lower(), spelling, n=1, cutoff=0.0)
    raise ConfigError(f"{raw}: unknown option{of}; did you mean {spelling[near[0]]}?")


def optional(given: Mapping[str, str], option: str, parse: Callable[[str, str], _T]) -> _T | None:
    """Return what an option says, None where it is not given. Raises ConfigError as `parse(option, text)` does."""
    return parse(option, given[option]) if option in given else None


def text_of(option: str, text: str) -> str:
    """Return a text that is not empty. Raises ConfigError where it is."""
    if not text.strip():
        raise ConfigError(f"{option}: empty; give it a value or leave the option out")
    return text.strip()


def path_of(option: str, text: str) -> Path:
    """Return a path of this machine. Raises ConfigError where it is empty or a URI, of which `Path` makes a folder."""
    given = text_of(option, text)
    if is_uri(given):
        raise ConfigError(f"{option}: {given} is no path of this machine; name a local or mounted one")
    return Path(given).expanduser()


def is_uri(text: str) -> bool:
    """Tell `s3a://…` and the like, which Hadoop's file systems can read and Python's cannot, from a path."""
    return "://" in text


def positive(option: str, text: str) -> int:
    """Return a whole number of 1 or more. Raises ConfigError where it is none."""
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()) or not 0 < int(stripped) < 2**63:
        raise ConfigError(f"{option}: {text!r} is not a whole number of 1 or more")
    return int(stripped)


def one_of(option: str, text: str, values: Collection[str]) -> str:
    """Return one of these values, written in any case. Raises ConfigError where it is none of them."""
    lowered = text.strip().lower()
    if lowered not in values:
        raise ConfigError(f"{option}: {text!r} is not one of {', '.join(values)}")
    return lowered


def flag(option: str, text: str) -> bool:
    """Return true or false. Raises ConfigError where it is neither."""
    return one_of(option, text, ("true", "false")) == "true"


def service_url(option: str, text: str) -> str:
    """Return the address of a service. Raises ConfigError where it is none."""
    if not re.fullmatch(r"https?://[^/?#@\s]+/?", text.strip()):
        raise ConfigError(f"{option}: {text!r} is no address of a service; write http://127.0.0.1:9463")
    return text.strip().rstrip("/")


def topic_name(option: str, text: str) -> TopicName:
    """Return a topic's name. Raises ConfigError where it cannot be one."""
    name = text.strip()
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        raise ConfigError(f"{option}: {text!r} is not a topic name; letters, digits, '.', '_' and '-', up to 249")
    return TopicName(name)
