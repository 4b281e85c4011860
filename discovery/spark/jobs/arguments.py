"""The command line that all jobs share, read into one frozen value."""

from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from discovery.config.durations import duration_option
from discovery.config.option_values import path_of, topic_name
from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress, parse_bootstrap_servers
from discovery.spark.jobs.letters import Clock
from discovery.spark.jobs.outputs import Output, add_outputs, output_of
from discovery.spark.jobs.texts import Parser, local_folder, pairs, positive

SOURCE = "kafka-discovery"
"""The format of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every job needs to know."""

    topic: str
    output: Output
    checkpoint: str
    source: tuple[tuple[str, str], ...] = ()
    """The options of the source."""
    source_format: str = SOURCE
    trigger_interval_seconds: float = 1.0
    available_now: bool = False
    master: str | None = None
    spark_options: tuple[tuple[str, str], ...] = ()
    progress_file: Path | None = None
    metrics: BrokerAddress | None = None
    """Where Prometheus finds them."""

    @property
    def state_dir(self) -> Path | None:
        """The source's."""
        found = dict(self.source).get("stateDir")
        return None if found is None else Path(found)


def job_parser(name: str, description: str, *, sink_id: str, dead_letters: str = "the output's") -> Parser:
    """Make a parser of what `job_of` reads; a job adds its own options.

    Args:
        name: The job's file.
        description: What it does.
        sink_id: Name of its sink.
        dead_letters: What becomes of records that cannot be used, where no topic is named for them.

    Runs: main thread.
    """
    parser = Parser(prog=name, description=description)
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to begin with")
    add("--topic", required=True, help="topic to read")
    add("--checkpoint", required=True, metavar="DIR", help="Spark's recovery folder; one per output or sink id")
    add_outputs(parser, sink_id=sink_id, dead_letters=dead_letters)
    add("--trigger-interval", metavar="TIME", help="pause between micro-batches (default: 1 second; 0s: none)")
    add("--available-now", action="store_true", help="read what is there, then end")
    add("--starting-offsets", default="earliest", metavar="earliest|latest|JSON", help="where a new query begins")
    add("--max-offsets-per-trigger", metavar="N", help="most records per micro-batch")
    add("--on-parked", choices=("continue", "hold"), default="continue", help="while a partition has no leader")
    add("--source-id", help="name of this source; its state is kept under it")
    state = partial(path_of, "--state-dir")
    add("--state-dir", type=state, metavar="DIR", help="where the last good view of the cluster is kept")
    add("--source-option", action="append", default=[], metavar="NAME=VALUE", help="any other option of the source")
    add("--format", default=SOURCE, help=f"Spark source to read with (default: {SOURCE})")
    add("--master", help="Spark master (default: this machine, unless started by spark-submit)")
    add("--conf", action="append", default=[], metavar="NAME=VALUE", help="Spark setting")
    file = partial(path_of, "--progress-file")
    add("--progress-file", type=file, metavar="FILE", help="append one JSON line per finished micro-batch")
    add("--metrics", metavar="HOST:PORT", help="serve metrics of source and query there (default: nowhere)")
    return parser


def job_of(given: Namespace) -> Job:
    """Check what `job_parser` takes.

    Raises:
        ConfigError: names option, value and remedy.

    Runs: main thread; looks at the file system.
    """
    parse_bootstrap_servers(given.bootstrap_servers, option="--bootstrap-servers")
    if given.available_now and given.trigger_interval is not None:
        raise ConfigError("--available-now ends when all is read; leave out --trigger-interval")
    topic = topic_name("--topic", given.topic)
    return Job(
        topic=topic,
        output=output_of(given),
        checkpoint=local_folder(given.checkpoint),
        source=_source(given, topic),
        source_format=given.format,
        trigger_interval_seconds=duration_option(
            given.trigger_interval or "1 second", option="--trigger-interval", above_zero=False
        ),
        available_now=given.available_now,
        master=given.master,
        spark_options=pairs(given.conf, "--conf"),
        progress_file=given.progress_file and given.progress_file.absolute(),
        metrics=parse_bootstrap_servers(given.metrics, option="--metrics")[0] if given.metrics else None,
    )


def _source(given: Namespace, topic: str) -> tuple[tuple[str, str], ...]:
    chosen: dict[str, object | None] = {
        "kafka.bootstrap.servers": given.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": given.starting_offsets,
        "maxOffsetsPerTrigger": positive(given.max_offsets_per_trigger, "--max-offsets-per-trigger"),
    }
    if given.format == SOURCE:
        chosen |= {
            # Said aloud because there is event time: rows of a parked partition come late. They are still counted
            # while the outage is shorter than the allowed lateness, whereas `hold` would stop everybody's count for
            # one partition.
            "onParked": given.on_parked,
            "sourceId": given.source_id,
            "stateDir": given.state_dir and given.state_dir.absolute(),
        }
    named = tuple((name, str(value)) for name, value in chosen.items() if value is not None)
    return (*named, *pairs(given.source_option, "--source-option"))


def add_clock(parser: Parser, *, lateness: str) -> None:
    """Add what `clock_of` reads.

    Runs: main thread.
    """
    add = parser.add_argument
    add("--allowed-lateness", default=lateness, metavar="TIME", help=f"how late one may come (default: {lateness})")
    add(
        "--clock-skew",
        default="5 minutes",
        metavar="TIME",
        help="how far ahead of the driver's clock one may be, before it is a dead letter (default: 5 minutes)",
    )


def clock_of(given: Namespace) -> Clock:
    """Read what `add_clock` added. Raises ConfigError where it is no duration."""
    return Clock(
        allowed_lateness_seconds=duration_option(given.allowed_lateness, option="--allowed-lateness", above_zero=False),
        skew_seconds=duration_option(given.clock_skew, option="--clock-skew", above_zero=False),
    )
