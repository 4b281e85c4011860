"""Where the ranges of a batch end: one outcome each, written once. Pure.

A plan promises `[start, end)` of a partition. Whoever reads it asks before it ends, and the first who asks settles it
for ever: all of it, or cut at an offset `x`, because its leader is gone. A cut is recorded before it is used. The next
plan sets the partition's offset back to `x`, a range without rows; only then it is read on. So Spark's log always
holds what was delivered, one batch late.

A partition may be read in pieces, a task each. It has one outcome all the same: who has read a piece settles that no
cut lies before its end, so a cut is possible while what was read is a beginning of the range. It lies where the first
unread piece stands, if that one proposed it, else where that one starts.

At most one record of a partition is pending: it is not planned again before its rewind stands in Spark's log. Why
nothing is lost or repeated, and what was left out on purpose: docs/decisions/0009-cut-and-rewind.md.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from discovery.core.errors import StateError
from discovery.core.model import TopicId, TopicPartition
from discovery.spark.source.planning.offsets import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRange:
    """What a plan promises of one partition: `[start, end)`."""

    start: int
    end: int
    topic_id: TopicId | None = None
    """None is unknown."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Whose batch a plan is: the runner that plans cannot know, so workers tell. Both live as long as a checkpoint."""

    query: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRecord:
    """One range that ended early. Identified by incarnation, plan and partition."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    start: int
    end: int
    cut: int
    """The first offset that was not delivered; `start <= cut < end`."""
    plan: int
    incarnation: int
    applied: bool = False
    """The rewind `end -> cut` stands in Spark's log."""
    query: str | None = None
    batch: int | None = None
    """None is unknown, as `query`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The ranges of one planned batch and how far each is settled."""

    number: int
    incarnation: int
    ranges: Mapping[TopicPartition, PlannedRange]
    settled: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where settled ranges end; what is not here is undecided."""
    batch: Batch | None = None
    """None: no worker has asked yet."""
    pieces: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    """Where the pieces of split partitions start, in order."""
    read: frozenset[tuple[TopicPartition, int]] = frozenset()
    """Pieces that were read to their ends before their partition was settled, by partition and start."""

    def piece(self, tp: TopicPartition, start: int | None) -> tuple[int, int]:
        """Return `[start, end)` of the piece that starts there; None: of the whole, or of the first piece.

        Raises:
            StateError: there is none.
        """
        range_ = self.ranges.get(tp)
        starts = self.pieces.get(tp, () if range_ is None else (range_.start,))
        begin = range_.start if start is None and range_ is not None else start
        if range_ is None or begin not in starts:
            raise StateError(f"{tp} has no piece that starts at offset {start}: plan {self.number} has {_show(range_)}")
        return begin, [*starts, range_.end][starts.index(begin) + 1]

    def end_of(self, tp: TopicPartition, start: int | None = None) -> int | None:
        """Return where a piece ends, once that is settled; None: it is not."""
        begin, end = self.piece(tp, start)
        if tp in self.settled:
            return min(max(self.settled[tp], begin), end)
        return end if (tp, begin) in self.read else None

    def is_over(self, tp: TopicPartition) -> bool:
        """Tell whether nobody waits for a settled partition any more: it was cut, or read to its end."""
        range_ = self.ranges[tp]
        return self.settled[tp] < range_.end or all(
            (tp, start) in self.read for start in self.pieces.get(tp, (range_.start,))
        )

    def first_unread(self, tp: TopicPartition) -> int | None:
        """Return where the first unread piece of an undecided partition starts; None: one behind it was read."""
        pieces = self.pieces.get(tp, (self.ranges[tp].start,))
        first = next(start for start in pieces if (tp, start) not in self.read)
        return None if any((tp, start) in self.read for start in pieces if start > first) else first


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What one question changed."""

    plan: Plan
    ends: Mapping[TopicPartition, int]
    """The answer, one end for every partition asked for."""
    cuts: tuple[CutRecord, ...] = ()
    """To be made durable before anybody hears the answer, and before `plan` counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """What planning must do about the cuts of earlier batches."""

    rewinds: Offsets
    """Partitions whose next end is their cut: an empty range, whatever limits say."""
    applied: tuple[CutRecord, ...]
    """Rewound already; to be made durable as applied before their partitions are planned again."""


Pending = Mapping[TopicPartition, CutRecord]
"""The records whose rewind is not known to stand in Spark's log."""


