"""What happened in the last days, by number: the answer to "what happened at 03:12?", also after a restart."""

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from discovery.config.logs import event_log
from discovery.core.diff import Event, EventKind
from discovery.store.files import write_sparing

_log = event_log("discovery.service")


@dataclass(frozen=True, slots=True)
class Happening:
    """An event, its number and when it was noticed (seconds since the epoch)."""

    number: int
    wall: float
    event: Event

    def document(self) -> dict[str, object]:
        """Return it as JSON carries it."""
        return {
            "number": self.number,
            "wall": self.wall,
            "kind": self.event.kind.value,
            "subject": self.event.subject,
            "sentence": self.event.sentence,
        }


class Timeline:
    """The last events of one cluster, in memory and in a file. Written by one thread, read by any."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` events, in memory alone until a file is opened."""
        self._kept: deque[Happening] = deque(maxlen=limit)
        self._number = 0
        self._path: Path | None = None
        self._lines = 0
        """In the file; at twice the limit it is replaced by those that are kept."""
        self._unread: set[Path] = set()
        """The file, where it holds what could not be read: it is set aside before it is replaced."""
        self._torn = False
        """The last write may have ended within a line: the file is replaced at the next."""

    def open(self, path: Path, *, wall: float) -> None:
        """Go on from what a file holds; a line that was not written to its end, or is damaged, is left out.

        What was lost with it had numbers that readers may have seen. New ones begin above those that are left and
        above the present time in milliseconds: a service that lives adds fewer events than one a millisecond.

        Args:
            path: Of the file.
            wall: The present time, in seconds since the epoch.

        Runs: a worker thread, before anything is added.
        """
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as error:
            _log.warning("events_not_read", path=str(path), error=str(error), consequence="beginning without them")
            content = b""
            self._unread.add(path)
        lines = content.splitlines()
        found = [happening for line in lines if (happening := _read(line)) is not None]
        self._kept.extend(found)
        self._number = max([int(wall * 1_000), *(happening.number for happening in found)])
        self._path, self._lines = path, len(lines)
        if content and (len(found) < len(lines) or not content.endswith(b"\n")):
            self._rewrite()

    def resize(self, limit: int) -> None:
        """Keep at most `limit` from now on; the oldest go."""
        self._kept = deque(self._kept.copy(), maxlen=limit)

    def add(self, events: Iterable[Event], *, wall: float) -> None:
        """Number and keep events. Runs: the loop's thread; blocks to write to a file, and waits for no disk."""
        new = [Happening(self._number + n, wall, event) for n, event in enumerate(events, 1)]
        self._number += len(new)
        self._kept.extend(new)
        self._lines += len(new)
        if self._path is None:
            return
        if self._torn or self._lines > 2 * (self._kept.maxlen or 0):
            self._rewrite()
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(b"".join(map(_line, new)))
        except OSError as error:
            self._complain(error)

    def since(self, number: int, *, limit: int) -> list[Happening]:
        """Return the newest `limit` events after `number`, oldest first."""
        found = [happening for happening in self._kept.copy() if happening.number > number]
        return found[-limit:]

    def _rewrite(self) -> None:
        assert self._path is not None  # noqa: S101 - ensured by the callers
        try:
            write_sparing(self._path, b"".join(map(_line, self._kept)), self._unread)
            self._lines, self._torn = len(self._kept), False
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        self._torn = True
        consequence = "they are written with the next ones"
        _log.warning("events_not_written", path=str(self._path), error=str(error), consequence=consequence)


def _line(happening: Happening) -> bytes:
    return json.dumps(happening.document()).encode() + b"\n"


def _read(line: bytes) -> Happening | None:
    try:
        read = json.loads(line)
        event = Event(EventKind(read["kind"]), str(read["subject"]), str(read["sentence"]))
        return Happening(int(read["number"]), float(read["wall"]), event)
    except (ValueError, KeyError, TypeError):
        return None
