"""The markers of a pipeline by offsets: where a partition of its source was read to."""

import json
from dataclasses import dataclass, replace
from typing import Any, Self

from discovery.core.errors import StateError

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """What the target has of one partition of the source."""

    offset: int
    """The next to read."""
    topic_id: str
    """Of the source; empty: not known."""
    is_complete: bool
    """The sink has recorded all its offsets from its beginning on, so one that is not recorded was never there."""
    target: str | None = None
    """The topic it was copied to; None: an earlier program wrote it, which did not say, or it was taken over since."""

    def note(self) -> str:
        """Return the metadata of the committed offset."""
        return json.dumps({"v": _VERSION, "t": self.topic_id})

    def encode(self) -> str:
        """Return the text of the record."""
        fields = {"v": _VERSION, "t": self.topic_id, "o": self.offset, "d": int(self.is_complete)}
        return json.dumps(fields if self.target is None else {**fields, "to": self.target}, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str, *, where: str) -> Self:
        """Read a record.

        Raises:
            StateError: somebody else wrote it, or a later version of this project.

        Runs: anywhere (pure).
        """
        try:
            raw = _loaded(text, where=where)
            return cls(offset=int(raw["o"]), topic_id=str(raw["t"]), is_complete=bool(raw["d"]), target=raw.get("to"))
        except (ValueError, KeyError, TypeError):
            raise _foreign(text, where) from None


def topic_of(note: str, *, where: str) -> str:
    """Return the topic id in the metadata of a committed offset; empty: it was not known.

    Raises:
        StateError: see `SourceOffset.decode`.

    Runs: anywhere (pure).
    """
    try:
        return str(_loaded(note, where=where)["t"])
    except (ValueError, KeyError, TypeError):
        raise _foreign(note, where) from None


def _loaded(text: str, *, where: str) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(text)
    if raw["v"] != _VERSION:
        raise StateError(f"{where}: version {raw['v']!r}, this program knows {_VERSION}; use the one that wrote it")
    return raw


def _foreign(text: str, where: str) -> StateError:
    return StateError(
        f"{where}: {text[:80]!r} is not what this sink writes; is its group or marker topic used otherwise?"
    )


def record_key(sink_id: str, source: str, partition: int) -> str:
    """Return the key under which a partition's offset is recorded."""
    return f"{sink_id}/{source}/{partition}"


def offset_key(key: str, source: str) -> int | None:
    """Return the partition that a key stands for; None: it is no key of this source."""
    _, _, rest = key.partition("/")
    topic, _, number = rest.rpartition("/")
    return int(number) if topic == source and number.isdigit() else None


def without_target(key: str, text: str) -> str:
    """Return a record of a sink's as it is, but for the target of a copy.

    Raises:
        StateError: see `SourceOffset.decode`.

    Runs: anywhere (pure).
    """
    if key.count("/") < 2:  # noqa: PLR2004 - a lane's marker, or what is said of all
        return text
    return replace(SourceOffset.decode(text, where=f"record {key}"), target=None).encode()
