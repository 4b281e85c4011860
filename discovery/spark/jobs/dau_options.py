"""The command line of the daily-active-users job, read into one frozen value."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from discovery.config.durations import duration_option
from discovery.config.option_values import topic_name
from discovery.core.errors import ConfigError
from discovery.core.model import parse_bootstrap_servers
from discovery.spark.jobs.arguments import (
    Parser,
    Watching,
    add_clock,
    add_watching,
    clock_of,
    local_folder,
    pairs,
    positive,
    watching_of,
)
from discovery.spark.jobs.dau_store import SQLITE, sqlite_file
from discovery.spark.jobs.folder import FORMATS, FolderOutput
from discovery.spark.jobs.jdbc import SCHEME, JdbcOutput
from discovery.spark.jobs.letters import Clock

_UNWATCHED = Watching()
_CLOCK = Clock(allowed_lateness_seconds=86_400.0, skew_seconds=300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOutput:
    """Results as records of a topic, each once."""

    topic: str
    dead_letter_topic: str
    sink_id: str = "dau"
    lanes: int = 1
    sink_options: tuple[tuple[str, str], ...] = ()
    create_topics: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DauOptions:
    """Everything the job needs to know."""

    bootstrap_servers: str
    topic: str
    output: Path | KafkaOutput | JdbcOutput | FolderOutput
    """A path: a SQLite file."""
    checkpoint: str
    clock: Clock = _CLOCK
    time_zone: str = "UTC"
    trigger_interval_seconds: float = 1.0
    available_now: bool = False
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    on_parked: str = "continue"
    source_id: str | None = None
    state_dir: Path | None = None
    source_format: str = "kafka-discovery"
    source_options: tuple[tuple[str, str], ...] = ()
    master: str | None = None
    spark_options: tuple[tuple[str, str], ...] = ()
    watching: Watching = _UNWATCHED


def parse_arguments(arguments: Sequence[str]) -> DauOptions:
    """Read the command line.

    Raises:
        ConfigError: an option is unknown, missing, wrong or in conflict; names option, value and remedy.
        SystemExit: `--help` was asked for.

    Runs: main thread; looks at the file system.
    """
    given = _parser().parse_args(arguments)
    parse_bootstrap_servers(given.bootstrap_servers, option="--bootstrap-servers")
    if given.available_now and given.trigger_interval is not None:
        raise ConfigError("--available-now ends when all is read; leave out --trigger-interval")
    return DauOptions(
        bootstrap_servers=given.bootstrap_servers,
        topic=topic_name("--topic", given.topic),
        output=_output(given),
        checkpoint=local_folder(given.checkpoint),
        clock=clock_of(given),
        time_zone=_time_zone(given.time_zone),
        trigger_interval_seconds=duration_option(
            given.trigger_interval or "1 second", option="--trigger-interval", above_zero=False
        ),
        available_now=given.available_now,
        starting_offsets=given.starting_offsets,
        max_offsets_per_trigger=positive(given.max_offsets_per_trigger, "--max-offsets-per-trigger"),
        on_parked=given.on_parked,
        source_id=given.source_id,
        state_dir=given.state_dir and given.state_dir.absolute(),
        source_format=given.format,
        source_options=pairs(given.source_option, "--source-option"),
        master=given.master,
        spark_options=pairs(given.conf, "--conf"),
        watching=watching_of(given, state_dir=given.state_dir),
    )


def _parser() -> Parser:
    parser = Parser(
        prog="dau", description="Count daily active users, exactly, from a Kafka topic.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to begin with")
    add("--topic", required=True, help="topic with JSON events {event_id, user_id, ip, ts}")
    outputs = f"{SQLITE}FILE|{SCHEME}URL|parquet:FOLDER|orc:FOLDER|kafka"
    add("--output", required=True, metavar=outputs, help="where the results go")
    options = f"with --output {SCHEME}URL: an option of Spark's JDBC writer or of the driver, driver=CLASS among them"
    add("--output-option", action="append", metavar="NAME=VALUE", help=options)
    add("--output-topic", help="with --output kafka: the topic of the results; it must exist")
    add("--dead-letter-topic", help="with --output kafka: the topic of malformed events (default: the results')")
    add("--sink-id", help="with --output kafka: name of the sink, of this query alone (default: dau)")
    add("--lanes", metavar="N", help="with --output kafka: tasks that write, one transaction each (default: 1)")
    add("--sink-option", action="append", metavar="NAME=VALUE", help="with --output kafka: an option of the sink")
    add("--create-topics", action="store_true", default=None, help="with --output kafka: make missing topics")
    add("--checkpoint", required=True, metavar="DIR", help="Spark's recovery folder; one per output")
    add_clock(parser, lateness="1 day")
    add(
        "--time-zone", default="UTC", metavar="NAME", help="in which days begin, for a checkpoint's life (default: UTC)"
    )
    add("--trigger-interval", metavar="TIME", help="pause between micro-batches (default: 1 second; 0s: none)")
    add("--available-now", action="store_true", help="count what is there, then end")
    add("--starting-offsets", default="earliest", metavar="earliest|latest|JSON", help="where a new query begins")
    add("--max-offsets-per-trigger", metavar="N", help="most records per micro-batch")
    add("--on-parked", choices=("continue", "hold"), default="continue", help="while a partition has no leader")
    add("--source-id", help="name of this source; its state is kept under it")
    add("--state-dir", type=Path, metavar="DIR", help="where the last good view of the cluster is kept")
    add("--source-option", action="append", default=[], metavar="NAME=VALUE", help="any other option of the source")
    add("--format", default="kafka-discovery", help="Spark source to read with (default: kafka-discovery)")
    add("--master", help="Spark master (default: this machine, unless started by spark-submit)")
    add("--conf", action="append", default=[], metavar="NAME=VALUE", help="Spark setting")
    add_watching(parser)
    return parser


def _time_zone(name: str) -> str:
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"--time-zone: {name!r} is unknown; write for example 'UTC' or 'Europe/Berlin'") from None


def _output(given: Namespace) -> Path | KafkaOutput | JdbcOutput | FolderOutput:
    kafkas = ("output_topic", "dead_letter_topic", "sink_id", "lanes", "sink_option", "create_topics")
    if given.output != "kafka":
        if odd := [name for name in kafkas if getattr(given, name) is not None]:
            raise ConfigError(f"--{odd[0].replace('_', '-')}: it has no effect without --output kafka; leave it out")
        return _tables(given.output, pairs(given.output_option or (), "--output-option"))
    if given.output_topic is None:
        raise ConfigError("--output-topic: required with --output kafka; name an existing topic")
    return KafkaOutput(
        topic=topic_name("--output-topic", given.output_topic),
        dead_letter_topic=topic_name("--dead-letter-topic", given.dead_letter_topic or given.output_topic),
        sink_id=given.sink_id or "dau",
        lanes=positive(given.lanes, "--lanes") or 1,
        sink_options=pairs(given.sink_option or (), "--sink-option"),
        create_topics=bool(given.create_topics),
    )


def _tables(text: str, options: tuple[tuple[str, str], ...]) -> Path | JdbcOutput | FolderOutput:
    if text.startswith(SCHEME):
        return JdbcOutput(url=text, options=dict(options))
    if options:
        raise ConfigError(f"--output-option: it has no effect without --output {SCHEME}URL; leave it out")
    kind, _, path = text.partition(":")
    if kind in FORMATS and path:
        return FolderOutput(format=kind, path=path if "://" in path else str(Path(path).absolute()))
    if text.startswith(SQLITE):
        return sqlite_file(text)
    raise ConfigError(
        f"--output: {text!r} is not supported; write {SQLITE}FILE, {SCHEME}URL, parquet:FOLDER, orc:FOLDER or kafka"
    )
