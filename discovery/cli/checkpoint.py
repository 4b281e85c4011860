"""`kafka-discovery checkpoint`: what stands in a query's checkpoint, and what a start with either source would do."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from discovery.config.flags import AsJson, ClientOption, KafkaTimeout, StateFolder, together
from discovery.config.logs import configure_logging
from discovery.core.errors import ConfigError, KafkaUnreachableError, StateError
from discovery.core.interest import CUT_LEDGER_TOPIC
from discovery.core.model import parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.feed.base import ID_ASKED, FeedView, Interest
from discovery.spark.checkpoint import adopt as amend
from discovery.spark.checkpoint.ledger_options import Bootstrap, Folder, Kind, Place, Topic, client_options
from discovery.spark.checkpoint.read import Checkpoint, Finding, Severity, Writer, read_checkpoint
from discovery.spark.checkpoint.verify import Pending, Position, Report, judge
from discovery.store.locations import default_state_dir

app = typer.Typer(no_args_is_help=True, help=__doc__)
app.command()(amend.adopt)
app.command()(amend.cut)
_TELL_SECONDS = 10.0
_IDS_SECONDS = 1.5
"""How long topics may wait for their ids, which are asked beside what a refresh asks."""

SourceId = Annotated[
    list[str] | None, typer.Option("--source-id", help="The sourceId, to look at its cuts; once for each source.")
]
For = Annotated[Writer, typer.Option("--for", help="The source that the next start uses.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which checkpoint, which source next, and where its cuts and Kafka are: the options of both commands."""

    folder: Folder
    bootstrap: Bootstrap = None
    client_option: ClientOption = None
    timeout: KafkaTimeout = _TELL_SECONDS
    source_id: SourceId = None
    state_dir: StateFolder = None
    cut_ledger: Kind = "file"
    cut_ledger_topic: Topic = None
    reader: For = Writer.OURS
    as_json: AsJson = False

    def report(self) -> Report:
        """Read the checkpoint and, where they are named, its ledger and Kafka; blocks <= twice the timeout."""
        kafka = _Kafka(self.bootstrap, self.client_option or (), self.timeout)
        places = self._places()
        checkpoint = read_checkpoint(self.folder)
        pending, view = [_pending(place) for place in places], _ask(kafka, checkpoint)
        unseen = []
        try:
            others = self._place("").others(places)
        except StateError as error:
            text = f"whether a cut waits in a ledger in Kafka is not known: {error}; let this user read its topic"
            unseen.append(Finding(Severity.WARNING, text))
            others = replace(self._place(""), bootstrap=None).others(places)
        report = judge(checkpoint, reader=self.reader, pending=pending, others=others, view=view)
        return replace(report, findings=(*report.findings, *unseen))

    def _place(self, source_id: str) -> Place:
        return Place(
            source_id=source_id,
            state_dir=self.state_dir,
            kind=self.cut_ledger,
            topic=self.cut_ledger_topic,
            bootstrap=self.bootstrap,
            client_options=self.client_option or (),
            timeout_seconds=self.timeout,
        )

    def _places(self) -> list[Place]:
        kind, topic = self.cut_ledger, self.cut_ledger_topic
        if self.source_id:
            return [self._place(source_id) for source_id in self.source_id]
        kind_given = kind if kind != "file" else None
        given = {"--cut-ledger": kind_given, "--cut-ledger-topic": topic}
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"{name}: it has no effect without --source-id")
        return []


@app.command()
@together(Asked)
def inspect(asked: Asked) -> None:
    """Print offsets, lag, a batch that would be replayed, and what the next start would do."""
    report = asked.report()
    typer.echo(json.dumps(_as_json(report), indent=2) if asked.as_json else "\n".join(_lines(report)))


@app.command()
@together(Asked)
def verify(asked: Asked) -> None:
    """Check a checkpoint: exit 0 sound, 1 a start would fail, lose or repeat records, 2 usage, 3 Kafka unreachable."""
    report = asked.report()
    verdict = f"{'sound' if report.sound else 'not sound'} for {asked.reader.value}"
    typer.echo(json.dumps(_as_json(report), indent=2) if asked.as_json else "\n".join([*_findings(report), verdict]))
    raise typer.Exit(0 if report.sound else 1)


