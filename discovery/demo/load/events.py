"""Events as a website would send them: users who come back over days, and a few senders that are broken. Pure."""

import json
import random
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime

_MOST_LATE_SECONDS = 3 * 3600
"""An event is up to three (simulated) hours older than the newest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One record to send, and what a correct job must make of it."""

    value: bytes
    day: str | None = None
    """ISO date, UTC; None: malformed, so the job must put it aside."""
    user_id: str = ""
    checksum: int = 0

    @property
    def malformed(self) -> bool:
        """Tell whether it belongs to the dead letters."""
        return self.day is None


class EventFactory:
    """Makes events at a simulated clock that passes several days during one demo. Same seed, same events."""

    def __init__(self, *, users: int, malformed_share: float, seed: int, name: str) -> None:
        """Choose the audience.

        Args:
            users: How many different people there are; a fifth of them make half of the visits.
            malformed_share: 0..1, the share of broken records.
            seed: Of the random choices.
            name: First part of each event id, so that two factories never make the same id.
        """
        self._users, self._malformed_share, self._name = users, malformed_share, name
        self._random = random.Random(seed)  # noqa: S311 - no secret: the same run must be repeatable
        self._count = 0

    def make(self, now: float) -> Event:
        """Make the next event.

        Args:
            now: Simulated time, seconds since the epoch.
        """
        self._count += 1
        event_id = f"{self._name}-{self._count}"
        ts = datetime.fromtimestamp(now - self._random.random() * _MOST_LATE_SECONDS, UTC)
        fields = {"event_id": event_id, "user_id": self._user(), "ip": self._ip(), "ts": ts.isoformat()}
        if self._random.random() < self._malformed_share:
            return Event(value=self._break(fields))
        return Event(
            value=json.dumps(fields).encode(),
            day=ts.date().isoformat(),
            user_id=fields["user_id"],
            checksum=zlib.crc32(event_id.encode()),
        )

    def _user(self) -> str:
        regular = self._random.random() < 0.5  # noqa: PLR2004 - half of the visits
        return f"user-{self._random.randrange(max(1, self._users // 5) if regular else self._users):05}"

    def _ip(self) -> str:
        return f"10.{self._random.randrange(256)}.{self._random.randrange(256)}.{self._random.randrange(256)}"

    def _break(self, fields: dict[str, str]) -> bytes:
        """Spoil an event in one of the ways seen in practice."""
        without_user = {name: value for name, value in fields.items() if name != "user_id"}
        return self._random.choice(
            (
                json.dumps(fields).encode()[:-9],
                json.dumps(without_user).encode(),
                json.dumps({**fields, "ts": "9999-99-99"}).encode(),
                json.dumps({**fields, "user_id": 12345}).encode(),
                b"\xff\xfe" + fields["event_id"].encode(),
            )
        )
