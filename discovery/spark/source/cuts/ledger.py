"""What must outlive the driver: the cuts of one source, as entries of a log."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

from discovery.core.errors import StateError
from discovery.core.model import TopicId, TopicName, TopicPartition
from discovery.spark.source.cuts.rules import CutRecord
from discovery.spark.source.planning.offsets import OffsetsJson

KEPT_PLANS = 1_000
"""Applied records of so many plans are kept: more batches than Spark keeps in its offset log by default (100)."""
FORGET_EVERY = 1_000
"""A running query's ledger is made shorter after so many entries."""
ADOPT = (
    "restore it from a copy, or, once you know what the sink holds, `kafka-discovery checkpoint adopt` with --yes "
    "gives it up and begins a new one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incarnation:
    """One life of the source, from an empty checkpoint on. A new one never deletes the old one's records."""

    number: int
    start: OffsetsJson | None = None
    """Where it began. Spark does not keep that, and asks again when the very first batch is replayed."""
    end: OffsetsJson | None = None
    """Where its first batch ends; None: the checkpoint was adopted."""


Entry = Incarnation | CutRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """What the entries of a ledger add up to."""

    incarnation: Incarnation | None = None
    """The newest one; None: the ledger is empty, or was not there."""
    records: Mapping[tuple[int, int, TopicPartition], CutRecord] = field(default_factory=dict)
    """By incarnation, plan and partition."""

    def pending(self) -> dict[TopicPartition, CutRecord]:
        """Return the active records: those of the newest incarnation that were not applied."""
        number = self.incarnation.number if self.incarnation else 0
        return {r.topic_partition: r for r in self.records.values() if r.incarnation == number and not r.applied}

    def last_plan(self) -> int:
        """Return the highest plan number on record."""
        return max((plan for _, plan, _ in self.records), default=0)


class Where(NamedTuple):
    """Where a ledger is, as the options of a source name it."""

    source_id: str
    in_kafka: bool = False


class Ledger(Protocol):
    """Keeps entries durably for one holder at a time. One thread at a time; the constructor does no I/O."""

    def open(self) -> LedgerState:
        """Become the holder and read everything.

        Raises:
            StateError: another process holds it; names the remedy.
            LedgerDamagedError: it holds what nobody wrote.

        Runs: driver, once; blocks up to some seconds.
        """
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Make entries durable, all at once; the same entries may be appended again.

        Raises:
            StateError: it is not known whether they are durable, or somebody else holds the ledger now.
        """
        ...

    def forget(self, before: LedgerState, kept: LedgerState) -> None:
        """Drop what `kept` has less than `before`; whoever dies in between leaves one of the two.

        Raises:
            StateError: it could not be done, or somebody else holds the ledger now; nothing is lost.
        """
        ...

    def close(self) -> None:
        """Give it back; a second call does nothing."""
        ...

    def set_aside(self) -> str:
        """Give up a damaged one, so that the next `open` finds none; says what became of it.

        Runs: an operator's command.
        """
        ...

    def describe(self) -> str:
        """Say where it lies."""
        ...


def fold(state: LedgerState, entries: Iterable[Entry]) -> LedgerState:
    """Add entries to a state; a record's later entry replaces the earlier one.

    Runs: anywhere (pure).
    """
    incarnation, records = state.incarnation, dict(state.records)
    for entry in entries:
        if isinstance(entry, CutRecord):
            records[entry.incarnation, entry.plan, entry.topic_partition] = entry
        elif incarnation is None or entry.number >= incarnation.number:
            incarnation = entry
    return LedgerState(incarnation=incarnation, records=records)


def prune(state: LedgerState) -> LedgerState:
    """Forget applied records that no replay can ask for any more.

    Plans are numbered through all runs, and a batch makes at most one of them.

    Runs: anywhere (pure).
    """
    oldest = state.last_plan() - KEPT_PLANS
    kept = {key: r for key, r in state.records.items() if not r.applied or r.plan > oldest}
    return LedgerState(incarnation=state.incarnation, records=kept)


def entries_of(state: LedgerState) -> list[Entry]:
    """Return entries that fold to this state.

    Runs: anywhere (pure).
    """
    return [*([state.incarnation] if state.incarnation else []), *state.records.values()]


def encode(entry: Entry) -> str:
    """Write an entry as one line of JSON.

    Runs: anywhere (pure).
    """
    said: dict[str, Any] = {"kind": "incarnation", **asdict(entry)}
    if isinstance(entry, CutRecord):
        said |= {"kind": "cut", "topic_partition": entry.topic_partition._asdict()}
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def decode(line: str) -> Entry:
    """Read an entry.

    Raises:
        StateError: it is not one.

    Runs: anywhere (pure, total).
    """
    try:
        raw: dict[str, Any] = json.loads(line)
        kind = raw.pop("kind")
        return _cut(raw) if kind == "cut" else Incarnation(**raw)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"not an entry of a ledger: {type(error).__name__}") from error


def _cut(raw: dict[str, Any]) -> CutRecord:
    place = raw.pop("topic_partition")
    tp = TopicPartition(TopicName(place["topic"]), int(place["partition"]))
    topic_id = None if raw["topic_id"] is None else TopicId(raw.pop("topic_id"))
    raw.pop("topic_id", None)
    return CutRecord(topic_partition=tp, topic_id=topic_id, **raw)