@dataclass(frozen=True, slots=True)
class _Kafka:
    """How to ask, if at all."""

    bootstrap: str | None
    client_options: Sequence[str]
    timeout_seconds: float


def _pending(place: Place) -> Pending:
    state = place.look()
    if state is None:
        where = place.topic or CUT_LEDGER_TOPIC if place.kind == "kafka" else place.state_dir or default_state_dir()
        raise StateError(
            f"--source-id {place.source_id}: there is no ledger of cuts in {where}; correct the name, --state-dir or "
            "--cut-ledger, or leave it out where the source never had a sourceId"
        )
    return state.pending()


def _ask(kafka: _Kafka, checkpoint: Checkpoint) -> FeedView | None:
    options = client_options(kafka.client_options)
    if kafka.bootstrap is None:
        if kafka.client_options:
            raise ConfigError("--client-option: it has no effect without --bootstrap")
        return None
    addresses = parse_bootstrap_servers(kafka.bootstrap, option="--bootstrap")
    sources = checkpoint.planned.sources if checkpoint.planned else ()
    topics = tuple(sorted({tp.topic for source in sources for tp in source.offsets}))
    if not topics:
        return None
    configure_logging(as_json=False, level=logging.ERROR)
    # It brings librdkafka along, which a look at files does not need.
    from discovery.feed.embedded import EmbeddedFeed  # noqa: PLC0415

    feed = EmbeddedFeed(
        bootstrap=addresses,
        interest=Interest(topics=topics),
        client_options=options,
        policy=Policy(),
    )
    feed.start()
    try:
        view = feed.refresh(kafka.timeout_seconds)
        until = time.monotonic() + _IDS_SECONDS
        while any(p.parked_reason == ID_ASKED for p in view.partitions.values()) and time.monotonic() < until:
            view = feed.wait(view.version, _IDS_SECONDS)
    except KafkaUnreachableError as error:
        raise KafkaUnreachableError(f"--bootstrap: within {kafka.timeout_seconds:g} s {error}") from error
    else:
        return view
    finally:
        feed.stop()


def _lines(report: Report) -> list[str]:
    found = report.checkpoint
    last = found.recorded[-1] if found.recorded else "none"
    lines = [f"checkpoint {found.path}, query {found.query_id or 'unknown'}, last recorded batch {last}"]
    if found.planned is not None:
        when = datetime.fromtimestamp(found.planned.planned_ms / 1000, UTC)
        lines.append(f"last planned batch {found.planned.number}, {when:%Y-%m-%d %H:%M:%S} UTC")
        lines += [f"source {s.name}: {s.writer.value}" for s in found.planned.sources]
    return [*lines, *map(_line, report.positions), *_findings(report)]


def _line(position: Position) -> str:
    shown: Mapping[str, object] = {
        "planned": position.planned,
        "recorded": position.recorded,
        "delivered": position.delivered if position.delivered != position.recorded else None,
        "end": position.end,
        "lag": position.lag,
    }
    values = "  ".join(f"{name} {value}" for name, value in shown.items() if value is not None)
    return f"  {position.topic_partition}  {values}"


def _findings(report: Report) -> list[str]:
    order = list(Severity)
    ranked = sorted(report.findings, key=lambda finding: order.index(finding.severity))
    return [f"{finding.severity.value}: {finding.text}" for finding in ranked]


def _as_json(report: Report) -> dict[str, object]:
    found = report.checkpoint
    return {
        "path": str(found.path),
        "query_id": found.query_id,
        "last_planned_batch": found.batches[-1] if found.batches else None,
        "last_recorded_batch": found.recorded[-1] if found.recorded else None,
        "sources": [
            {"name": s.name, "written_by": s.writer.value} for s in (found.planned.sources if found.planned else ())
        ],
        "positions": [
            {
                "source": p.source,
                "topic": p.topic_partition.topic,
                "partition": p.topic_partition.partition,
                "planned": p.planned,
                "recorded": p.recorded,
                "delivered": p.delivered,
                "begin": p.begin,
                "end": p.end,
                "lag": p.lag,
            }
            for p in report.positions
        ],
        "findings": [{"severity": f.severity.value, "text": f.text} for f in report.findings],
        "sound": report.sound,
    }
