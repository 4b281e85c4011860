"""What happened lately, by number: the answer to "what happened at 03:12?"."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from discovery.core.diff import Event


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
    """The last events of one cluster. Written by one thread, read by any."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` events."""
        self._kept: deque[Happening] = deque(maxlen=limit)
        self._number = 0

    def resize(self, limit: int) -> None:
        """Keep at most `limit` from now on; the oldest go."""
        self._kept = deque(self._kept.copy(), maxlen=limit)

    def add(self, events: Iterable[Event], *, wall: float) -> None:
        """Number and keep events. Runs: the loop's thread."""
        for event in events:
            self._number += 1
            self._kept.append(Happening(self._number, wall, event))

    def since(self, number: int, *, limit: int) -> list[Happening]:
        """Return the newest `limit` events after `number`, oldest first."""
        found = [happening for happening in self._kept.copy() if happening.number > number]
        return found[-limit:]
