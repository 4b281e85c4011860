"""`kafka-discovery sink`: where an exactly-once sink stands, and what only an operator may decide about it."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discovery.config.logs import configure_logging
from discovery.core.errors import ConfigError
from spark_jobs.sink.options import DEFAULT_LEDGER_TOPIC, parse_options

if TYPE_CHECKING:
    from spark_jobs.sink.operate import LaneStatus, SinkStatus
    from spark_jobs.sink.plan import SinkPlan

app = typer.Typer(no_args_is_help=True, help=__doc__)
_QUIET = 40
"""Errors only: the command itself says what it found."""

Sink = Annotated[str, typer.Option("--sink", help="The sinkId; of a batch write SINKID.write.WRITEID.")]
Bootstrap = Annotated[str, typer.Option("--bootstrap", help="Where Kafka is: HOST:PORT,…")]
Client = Annotated[
    list[str] | None,
    typer.Option("--client-option", help="kafka.NAME=VALUE, or kafka.NAME=@FILE for a secret; may be repeated."),
]
MarkerTopic = Annotated[str, typer.Option("--marker-topic", help="The sink's markerTopic.")]
Timeout = Annotated[float, typer.Option("--timeout", min=1, max=600, help="Seconds to wait for Kafka.")]
StateDir = Annotated[Path | None, typer.Option("--state-dir", help="State folder; the user's by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this the command only says what it would do.")]


@app.command()
def status(
    sink: Sink,
    bootstrap: Bootstrap,
    *,
    client_option: Client = None,
    marker_topic: MarkerTopic = DEFAULT_LEDGER_TOPIC,
    timeout: Timeout = 30.0,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the last complete batch, each lane's marker, and transactions that are open."""
    from spark_jobs.sink.operate import look  # noqa: PLC0415 - it brings librdkafka along, which --help does not need

    plan = _plan(sink, bootstrap, client_option, marker_topic, timeout, state_dir)
    found = look(plan, timeout_seconds=timeout)
    typer.echo(json.dumps(_as_json(sink, found), indent=2) if as_json else "\n".join(_lines(sink, found)))


