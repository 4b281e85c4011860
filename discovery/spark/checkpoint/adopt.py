"""`kafka-discovery checkpoint adopt|cut`: what only an operator may decide about the ledger of a source's cuts."""

from dataclasses import dataclass
from typing import Annotated

import typer

from discovery.config.flags import ClientOption, StateFolder, Yes, together
from discovery.core.errors import ConfigError, LedgerDamagedError, StateError
from discovery.core.model import TopicName, TopicPartition
from discovery.spark.checkpoint.ledger_options import Bootstrap, Folder, Kind, Place, Topic
from discovery.spark.checkpoint.read import Checkpoint, SourceOffset, read_checkpoint
from discovery.spark.checkpoint.verify import waiting_elsewhere
from discovery.spark.source.cuts.ledger import Incarnation, Ledger, LedgerState
from discovery.spark.source.cuts.rules import CutRecord, PlannedRange

SourceId = Annotated[str, typer.Option("--source-id", help="The sourceId under which the query runs, or will run.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which checkpoint, whose, and where its ledger is: the options of both commands."""

    folder: Folder
    source_id: SourceId
    state_dir: StateFolder = None
    cut_ledger: Kind = "file"
    cut_ledger_topic: Topic = None
    bootstrap: Bootstrap = None
    client_option: ClientOption = None
    yes: Yes = False

    def place(self) -> Place:
        """Return where the ledger is; reads nothing."""
        return Place(
            source_id=self.source_id, state_dir=self.state_dir, kind=self.cut_ledger, topic=self.cut_ledger_topic,
            bootstrap=self.bootstrap, client_options=self.client_option or (),
        )  # fmt: skip


@together(Asked)
def adopt(asked: Asked) -> None:
    """Begin a ledger of cuts for a checkpoint that has none: one of the native source, or that ran without sourceId."""
    place = asked.place()
    checkpoint = read_checkpoint(asked.folder)
    last = checkpoint.batches[-1] if checkpoint.batches else "none"
    try:
        state = place.look() or LedgerState()
    except LedgerDamagedError as error:
        typer.echo(f"would be given up: {error}")
        state = None
    others = place.others([place])
    for source in checkpoint.planned.sources if checkpoint.planned else ():
        for sentence in waiting_elsewhere(checkpoint, source, others):
            raise StateError(sentence)
    for record in state.pending().values() if state is not None else ():
        typer.echo(f"would be forgotten: {_show(record)}; records [{record.cut}, {record.end}) may be lost by that")
    if not asked.yes:
        typer.echo(f"would adopt {asked.folder} (last planned batch {last}) as {asked.source_id!r}; add --yes")
        return
    _restart(place.ledger(), is_damaged=state is None)
    typer.echo(
        f"adopted {asked.folder} (last planned batch {last}) as {asked.source_id!r} in {place.ledger().describe()}"
    )


def _restart(ledger: Ledger, *, is_damaged: bool) -> None:
    """Holding it is what ends a query that still runs with a ledger in Kafka; one in a file is locked by it."""
    try:
        if is_damaged:
            typer.echo(f"the damaged ledger was given up; {ledger.set_aside()}")
        state = ledger.open()
        ledger.append([Incarnation(number=_number(state) + 1)])
    finally:
        ledger.close()


@together(Asked)
def cut(
    asked: Asked,
    *,
    partition: Annotated[str, typer.Option("--partition", help="TOPIC-NUMBER of a partition that is waited for.")],
    at: Annotated[int, typer.Option("--at", min=0, help="The first offset that the planned batch shall not deliver.")],
) -> None:
    """Cut one range of a batch that is replayed and waits for a leader that will not come back."""
    place = asked.place()
    checkpoint = read_checkpoint(asked.folder)
    tp = _partition(partition)
    number, range_ = _waiting(checkpoint, tp)
    if not range_.start <= at < range_.end:
        raise ConfigError(f"--at: {at} is not in the planned range [{range_.start}, {range_.end}) of {tp}")
    typer.echo(
        f"batch {number} plans [{range_.start}, {range_.end}) of {tp}; it will end at {at}, the rest comes when the "
        f"leader is back. The sink must not hold any record of {tp} with an offset of {at} to {range_.end - 1} yet: "
        "look there first, for what it holds would come twice"
    )
    state = place.look()
    if state is None or state.incarnation is None:
        raise StateError(
            f"--source-id: no ledger of cuts is at {place.ledger().describe()}; correct it, or adopt the checkpoint"
        )
    if tp in state.pending():
        raise StateError(f"{tp} is cut already: {_show(state.pending()[tp])}")
    if not asked.yes:
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
        query=checkpoint.query_id,
        batch=number,
    )
    _record(place.ledger(), record)


def _record(ledger: Ledger, record: CutRecord) -> None:
    try:
        if record.topic_partition in ledger.open().pending():
            raise StateError(f"{record.topic_partition} is cut already; look again")
        ledger.append([record])
    finally:
        ledger.close()
    typer.echo(f"recorded in {ledger.describe()}: {_show(record)}")


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
