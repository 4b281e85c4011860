"""The command line of the daily-active-users job, read into one frozen value."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from discovery.core.errors import ConfigError
from discovery.core.model import parse_bootstrap_servers
from spark_jobs.jobs.dau_store import parse_output

_UNIT_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNIT_WORDS = {"millisecond": "ms", "second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d"}
_DURATION = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DauOptions:
    """Everything the job needs to know."""

    bootstrap_servers: str
    topic: str
    output: Path
    checkpoint: str
    allowed_lateness_seconds: float = 86_400.0
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
    progress_file: Path | None = None


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing the usage and leaving."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see --help")


def parse_arguments(arguments: Sequence[str]) -> DauOptions:
    """Read the command line.

    Raises:
        ConfigError: an option is unknown, missing, wrong or in conflict; names option, value and remedy.
        SystemExit: `--help` was asked for.

    Runs: main thread; looks at the file system.
    """
    given = _parser().parse_args(arguments)
    parse_bootstrap_servers(given.bootstrap_servers, option="--bootstrap-servers")
    if not _TOPIC.fullmatch(given.topic):
        raise ConfigError(f"--topic: {given.topic!r} is not a topic name; letters, digits, '.', '_' and '-', up to 249")
    if given.available_now and given.trigger_interval is not None:
        raise ConfigError("--available-now ends when all is read; leave out --trigger-interval")
    return DauOptions(
        bootstrap_servers=given.bootstrap_servers,
        topic=given.topic,
        output=parse_output(given.output),
        checkpoint=_local_folder(given.checkpoint),
        allowed_lateness_seconds=_seconds(given.allowed_lateness, "--allowed-lateness"),
        trigger_interval_seconds=_seconds(given.trigger_interval or "1 second", "--trigger-interval"),
        available_now=given.available_now,
        starting_offsets=given.starting_offsets,
        max_offsets_per_trigger=_positive(given.max_offsets_per_trigger, "--max-offsets-per-trigger"),
        on_parked=given.on_parked,
        source_id=given.source_id,
        state_dir=given.state_dir and given.state_dir.absolute(),
        source_format=given.format,
        source_options=_pairs(given.source_option, "--source-option"),
        master=given.master,
        spark_options=_pairs(given.conf, "--conf"),
        progress_file=given.progress_file and given.progress_file.absolute(),
    )


def _parser() -> _Parser:
    parser = _Parser(
        prog="dau", description="Count daily active users, exactly, from a Kafka topic.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to begin with")
    add("--topic", required=True, help="topic with JSON events {event_id, user_id, ip, ts}")
    add("--output", required=True, metavar="sqlite:///FILE", help="where the results go")
    add("--checkpoint", required=True, metavar="DIR", help="Spark's recovery folder; one per output")
    add("--allowed-lateness", default="1 day", metavar="TIME", help="how late an event may come (default: 1 day)")
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
    add("--progress-file", type=Path, metavar="FILE", help="append one JSON line per finished micro-batch")
    return parser


def _seconds(text: str, option: str) -> float:
    found = _DURATION.fullmatch(text.lower())
    unit = found and _UNIT_WORDS.get(found[2].removesuffix("s"), found[2])
    if not found or unit not in _UNIT_MILLISECONDS:
        raise ConfigError(f"{option}: {text!r} is not a duration; write for example '500ms', '10 seconds' or '1 day'")
    return int(found[1]) * _UNIT_MILLISECONDS[unit] / 1_000


def _positive(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"{option}: {text!r} is not a whole number above 0")
    return int(text)


def _pairs(texts: Sequence[str], option: str) -> tuple[tuple[str, str], ...]:
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise ConfigError(f"{option}: {text!r} has no name or no value; write NAME=VALUE")
    return tuple((text.partition("=")[0], text.partition("=")[2]) for text in texts)


def _local_folder(text: str) -> str:
    """Make a plain path absolute; leave `hdfs://...` and the like to Spark."""
    if "://" in text:
        return text
    path = Path(text).absolute()
    if path.exists() and not path.is_dir():
        raise ConfigError(f"--checkpoint: {path} is a file; name a folder")
    return str(path)