@app.command("abort-lingering")
def abort_lingering(
    sink: Sink,
    bootstrap: Bootstrap,
    *,
    client_option: Client = None,
    marker_topic: MarkerTopic = DEFAULT_LEDGER_TOPIC,
    timeout: Timeout = 30.0,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """End open transactions that a killed query left, so that readers see what follows at once."""
    from spark_jobs.sink import operate  # noqa: PLC0415 - as above

    plan = _plan(sink, bootstrap, client_option, marker_topic, timeout, state_dir)
    before = operate.look(plan, timeout_seconds=timeout)
    lanes = _lanes(before)
    operate.abort_lingering(plan, lanes=lanes)
    _say(
        as_json,
        {"sink": sink, "lanes": lanes, "were_open": [s.lane for s in before.lanes if s.open_transaction]},
        f"{sink}: nothing of {lanes} lanes is open any more; a running query repeats what it was writing",
    )


@app.command()
def takeover(
    sink: Sink,
    bootstrap: Bootstrap,
    *,
    query: Annotated[str, typer.Option("--query", help="Only this query id may come (CHECKPOINT/metadata).")] = "",
    client_option: Client = None,
    marker_topic: MarkerTopic = DEFAULT_LEDGER_TOPIC,
    timeout: Timeout = 30.0,
    state_dir: StateDir = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give a sink to a query with another checkpoint. Whatever that one writes again is in the topic twice."""
    from spark_jobs.sink import operate  # noqa: PLC0415 - as above

    plan = _plan(sink, bootstrap, client_option, marker_topic, timeout, state_dir)
    before = operate.look(plan, timeout_seconds=timeout)
    if not yes:
        _say(
            as_json,
            {**_as_json(sink, before), "done": False},
            "\n".join([*_lines(sink, before), "stop the old query; nothing was changed: add --yes"]),
        )
        return
    after = operate.takeover(plan, query_id=query, timeout_seconds=timeout)
    _say(
        as_json,
        {"sink": sink, "generation": after.generation, "query": query or None, "done": True},
        f"{sink}: generation {after.generation} begins with {f'query {query}' if query else 'whichever query comes'}",
    )


@app.command()
def reset(
    sink: Sink,
    bootstrap: Bootstrap,
    *,
    client_option: Client = None,
    marker_topic: MarkerTopic = DEFAULT_LEDGER_TOPIC,
    timeout: Timeout = 30.0,
    state_dir: StateDir = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget a sink, as if its name had never been used. Records stay in their topics."""
    from spark_jobs.sink import operate  # noqa: PLC0415 - as above

    plan = _plan(sink, bootstrap, client_option, marker_topic, timeout, state_dir)
    before = operate.look(plan, timeout_seconds=timeout)
    if not yes:
        _say(
            as_json,
            {**_as_json(sink, before), "done": False},
            "\n".join([*_lines(sink, before), "stop its query; nothing was changed: add --yes"]),
        )
        return
    operate.reset(plan, timeout_seconds=timeout)
    _say(as_json, {"sink": sink, "done": True}, f"{sink}: forgotten")


def _plan(  # noqa: PLR0917 - as the options stand in each command
    sink: str, bootstrap: str, client: Sequence[str] | None, topic: str, timeout: float, state_dir: Path | None
) -> "SinkPlan":  # fmt: skip
    from spark_jobs.sink.checks import living_brokers  # noqa: PLC0415 - as above
    from spark_jobs.sink.plan import SinkPlan  # noqa: PLC0415 - as above

    configure_logging(level=_QUIET)
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "sinkId": sink,
        "markerTopic": topic,
        "startupTimeout": f"{max(1, round(timeout))}s",
        **dict(_pair(text) for text in client or ()),
    }
    options = parse_options(given | ({"stateDir": str(state_dir)} if state_dir else {})).opened()
    return SinkPlan(options=options, brokers=living_brokers(options))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("kafka."):
        raise ConfigError(f"--client-option: {name!r} is no kafka.NAME=VALUE, or kafka.NAME=@FILE")
    if not value.startswith("@"):
        return name, value
    try:
        return name, Path(value[1:]).expanduser().read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--client-option: {name}: cannot read {value[1:]}: {error}; name a text file") from error


def _lanes(found: "SinkStatus") -> int:
    return found.control.known_lanes if found.control else max((s.lane + 1 for s in found.lanes), default=1)


def _say(as_json: bool, content: dict[str, Any], text: str) -> None:  # noqa: FBT001 - its callers' option
    typer.echo(json.dumps(content, indent=2) if as_json else text)


def _as_json(sink: str, found: "SinkStatus") -> dict[str, Any]:
    control = found.control
    return {
        "sink": sink,
        "query": control.query_id or None if control else None,
        "batch": control.batch_id if control and control.batch_id >= 0 else None,
        "begun_batch": found.begun_batch,
        "generation": control.generation if control else None,
        "lanes": [
            {
                "lane": lane.lane,
                "batch": lane.marker.batch_id if lane.marker else None,
                "rows": lane.marker.rows if lane.marker else None,
                "generation": lane.marker.generation if lane.marker else None,
                "age_seconds": int(time.time()) - lane.marker.wall_seconds if lane.marker else None,
                "open_transaction": lane.open_transaction,
            }
            for lane in found.lanes
        ],
    }


def _lines(sink: str, found: "SinkStatus") -> list[str]:
    control = found.control
    if control is None:
        head = f"{sink}: no control record, only markers: they were lost in part; see sink takeover"
    else:
        query = f"query {control.query_id}" if control.query_id else "no query yet"
        done = f"batch {control.batch_id} is complete" if control.batch_id >= 0 else "no batch is complete"
        head = f"{sink}: {query}, generation {control.generation}, {control.known_lanes} lanes, {done}"
    begun = [] if found.begun_batch is None else [f"batch {found.begun_batch} is begun: the next start finishes it"]
    return [head, *begun, *map(_line, found.lanes)]


def _line(lane: "LaneStatus") -> str:
    text = "no marker"
    if lane.marker is not None:
        age = int(time.time()) - lane.marker.wall_seconds
        text = f"batch {lane.marker.batch_id}, {lane.marker.rows} records, {age} s ago"
    return f"  lane {lane.lane}: {text}{', a transaction is open: abort-lingering ends it' * lane.open_transaction}"
