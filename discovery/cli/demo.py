"""`kafka-discovery demo`: the incident on this machine, watched live, with a report at the end."""

import contextlib
import errno
import importlib.util
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from discovery.core.errors import StateError
from discovery.demo.play import Outcome, played
from discovery.demo.report import story
from discovery.demo.report.write import measured, sign, to_json, write_report
from discovery.demo.settings import fast as fast_settings
from discovery.demo.settings import full as full_settings
from discovery.demo.stage import Stage
from discovery.store.files import FileLock

_INTERRUPTED = 130
_DEFAULT_FOLDER = Path("build/demo")


def demo(
    *,
    brokers: Annotated[
        int | None, typer.Option(help="How many brokers, in 3 racks (default: 12; with --fast 6).")
    ] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="Fewer brokers and shorter waits, for automatic checks.")
    ] = False,
    sidecar: Annotated[
        bool, typer.Option("--sidecar", help="The jobs follow a service instead of looking for themselves.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail where a goal in seconds is missed, too.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the brokers up at the end, to look around.")] = False,
    output_dir: Annotated[Path, typer.Option(help="Where the report goes.")] = _DEFAULT_FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON when it is over.")] = False,
) -> None:
    """Kill four of twelve brokers under a running Spark job and count every event."""
    if importlib.util.find_spec("pyspark") is None:  # before brokers are started for jobs that cannot be
        raise ModuleNotFoundError(name="pyspark")
    settings = (fast_settings if fast else full_settings)(brokers, sidecar=sidecar, strict=strict)
    console = Console(stderr=as_json)
    try:
        with _terminated_like_interrupted(), _disk_errors():
            _reserve(output_dir)
            with played(settings, console) as (stage, outcome):
                write_report(outcome, stage.main.history().batches, output_dir)
                _summarise(outcome, output_dir, console)
                if as_json:
                    typer.echo(json.dumps(to_json(outcome)))
                if keep:
                    _look_around(stage, console)
    except KeyboardInterrupt:
        console.print("interrupted; everything the demo started is gone")
        raise typer.Exit(_INTERRUPTED) from None
    if not outcome.ok:
        raise typer.Exit(1)


def _reserve(folder: Path) -> None:
    """Keep the report's folder to this process: of two demos the later would overwrite the other's."""
    try:
        FileLock(folder / ".lock").acquire()
    except StateError as error:
        raise StateError(
            f"another demo is writing its report: {error}; wait for its end, or choose another --output-dir"
        ) from error


def _summarise(outcome: Outcome, folder: Path, console: Console) -> None:
    console.print()
    colour = "green" if outcome.ok else "red"
    console.print(story.headline(outcome.figures, outcome.broken, outcome.failure), style=f"bold {colour}")
    for goal in outcome.goals:
        style = "green" if goal.met else "bold red" if goal in outcome.broken else "yellow"
        line = f"  {sign(outcome, goal)} {goal.promise}: {measured(outcome, goal)}"
        console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
    if outcome.failure:
        console.print(outcome.failure, style="red", markup=False)
    took = f"{outcome.figures.demo_seconds:.0f} s; {story.machine(outcome.figures)}"
    console.print(f"The report: {folder / 'report.html'} ({took})", highlight=False, soft_wrap=True)


def _look_around(stage: Stage, console: Console) -> None:
    """Wait for Ctrl-C while the brokers and files are there."""
    console.print(f"brokers: {stage.cluster.bootstrap_servers}", highlight=False)
    console.print(f"results: {stage.main.database}", highlight=False)
    console.print(f"files and logs: {stage.folder} and {stage.cluster.folder}", highlight=False)
    console.print("Ctrl-C ends it and removes everything.")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM clean up as Ctrl-C does."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    """Turn what a disk refuses into one line."""
    try:
        yield
    except OSError as error:
        if isinstance(error, ConnectionError):
            raise
        remedy = "free some space" if error.errno == errno.ENOSPC else "choose another --output-dir"
        raise StateError(
            f"cannot write {error.filename or 'a file of the demo'}: {error.strerror}; {remedy}"
        ) from error