def open_plan(
    number: int,
    ranges: Mapping[TopicPartition, PlannedRange],
    pending: Pending,
    *,
    incarnation: int = 1,
    replayed: bool = False,
    whole: Collection[TopicPartition] = (),
    pieces: Mapping[TopicPartition, tuple[int, ...]] = MappingProxyType({}),
) -> Plan:
    """Make the plan of a batch that is about to run.

    A replay may follow a run whose sink holds the batch already, so all that was not cut then is full now.

    Args:
        number: Differs from every other plan's of this run.
        ranges: What it promises; no empty range.
        pending: The active records.
        incarnation: Whose cuts these will be.
        replayed: This run did not choose the end offsets: they come from Spark's log.
        whole: Partitions that must not be cut.
        pieces: Where the pieces of those that are split start, in order.

    Raises:
        StateError: a record contradicts the plan.

    Runs: anywhere (pure).
    """
    settled: Offsets = {}
    for tp, range_ in ranges.items():
        record = pending.get(tp)
        if record is not None:
            _expect_same(record, range_)
            settled[tp] = record.cut
        elif replayed or tp in whole or range_.start < 0:
            settled[tp] = range_.end
    return Plan(number=number, incarnation=incarnation, ranges=ranges, settled=settled, pieces=pieces)


def settle(
    plan: Plan,
    proposed: Mapping[TopicPartition, int],
    *,
    starts: Mapping[TopicPartition, int] = MappingProxyType({}),
    forced: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> Settlement:
    """Settle ranges: those that are undecided as proposed, the others as they are.

    Args:
        plan: The active plan.
        proposed: The end of what the task has of a partition where all was read, else the next offset to be read.
        starts: Where that starts, for partitions that are split.
        forced: Where undecided partitions end whatever is proposed.

    Raises:
        StateError: a proposal lies outside of the plan.

    Runs: anywhere (pure).
    """
    settled, read = dict(plan.settled), set(plan.read)
    for tp, at in proposed.items():
        start, end = plan.piece(tp, starts.get(tp))
        if not start <= at <= end:
            raise StateError(f"{tp} cannot end at offset {at}: plan {plan.number} has {_show(plan.ranges[tp])}")
        if tp in settled or (tp, start) in read:
            continue
        if tp in forced:
            settled[tp] = forced[tp]
        elif at < end:
            first = plan.first_unread(tp)
            settled[tp] = plan.ranges[tp].end if first is None else at if start == first else first
        else:
            read.add((tp, start))
            if all((tp, piece) in read for piece in plan.pieces.get(tp, ())):
                settled[tp] = plan.ranges[tp].end
    after = replace(plan, settled=settled, read=frozenset(read))
    cuts = [
        tp for tp in proposed if tp not in plan.settled and settled.get(tp, plan.ranges[tp].end) < plan.ranges[tp].end
    ]
    ends = {tp: until for tp in proposed if (until := after.end_of(tp, starts.get(tp))) is not None}
    return Settlement(plan=after, ends=ends, cuts=tuple(_record(plan, tp, settled[tp]) for tp in cuts))


def advance(start: Mapping[TopicPartition, int], pending: Pending) -> Advance:
    """Say which partitions go back, and which have gone back.

    Args:
        start: Where the last batch ended, as Spark's log has it.
        pending: The active records.

    Raises:
        StateError: the log stands neither at the planned end nor at the cut: it was rolled back or edited.

    Runs: anywhere (pure).
    """
    strange = [record for tp, record in pending.items() if start.get(tp) not in (record.end, record.cut)]
    if strange:
        raise StateError(_contradiction(strange[0], f"the checkpoint is at {_at(start, strange[0])}"))
    rewinds = {tp: record.cut for tp, record in pending.items() if start[tp] == record.end}
    applied = tuple(replace(record, applied=True) for tp, record in pending.items() if tp not in rewinds)
    return Advance(rewinds=rewinds, applied=applied)


def refuse_other_checkpoints(batch: Batch, records: Iterable[CutRecord], *, incarnation: int, adopted: bool) -> None:
    """Refuse a batch of a checkpoint that is not the one which the active records speak of.

    A checkpoint that was restored from a copy stands at the end of a batch that was cut, and nothing in its offsets
    tells that from a partition which was set back and read to the same offset again. The number of the batch does: the
    rewind is in the batch after the cut one, and what is out of force is not of so late a batch.

    Args:
        batch: Whose plan this is.
        records: All there are.
        incarnation: The active one.
        adopted: Somebody said that this checkpoint goes on under it, whatever earlier ones recorded.

    Raises:
        StateError: names a record.

    Runs: anywhere (pure).
    """
    for r in records:
        if r.query is None or r.batch is None or (adopted and r.incarnation < incarnation):
            continue
        if r.query != batch.query and r.incarnation == incarnation:
            raise StateError(
                f"sourceId: {cut_at(r)} by query {r.query}, and this is query {batch.query}: its checkpoint is not "
                f"the one that used this sourceId last; go on with that one, {_ADOPT}"
            )
        if r.query == batch.query and batch.number <= r.batch + 1 and (r.applied or r.incarnation < incarnation):
            raise StateError(
                f"sourceId: {cut_at(r)} in batch {r.batch}, and the ledger has gone on since, but the checkpoint is "
                f"only at batch {batch.number}: it was restored from a copy, and going on may lose [{r.cut}, {r.end}); "
                f"go on with the newer checkpoint, or restore the ledger too, {_ADOPT}"
            )


_ADOPT = "or, knowing that nothing is missing, adopt this one: kafka-discovery checkpoint adopt"


def cut_at(record: CutRecord) -> str:
    """Name a cut in an error.

    Runs: anywhere (pure).
    """
    return f"{record.topic_partition} was cut at offset {record.cut} of [{record.start}, {record.end})"


def effective_end(end: Mapping[TopicPartition, int], pending: Pending) -> Offsets:
    """Return what was really delivered up to a batch's end offsets.

    Runs: anywhere (pure).
    """
    return {tp: pending[tp].cut if tp in pending and pending[tp].end == at else at for tp, at in end.items()}


def _record(plan: Plan, tp: TopicPartition, cut: int) -> CutRecord:
    range_ = plan.ranges[tp]
    return CutRecord(
        topic_partition=tp,
        topic_id=range_.topic_id,
        start=range_.start,
        end=range_.end,
        cut=cut,
        plan=plan.number,
        incarnation=plan.incarnation,
        query=plan.batch.query if plan.batch else None,
        batch=plan.batch.number if plan.batch else None,
    )


def _expect_same(record: CutRecord, range_: PlannedRange) -> None:
    if (record.start, record.end) != (range_.start, range_.end):
        raise StateError(_contradiction(record, f"the checkpoint plans {_show(range_)}"))


def _contradiction(record: CutRecord, found: str) -> str:
    return (
        f"{cut_at(record)}, but {found}: "
        "the checkpoint was rolled back or edited, or it is another query's; give each source its own sourceId, or "
        "start with a new checkpoint"
    )


def _at(start: Mapping[TopicPartition, int], record: CutRecord) -> str:
    return str(start.get(record.topic_partition, "no offset"))


def _show(range_: PlannedRange | None) -> str:
    return "no such range" if range_ is None else f"[{range_.start}, {range_.end})"
