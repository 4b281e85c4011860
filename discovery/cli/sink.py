"""`kafka-discovery sink`: where an exactly-once sink stands, and what only an operator may decide about it."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from discovery.config.flags import AsJson, ClientOption, KafkaTimeout, StateFolder, Yes, together
from discovery.config.logs import configure_logging
from discovery.core.errors import ConfigError
from discovery.core.interest import SINK_LEDGER_TOPIC
from discovery.core.plural import counted
from discovery.spark.sink.options import parse_options

if TYPE_CHECKING:
    from discovery.spark.sink.operator import LaneStatus, SinkStatus
    from discovery.spark.sink.plan import SinkPlan

app = typer.Typer(no_args_is_help=True, help=__doc__)
_QUIET = 40
"""Errors only: the command itself says what it found."""

Sink = Annotated[str, typer.Option("--sink", help="The sinkId; of a batch write SINKID.write.WRITEID.")]
Bootstrap = Annotated[str, typer.Option("--bootstrap", help="Where Kafka is: HOST:PORT,…")]
MarkerTopic = Annotated[str, typer.Option("--marker-topic", help="The sink's markerTopic.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which sink, where, and how to answer: the options of every command."""

    sink: Sink
    bootstrap: Bootstrap
    client_option: ClientOption = None
    marker_topic: MarkerTopic = SINK_LEDGER_TOPIC
    timeout: KafkaTimeout = 30.0
    state_dir: StateFolder = None
    as_json: AsJson = False

    def plan(self) -> "SinkPlan":
        """Read the options and look for living brokers; blocks <= timeout."""
        from discovery.spark.sink.checks import living_brokers  # noqa: PLC0415 - librdkafka, which --help does not need
        from discovery.spark.sink.plan import SinkPlan  # noqa: PLC0415 - as above

        configure_logging(level=_QUIET)
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "sinkId": self.sink,
            "markerTopic": self.marker_topic,
            "startupTimeout": f"{max(1, round(self.timeout))}s",
            **dict(_pair(text) for text in self.client_option or ()),
        }
        options = parse_options(given | ({"stateDir": str(self.state_dir)} if self.state_dir else {})).opened()
        return SinkPlan(options=options, brokers=living_brokers(options))

    def say(self, content: dict[str, Any], text: str) -> None:
        """Print one or the other."""
        typer.echo(json.dumps(content, indent=2) if self.as_json else text)


@app.command()
@together(Asked)
def status(asked: Asked) -> None:
    """Show the last complete batch, each lane's marker, and transactions that are open."""
    from discovery.spark.sink.operator import look  # noqa: PLC0415 - as above

    found = look(asked.plan(), timeout_seconds=asked.timeout)
    asked.say(_as_json(asked.sink, found), "\n".join(_lines(asked.sink, found)))


@app.command("abort-lingering")
@together(Asked)
def abort_lingering(asked: Asked) -> None:
    """End open transactions that a killed query left, so that readers see what follows at once."""
    from discovery.spark.sink import operator as operate  # noqa: PLC0415 - as above

    plan = asked.plan()
    before = operate.look(plan, timeout_seconds=asked.timeout)
    lanes = _lanes(before)
    operate.abort_lingering(plan, lanes=lanes)
    asked.say(
        {"sink": asked.sink, "lanes": lanes, "were_open": [s.lane for s in before.lanes if s.open_transaction]},
        f"{asked.sink}: nothing of {counted(lanes, 'lane')} is open any more; "
        "a running query repeats what it was writing",
    )


@app.command()
@together(Asked)
def takeover(
    asked: Asked,
    *,
    query: Annotated[str, typer.Option("--query", help="Only this query id may come (CHECKPOINT/metadata).")] = "",
    yes: Yes = False,
) -> None:
    """Give a sink to a query with another checkpoint. Whatever that one writes again is in the topic twice."""
    from discovery.spark.sink import operator as operate  # noqa: PLC0415 - as above

    plan = asked.plan()
    before = operate.look(plan, timeout_seconds=asked.timeout)
    if not yes:
        _not_done(asked, before, "stop the old query; nothing was changed: add --yes")
        return
    after = operate.takeover(plan, query_id=query, timeout_seconds=asked.timeout)
    who = f"query {query}" if query else "whichever query comes"
    asked.say(
        {"sink": asked.sink, "generation": after.generation, "query": query or None, "done": True},
        f"{asked.sink}: generation {after.generation} begins with {who}",
    )


@app.command()
@together(Asked)
def reset(asked: Asked, *, yes: Yes = False) -> None:
    """Forget a sink, as if its name had never been used. Records stay in their topics."""
    from discovery.spark.sink import operator as operate  # noqa: PLC0415 - as above

    plan = asked.plan()
    before = operate.look(plan, timeout_seconds=asked.timeout)
    if not yes:
        _not_done(asked, before, "stop its query; nothing was changed: add --yes")
        return
    operate.reset(plan, timeout_seconds=asked.timeout)
    asked.say({"sink": asked.sink, "done": True}, f"{asked.sink}: forgotten")


def _not_done(asked: Asked, found: "SinkStatus", remedy: str) -> None:
    asked.say({**_as_json(asked.sink, found), "done": False}, "\n".join([*_lines(asked.sink, found), remedy]))


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


def _as_json(sink: str, found: "SinkStatus") -> dict[str, Any]:
    control = found.control
    return {
        "sink": sink,
        "query": control.query_id or None if control else None,
        "batch": control.batch_id if control and control.batch_id >= 0 else None,
        "begun_batch": found.begun_batch,
        "generation": control.generation if control else None,
        "kept": control.kept if control else None,
        "lanes": [
            {
                "lane": lane.lane,
                "batch": lane.marker.batch_id if lane.marker else None,
                "rows": lane.marker.rows if lane.marker else None,
                "generation": lane.marker.generation if lane.marker else None,
                "generation_begun": lane.marker.is_boundary if lane.marker else None,
                "age_seconds": int(time.time()) - lane.marker.wall_seconds if lane.marker else None,
                "open_transaction": lane.open_transaction,
            }
            for lane in found.lanes
        ],
    }


def _lines(sink: str, found: "SinkStatus") -> list[str]:
    control = found.control
    if control is None:
        head = f"{sink}: the control record has expired; the next start puts it back, or refuses and says what to do"
    else:
        query = f"query {control.query_id}" if control.query_id else "no query yet"
        done = f"batch {control.batch_id} is complete" if control.batch_id >= 0 else "no batch is complete"
        head = f"{sink}: {query}, generation {control.generation}, {counted(control.known_lanes, 'lane')}, {done}"
    begun = [] if found.begun_batch is None else [f"batch {found.begun_batch} is begun: the next start finishes it"]
    replays = control.kept if control else 0
    kept = (
        [f"{counted(replays, 'replay')} had other records, which were not written (keep-committed)"] if replays else []
    )
    return [head, *begun, *kept, *map(_line, found.lanes)]


def _line(lane: "LaneStatus") -> str:
    text = "no marker"
    if lane.marker is not None:
        age = int(time.time()) - lane.marker.wall_seconds
        what = f"batch {lane.marker.batch_id}, {counted(lane.marker.rows, 'record')}"
        text = f"{'generation begun' if lane.marker.is_boundary else what}, {age} s ago"
    return f"  lane {lane.lane}: {text}{', a transaction is open: abort-lingering ends it' * lane.open_transaction}"
