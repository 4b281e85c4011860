"""The markers of a pipeline by offsets: where a partition of its source was read to."""

import json
from dataclasses import dataclass
from typing import Self

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

    def note(self) -> str:
        """Return the metadata of the committed offset."""
        return json.dumps({"v": _VERSION, "t": self.topic_id})

    def encode(self) -> str:
        """Return the text of the record."""
        fields = {"v": _VERSION, "t": self.topic_id, "o": self.offset, "d": int(self.is_complete)}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str, *, where: str) -> Self:
        """Read a record.

        Raises:
            StateError: somebody else wrote it, or a later version of this project.

        Runs: anywhere (pure).
        """
        try:
            raw = json.loads(text)
            if raw["v"] == _VERSION:
                return cls(offset=int(raw["o"]), topic_id=str(raw["t"]), is_complete=bool(raw["d"]))
        except (ValueError, KeyError, TypeError):
            pass
        raise StateError(f"{where}: {text[:80]!r} is not what this sink writes; is its marker topic used otherwise?")


def record_key(sink_id: str, source: str, partition: int) -> str:
    """Return the key under which a partition's offset is recorded."""
    return f"{sink_id}/{source}/{partition}"


def offset_key(key: str, source: str) -> int | None:
    """Return the partition that a key stands for; None: it is no key of this source."""
    _, _, rest = key.partition("/")
    topic, _, number = rest.rpartition("/")
    return int(number) if topic == source and number.isdigit() else None
