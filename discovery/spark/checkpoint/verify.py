"""What a checkpoint means for the next start, under either source."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from discovery.core.model import Isolation, TopicPartition
from discovery.feed.base import FeedView
from discovery.spark.checkpoint.read import Batch, Checkpoint, Finding, Severity, SourceOffset, Writer
from discovery.spark.source.cuts.ledger import LedgerState, Where
from discovery.spark.source.cuts.left_behind import left_behind
from discovery.spark.source.cuts.rules import CutRecord
from discovery.spark.source.planning.losses import find_losses
from discovery.spark.source.planning.offsets import Offsets
from discovery.spark.source.planning.plan import describe

Pending = Mapping[TopicPartition, CutRecord]
_OR_NAME_IT = "; where that is another source of this query, name it too: --source-id again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One partition of one Kafka source. None is unknown."""

    source: str
    topic_partition: TopicPartition
    planned: int
    recorded: int | None
    delivered: int | None
    """Where the sink really is after the recorded batch: less than that where a range was cut."""
    begin: int | None = None
    end: int | None = None

    @property
    def lag(self) -> int | None:
        """Return the records between the sink and the end of the partition."""
        known = self.delivered
        return None if self.end is None or known is None or known < 0 else max(self.end - known, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that `inspect` shows."""

    checkpoint: Checkpoint
    positions: tuple[Position, ...]
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Tell whether the next start loses, repeats and refuses nothing."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def judge(
    checkpoint: Checkpoint,
    *,
    reader: Writer,
    pending: Sequence[Pending] = (),
    others: Mapping[Where, LedgerState] = MappingProxyType({}),
    view: FeedView | None = None,
) -> Report:
    """Judge a checkpoint.

    Args:
        checkpoint: As read.
        reader: The source that the next start uses.
        pending: Active cuts, from the ledger of each source that was named.
        others: The ledgers of sources that were not named.
        view: What Kafka has; None: not asked.

    Runs: anywhere (pure).
    """
    findings = [*checkpoint.findings, *_batches(checkpoint)]
    unnamed = len(_kafka(checkpoint.planned)) > len(pending)
    for source in _kafka(checkpoint.planned):
        findings += _switch(checkpoint, source, reader)
        findings += _unresolved(source, reader)
        for cuts in pending:
            findings += _rewinds(source, cuts, reader)
        lost = waiting_elsewhere(checkpoint, source, others)
        findings += [Finding(Severity.ERROR, f"{sentence}{_OR_NAME_IT if unnamed else ''}") for sentence in lost]
        findings += [] if view is None else _losses(_next_reads(checkpoint, source), source.name, view)
    if checkpoint.planned is not None and not _kafka(checkpoint.planned):
        findings.append(Finding(Severity.WARNING, "no source of this query has Kafka's offsets"))
    if checkpoint.planned is None:
        findings += _unborn(checkpoint, reader)
    return Report(
        checkpoint=checkpoint, positions=_positions(checkpoint, pending, view), findings=tuple(dict.fromkeys(findings))
    )


def waiting_elsewhere(
    checkpoint: Checkpoint, source: SourceOffset, ledgers: Mapping[Where, LedgerState]
) -> tuple[str, ...]:
    """Say which records of a source wait in ledgers that the next start does not use, in a sentence each.

    They wait at the end of the last planned batch, or where that one begins and is to be replayed.

    Runs: anywhere (pure).
    """
    recorded = _recorded(checkpoint, source.name)
    begins = {tp: min(at, recorded.get(tp, at)) for tp, at in source.offsets.items()}
    found = [left_behind(at, None, ledgers, query=checkpoint.query_id) for at in (source.offsets, begins)]
    return tuple(dict.fromkeys(sentence for sentences in found for sentence in sentences))


def _kafka(batch: Batch | None) -> list[SourceOffset]:
    return [s for s in batch.sources if s.writer is not Writer.OTHER] if batch else []


def _batches(checkpoint: Checkpoint) -> list[Finding]:
    newest = checkpoint.batches[-1] if checkpoint.batches else None
    if newest is None or newest in checkpoint.recorded:
        return []
    return [Finding(Severity.NOTE, f"batch {newest} is planned and not recorded: the next start replays it first")]


def _switch(checkpoint: Checkpoint, source: SourceOffset, reader: Writer) -> list[Finding]:
    if source.writer is reader:
        return []
    newest = checkpoint.batches[-1]
    when = "after the replay, " if newest not in checkpoint.recorded else ""
    text = (
        f"source {source.name}: {source.writer.value} wrote the offsets: {when}the first batch may be empty (spacing)"
    )
    return [Finding(Severity.NOTE, text)]


def _unresolved(source: SourceOffset, reader: Writer) -> list[Finding]:
    waiting = [(tp, f"{offset}") for tp, offset in sorted(source.offsets.items()) if offset < 0]
    if not waiting:
        return []
    if reader is Writer.OURS:
        text = (
            f"source {source.name}: not resolved yet, read from their end once they have a leader: {describe(waiting)}"
        )
        return [Finding(Severity.NOTE, text)]
    text = (
        f"source {source.name}: no offset yet for {describe(waiting)}, which the native source cannot read: let "
        "kafka-discovery run until they have a leader, or edit the offset"
    )
    return [Finding(Severity.ERROR, text)]


def _rewinds(source: SourceOffset, cuts: Pending, reader: Writer) -> list[Finding]:
    going = [r for tp, r in sorted(cuts.items()) if source.offsets.get(tp) == r.end]
    if not going:
        return []
    text = describe((r.topic_partition, f"read to {r.cut} of {r.end}") for r in going)
    if reader is Writer.OURS:
        return [Finding(Severity.NOTE, f"source {source.name}: cut, the next batch goes back for the rest: {text}")]
    text = (
        f"source {source.name}: cut: {text}; the native source would skip the rest: run kafka-discovery until the "
        "rewind is in the offset log (one batch)"
    )
    return [Finding(Severity.ERROR, text)]


def _next_reads(checkpoint: Checkpoint, source: SourceOffset) -> Offsets:
    """Where the next start begins to read: a batch that was not recorded is read again from its beginning."""
    return {**source.offsets, **{tp: at for tp, at in _recorded(checkpoint, source.name).items() if at >= 0}}


def _losses(reads: Offsets, name: str, view: FeedView) -> list[Finding]:
    losses = find_losses(reads, view, isolation=Isolation.READ_UNCOMMITTED, topic_ids={})
    lost = {loss.topic_partition for loss in losses}
    unknown = [(tp, why) for tp in sorted(reads) if tp not in lost and (why := _unknown(tp, view)) is not None]
    findings = [Finding(Severity.ERROR, f"source {name}: {loss.text}") for loss in losses]
    if unknown:
        text = f"source {name}: not checked, so not known to be sound: {describe(unknown)}; try again once they answer"
        findings.append(Finding(Severity.ERROR, text))
    return findings


def _unknown(tp: TopicPartition, view: FeedView) -> str | None:
    known = view.partitions.get(tp)
    if known is None:
        return "Kafka does not name it"
    if known.start_offset is None or known.high_watermark is None:
        return known.parked_reason or "its leader did not report its offsets"
    return known.parked_reason


def _unborn(checkpoint: Checkpoint, reader: Writer) -> list[Finding]:
    if checkpoint.batches:
        return []
    if checkpoint.initial and reader is Writer.OURS:
        text = (
            "no batch was planned yet, and where the query begins stands in sources/, which the native source alone "
            "reads: give kafka-discovery these offsets as startingOffsets, or run one native batch first"
        )
        return [Finding(Severity.ERROR, text)]
    return [Finding(Severity.NOTE, "no batch was planned yet: the next start begins where startingOffsets says")]


def _positions(checkpoint: Checkpoint, cuts: Sequence[Pending], view: FeedView | None) -> tuple[Position, ...]:
    return tuple(
        _position(source, tp, _recorded(checkpoint, source.name).get(tp), cuts, view)
        for source in _kafka(checkpoint.planned)
        for tp in sorted(source.offsets)
    )


def _recorded(checkpoint: Checkpoint, name: str) -> Offsets:
    source = checkpoint.done.source(name) if checkpoint.done else None
    return source.offsets if source else {}


def _position(
    source: SourceOffset, tp: TopicPartition, recorded: int | None, cuts: Sequence[Pending], view: FeedView | None
) -> Position:
    known = view.partitions.get(tp) if view else None
    cut = next((one[tp].cut for one in cuts if tp in one and one[tp].end == recorded), recorded)
    return Position(
        source=source.name,
        topic_partition=tp,
        planned=source.offsets[tp],
        recorded=recorded,
        delivered=cut,
        begin=known.start_offset if known else None,
        end=known.high_watermark if known else None,
    )
