"""What must come out: counted from acknowledgements alone, so that it is true whatever the job does."""

import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from discovery.demo.load.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """The generator's account, as it stands in its progress file."""

    wall: float
    sent: int = 0
    """Handed to the producer, malformed ones included."""
    acknowledged: int = 0
    """Well-formed events that Kafka has for certain."""
    malformed: int = 0
    """Malformed records that Kafka has for certain."""
    failed: int = 0
    """Records the producer gave up; they may or may not be in Kafka, so any makes the count void."""
    end_offsets: dict[str, int] = field(default_factory=dict)
    """Partition to the offset after its last acknowledged record."""
    first_ack_wall: dict[str, float] = field(default_factory=dict)
    """Partition to the time of its first acknowledgement."""
    finished: bool = False

    @property
    def records(self) -> int:
        """All acknowledged records."""
        return self.acknowledged + self.malformed


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The final account: totals by day and user, and where the malformed records stand."""

    users: dict[tuple[str, str], tuple[int, int]]
    """(day, user) to (events, checksum)."""
    malformed: frozenset[tuple[int, int]]
    """(partition, offset)."""


class Oracle:
    """Counts delivery reports. Not thread-safe: all calls come from the thread that polls the producer."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self.sent = 0
        self._acknowledged = 0
        self._failed = 0
        self._users: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        self._malformed: list[tuple[int, int]] = []
        self._end_offsets: dict[str, int] = {}
        self._first_ack_wall: dict[str, float] = {}

    def delivered(self, event: Event, partition: int, offset: int) -> None:
        """Note an acknowledged record."""
        name = str(partition)
        self._first_ack_wall.setdefault(name, self._wall())
        self._end_offsets[name] = max(offset + 1, self._end_offsets.get(name, 0))
        if event.day is None:
            self._malformed.append((partition, offset))
            return
        self._acknowledged += 1
        total = self._users[event.day, event.user_id]
        total[0] += 1
        total[1] += event.checksum

    def refused(self) -> None:
        """Note a record the producer gave up."""
        self._failed += 1

    def produced(self, *, finished: bool = False) -> Produced:
        """Return the account of this moment."""
        return Produced(
            wall=self._wall(),
            sent=self.sent,
            acknowledged=self._acknowledged,
            malformed=len(self._malformed),
            failed=self._failed,
            end_offsets=dict(self._end_offsets),
            first_ack_wall=dict(self._first_ack_wall),
            finished=finished,
        )

    def save_expected(self, path: Path) -> None:
        """Write the final account."""
        users = [[day, user, *total] for (day, user), total in self._users.items()]
        write_atomically(path, json.dumps({"users": users, "malformed": self._malformed}))


def save_produced(path: Path, produced: Produced) -> None:
    """Write a progress file that a reader never sees half-written."""
    write_atomically(path, json.dumps(asdict(produced)))


def load_produced(path: Path) -> Produced | None:
    """Read a progress file; None where there is none yet."""
    try:
        return Produced(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def load_expected(path: Path) -> Expected:
    """Read the final account."""
    raw = json.loads(path.read_text())
    return Expected(
        users={(day, user): (events, checksum) for day, user, events, checksum in raw["users"]},
        malformed=frozenset((partition, offset) for partition, offset in raw["malformed"]),
    )


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
