"""`kafka-discovery checkpoint adopt|cut`: what only an operator may decide about the ledger of a source's cuts."""

from pathlib import Path
from typing import Annotated

import typer

from discovery.core.errors import ConfigError, StateError
from discovery.core.model import TopicName, TopicPartition
from discovery.store.locations import default_state_dir
from spark_jobs.checkpoint.files import Checkpoint, SourceOffset, read_checkpoint
from spark_jobs.source.cut import Batch, CutRecord, PlannedRange
from spark_jobs.source.ledger import Incarnation, LedgerState
from spark_jobs.source.ledger_file import FileLedger

Folder = Annotated[Path, typer.Argument(help="The query's checkpointLocation, on a local or mounted disk.")]
SourceId = Annotated[str, typer.Option("--source-id", help="The sourceId under which the query runs, or will run.")]
StateDir = Annotated[Path | None, typer.Option("--state-dir", help="State folder; the user's by default.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this the command only says what it would do.")]


def adopt(folder: Folder, *, source_id: SourceId, state_dir: StateDir = None, yes: Yes = False) -> None:
    """Begin a ledger of cuts for a checkpoint that has none: one of the native source, or that ran without sourceId."""
    checkpoint = read_checkpoint(folder)
    last = checkpoint.batches[-1] if checkpoint.batches else "none"
    ledger = FileLedger(state_dir or default_state_dir(), source_id, lock_wait_seconds=0)
    try:
        state = ledger.open()
        for record in state.pending().values():
            typer.echo(f"would be forgotten: {_show(record)}; records [{record.cut}, {record.end}) may be lost by that")
        if not yes:
            typer.echo(f"would adopt {folder} (last planned batch {last}) as {source_id!r}; add --yes")
            return
        ledger.append([Incarnation(number=_number(state) + 1)])
    finally:
        ledger.close()
    typer.echo(f"adopted {folder} (last planned batch {last}) as {source_id!r} in {ledger.path}")


def cut(
    folder: Folder,
    *,
    partition: Annotated[str, typer.Option("--partition", help="TOPIC-NUMBER of a partition that is waited for.")],
    at: Annotated[int, typer.Option("--at", min=0, help="The first offset that the planned batch shall not deliver.")],
    source_id: SourceId,
    state_dir: StateDir = None,
    yes: Yes = False,
) -> None:
    """Cut one range of a batch that is replayed and waits for a leader that will not come back."""
    checkpoint = read_checkpoint(folder)
    tp = _partition(partition)
    number, range_ = _waiting(checkpoint, tp)
    if not range_.start <= at < range_.end:
        raise ConfigError(f"--at: {at} is not in the planned range [{range_.start}, {range_.end}) of {tp}")
    typer.echo(
        f"batch {number} plans [{range_.start}, {range_.end}) of {tp}; it will end at {at}, the rest comes when the "
        f"leader is back. The sink must not hold any record of {tp} with an offset of {at} to {range_.end - 1} yet: "
        "look there first, for what it holds would come twice"
    )
    ledger = FileLedger(state_dir or default_state_dir(), source_id, lock_wait_seconds=0)
    try:
        _record(ledger, tp, range_, at, batch=Batch(checkpoint.query_id or "", number), yes=yes)
    finally:
        ledger.close()


def _record(ledger: FileLedger, tp: TopicPartition, range_: PlannedRange, at: int, *, batch: Batch, yes: bool) -> None:
    state = ledger.open()
    if state.incarnation is None:
        raise StateError(f"--source-id: no ledger of cuts is at {ledger.path}; correct it, or adopt the checkpoint")
    if tp in state.pending():
        raise StateError(f"{tp} is cut already: {_show(state.pending()[tp])}")
    if not yes:
        typer.echo("nothing was changed; add --yes")
        return
    record = CutRecord(
        topic_partition=tp,
        topic_id=None,
        start=range_.start,
        end=range_.end,
        cut=at,
        plan=state.last_plan() + 1,
        incarnation=state.incarnation.number,
        query=batch.query or None,
        batch=batch.number,
    )
    ledger.append([record])
    typer.echo(f"recorded in {ledger.path}: {_show(record)}")


def _waiting(checkpoint: Checkpoint, tp: TopicPartition) -> tuple[int, PlannedRange]:
    """Return the batch that the next start replays, and its range of a partition."""
    planned, done = checkpoint.planned, checkpoint.done
    if planned is None or done is None or planned.number == done.number:
        raise ConfigError(
            "the checkpoint has no batch that waits: the last planned one is recorded, or it is the first"
        )
    ranges = [
        PlannedRange(start=before.offsets[tp], end=source.offsets[tp])
        for source in planned.sources
        if (before := done.source(source.name)) is not None and _has(tp, before, source)
    ]
    if len(ranges) != 1:
        raise ConfigError(f"--partition: batch {planned.number} plans {tp} in {len(ranges)} sources, not in one")
    return planned.number, ranges[0]


def _has(tp: TopicPartition, before: SourceOffset, source: SourceOffset) -> bool:
    return tp in before.offsets and tp in source.offsets and before.offsets[tp] < source.offsets[tp]


def _partition(text: str) -> TopicPartition:
    topic, dash, number = text.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        raise ConfigError(f"--partition: {text!r} is not TOPIC-NUMBER, like events-5")
    return TopicPartition(TopicName(topic), int(number))


def _number(state: LedgerState) -> int:
    return state.incarnation.number if state.incarnation else 0


def _show(record: CutRecord) -> str:
    return f"{record.topic_partition} cut at {record.cut} of [{record.start}, {record.end})"
