"""What a run of the sink left behind, as values: what readers saw, what tasks said, what the ledger holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[str, int]
"""Topic and partition."""


class Seen(NamedTuple):
    """A record as a reader saw it, with the writer's audit header."""

    id: str
    """The row it stands for; the same in every attempt."""
    place: Place
    offset: int
    batch: int
    lane: int
    attempt: str
    """Empty: it was produced as in production, without the header, and whose it is cannot be said."""
    seq: int
    """Its number inside the attempt, from 0."""
    query: str = "q"
    key: str = ""
    number: int = 0
    """Grows with the input's order inside a key."""


class Said(NamedTuple):
    """How a task attempt ended, in its own words."""

    lane: int
    batch: int
    attempt: str
    outcome: str
    """`written`, `kept` (an earlier attempt's) or `empty`."""


class Proof(NamedTuple):
    """A marker, as far as it is checked."""

    batch: int
    rows: int
    attempt: str
    query: str = "q"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that is judged together."""

    expected: frozenset[str]
    committed: tuple[Seen, ...]
    """A read_committed reader from the beginning, after the end."""
    again: tuple[Seen, ...]
    """The same once more."""
    tail: tuple[Seen, ...] | None = None
    """A read_committed reader that was there all the time; None: there was none."""
    everything: tuple[Seen, ...] | None = None
    """A read_uncommitted reader: aborted attempts too."""
    said: tuple[Said, ...] | None = None
    """None: nobody kept what tasks said."""
    markers: tuple[Mapping[int, Proof], ...] = ()
    """By lane, as found at several times, in order; the last one after the end."""
    last_batch: int | None = None
    """The last one in Spark's commit log."""
    stable_ends: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """Last stable offset and high watermark, so long after the end that no transaction may be open."""
    sentinels_read: bool = True
    """Plain records written after the end were read."""
    new_after_restart: int = 0
    """Records that became visible when commits/N was deleted and the query started again."""
    seconds_to_progress: float | None = None
    """From a fault to the next progress, the longest; None: nothing was hit."""
    progress_limit_seconds: float = 60.0
