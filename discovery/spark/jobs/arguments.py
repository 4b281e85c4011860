"""Command-line options that the jobs with a Kafka output share."""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from discovery.config.durations import duration_option
from discovery.config.option_values import topic_name
from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress, parse_bootstrap_servers
from discovery.spark.jobs.letters import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What a job shows of itself while it runs."""

    progress_file: Path | None = None
    metrics: BrokerAddress | None = None
    """Where Prometheus finds them."""
    state_dir: Path | None = None
    """The source's."""


_UNWATCHED = Watching()


class Parser(argparse.ArgumentParser):
    """Raises instead of printing the usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{message}; see --help")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every job from topic to topic needs to know."""

    bootstrap_servers: str
    topic: str
    output_topic: str
    sink_id: str
    lanes: int
    checkpoint: str
    dead_letter_topic: str | None = None
    trigger_interval_seconds: float = 1.0
    available_now: bool = False
    starting_offsets: str = "earliest"
    source_options: tuple[tuple[str, str], ...] = ()
    sink_options: tuple[tuple[str, str], ...] = ()
    master: str | None = None
    spark_options: tuple[tuple[str, str], ...] = ()
    watching: Watching = _UNWATCHED
    create_topics: bool = False

    @property
    def sink(self) -> dict[str, str]:
        """The options of the sink."""
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "sinkId": self.sink_id,
            "lanes": str(self.lanes),
            **dict(self.sink_options),
        }

    @property
    def source(self) -> dict[str, str]:
        """The options of the source."""
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": self.topic,
            "startingOffsets": self.starting_offsets,
            **dict(self.source_options),
        }


def add_common(parser: Parser, *, sink_id: str, dead_letters: str) -> None:
    """Add what `job_of` reads.

    Args:
        parser: Takes it.
        sink_id: Of the job.
        dead_letters: What becomes of records that cannot be used, where no topic is named for them.

    Runs: main thread.
    """
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to begin with")
    add("--topic", required=True, help="topic to read")
    add("--output-topic", required=True, help="topic to write; it must exist")
    add("--dead-letter-topic", metavar="TOPIC", help=f"topic of records that cannot be used (default: {dead_letters})")
    add("--checkpoint", required=True, metavar="DIR", help="Spark's recovery folder; one per sink id")
    add("--sink-id", default=sink_id, help=f"name of the sink, of this query alone (default: {sink_id})")
    add("--lanes", default="1", metavar="N", help="tasks that write, one transaction each (default: 1)")
    add("--trigger-interval", metavar="TIME", help="pause between micro-batches (default: 1 second)")
    add("--available-now", action="store_true", help="read what is there, then end")
    add("--starting-offsets", default="earliest", metavar="earliest|latest|JSON", help="where a new query begins")
    add("--source-option", action="append", default=[], metavar="NAME=VALUE", help="any other option of the source")
    add("--sink-option", action="append", default=[], metavar="NAME=VALUE", help="any other option of the sink")
    add("--master", help="Spark master (default: this machine, unless started by spark-submit)")
    add("--create-topics", action="store_true", help="make both topics where they are missing, 3 partitions each")
    add("--conf", action="append", default=[], metavar="NAME=VALUE", help="Spark setting")
    add_watching(parser)


def add_watching(parser: Parser) -> None:
    """Add what `watching_of` reads.

    Runs: main thread.
    """
    parser.add_argument(
        "--progress-file", type=Path, metavar="FILE", help="append one JSON line per finished micro-batch"
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve metrics of source and query there (default: nowhere)",
    )


def watching_of(given: Namespace, *, state_dir: str | Path | None) -> Watching:
    """Read what `add_watching` added. Raises ConfigError where it is no address."""
    address = parse_bootstrap_servers(given.metrics, option="--metrics")[0] if given.metrics else None
    return Watching(
        progress_file=given.progress_file and given.progress_file.absolute(),
        metrics=address,
        state_dir=None if state_dir is None else Path(state_dir),
    )


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


def job_of(given: Namespace) -> Job:
    """Check what `add_common` added.

    Raises:
        ConfigError: names option, value and remedy.

    Runs: main thread.
    """
    parse_bootstrap_servers(given.bootstrap_servers, option="--bootstrap-servers")
    if given.available_now and given.trigger_interval is not None:
        raise ConfigError("--available-now ends when all is read; leave out --trigger-interval")
    if given.topic == given.output_topic:
        raise ConfigError(f"--output-topic: {given.output_topic!r} is what is read; name another topic")
    return Job(
        bootstrap_servers=given.bootstrap_servers,
        topic=topic_name("--topic", given.topic),
        output_topic=topic_name("--output-topic", given.output_topic),
        dead_letter_topic=given.dead_letter_topic and topic_name("--dead-letter-topic", given.dead_letter_topic),
        sink_id=given.sink_id,
        lanes=positive(given.lanes, "--lanes") or 1,
        checkpoint=local_folder(given.checkpoint),
        trigger_interval_seconds=duration_option(
            given.trigger_interval or "1 second", option="--trigger-interval", above_zero=False
        ),
        available_now=given.available_now,
        starting_offsets=given.starting_offsets,
        source_options=pairs(given.source_option, "--source-option"),
        sink_options=pairs(given.sink_option, "--sink-option"),
        master=given.master,
        spark_options=pairs(given.conf, "--conf"),
        watching=watching_of(given, state_dir=dict(pairs(given.source_option, "--source-option")).get("stateDir")),
        create_topics=given.create_topics,
    )


def positive(text: str | None, option: str) -> int | None:
    """Return a whole number above 0. Raises ConfigError where it is none."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"{option}: {text!r} is not a whole number above 0")
    return int(text)


def pairs(texts: Sequence[str], option: str) -> tuple[tuple[str, str], ...]:
    """Part NAME=VALUE. Raises ConfigError where there is no name or no value."""
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise ConfigError(f"{option}: {text!r} has no name or no value; write NAME=VALUE")
    return tuple((text.partition("=")[0], text.partition("=")[2]) for text in texts)


def local_folder(text: str) -> str:
    """Make a plain path absolute; leave `hdfs://...` and the like to Spark. Raises ConfigError for a file."""
    if "://" in text:
        return text
    path = Path(text).absolute()
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--checkpoint: {path} is a file; name a folder")
    return str(path)
