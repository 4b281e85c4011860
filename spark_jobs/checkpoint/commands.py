"""`kafka-discovery checkpoint`: what stands in a query's checkpoint, and what a start with either source would do."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from discovery.config.client_options import map_client_options
from discovery.config.logs import configure_logging
from discovery.config.material import open_stores
from discovery.core.errors import ConfigError, KafkaUnreachableError, StateError
from discovery.core.model import parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.feed.base import FeedView, Interest
from discovery.store.locations import default_state_dir
from spark_jobs.checkpoint import amend
from spark_jobs.checkpoint.files import Checkpoint, Severity, Writer, read_checkpoint
from spark_jobs.checkpoint.judge import Pending, Position, Report, judge
from spark_jobs.source.ledger_file import read_ledger

app = typer.Typer(no_args_is_help=True, help=__doc__)
app.command()(amend.adopt)
app.command()(amend.cut)
_TELL_SECONDS = 10.0

Folder = Annotated[Path, typer.Argument(help="The query's checkpointLocation, on a local or mounted disk.")]
Bootstrap = Annotated[str | None, typer.Option("--bootstrap", help="Ask Kafka for lag and lost records: HOST:PORT,…")]
Client = Annotated[
    list[str] | None,
    typer.Option(
        "--client-option",
        help="kafka.NAME=VALUE, as for the source, or kafka.NAME=@FILE for a secret; may be repeated.",
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=1, max=600, help="Seconds to wait for Kafka.")]
SourceId = Annotated[str | None, typer.Option("--source-id", help="The sourceId, to look at its cuts.")]
StateDir = Annotated[Path | None, typer.Option("--state-dir", help="State folder; the user's by default.")]
For = Annotated[Writer, typer.Option("--for", help="The source that the next start uses.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def inspect(
    folder: Folder,
    *,
    bootstrap: Bootstrap = None,
    client_option: Client = None,
    timeout: Timeout = _TELL_SECONDS,
    source_id: SourceId = None,
    state_dir: StateDir = None,
    reader: For = Writer.OURS,
    as_json: AsJson = False,
) -> None:
    """Print offsets, lag, a batch that would be replayed, and what the next start would do."""
    report = _report(
        folder,
        reader,
        kafka=_Kafka(bootstrap, client_option or (), timeout),
        source_id=source_id,
        state_dir=state_dir,
    )
    typer.echo(json.dumps(_as_json(report), indent=2) if as_json else "\n".join(_lines(report)))


@app.command()
def verify(
    folder: Folder,
    *,
    bootstrap: Bootstrap = None,
    client_option: Client = None,
    timeout: Timeout = _TELL_SECONDS,
    source_id: SourceId = None,
    state_dir: StateDir = None,
    reader: For = Writer.OURS,
    as_json: AsJson = False,
) -> None:
    """Check a checkpoint: exit 0 sound, 1 a start would fail, lose or repeat records, 2 usage, 3 Kafka unreachable."""
    report = _report(
        folder,
        reader,
        kafka=_Kafka(bootstrap, client_option or (), timeout),
        source_id=source_id,
        state_dir=state_dir,
    )
    if as_json:
        typer.echo(json.dumps(_as_json(report), indent=2))
    else:
        typer.echo("\n".join([*_findings(report), f"{'sound' if report.sound else 'not sound'} for {reader.value}"]))
    raise typer.Exit(0 if report.sound else 1)


@dataclass(frozen=True, slots=True)
class _Kafka:
    """How to ask, if at all."""

    bootstrap: str | None
    client_options: Sequence[str]
    timeout_seconds: float


def _report(folder: Path, reader: Writer, *, kafka: _Kafka, source_id: str | None, state_dir: Path | None) -> Report:
    if source_id is None and state_dir is not None:
        raise ConfigError("--state-dir: it has no effect without --source-id")
    checkpoint = read_checkpoint(folder)
    pending = _pending(state_dir or default_state_dir(), source_id) if source_id else None
    return judge(checkpoint, reader=reader, pending=pending, view=_ask(kafka, checkpoint))


def _pending(state_dir: Path, source_id: str) -> Pending:
    state = read_ledger(state_dir, source_id)
    if state is None:
        raise StateError(
            f"--source-id {source_id}: there is no ledger of cuts in {state_dir}; correct the name or --state-dir, or "
            "leave it out where the source never had a sourceId"
        )
    return state.pending()


def _ask(kafka: _Kafka, checkpoint: Checkpoint) -> FeedView | None:
    given = dict(_pair(text) for text in kafka.client_options)
    if kafka.bootstrap is None:
        if given:
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
        client_options=open_stores(map_client_options(given)),
        policy=Policy(),
    )
    feed.start()
    try:
        return feed.refresh(kafka.timeout_seconds)
    except KafkaUnreachableError as error:
        raise KafkaUnreachableError(f"--bootstrap: within {kafka.timeout_seconds:g} s {error}") from error
    finally:
        feed.stop()


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--client-option: {name!r} has no value; write kafka.NAME=VALUE, or kafka.NAME=@FILE")
    return name, _content(name, Path(value[1:])) if value.startswith("@") else value


def _content(name: str, file: Path) -> str:
    try:
        return file.expanduser().read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--client-option: {name}: cannot read {file}: {error}; name a text file") from error


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
