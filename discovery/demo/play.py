"""One whole demo: bring the cluster up, play the scenario, measure, report, clean up."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from discovery.core.errors import StateError
from discovery.demo.recording import Mark, Moment, Recording
from discovery.demo.report.collect import collect
from discovery.demo.report.live_view import View, open_view
from discovery.demo.report.outcome import Figures, Goal, goals
from discovery.demo.scenario import Scenario
from discovery.demo.settings import DemoSettings
from discovery.demo.stage import Stage
from discovery.localkafka.jars.download import kafka_jars

_START_SECONDS = 180.0
_NEEDED_BYTES = 512 << 20
"""Twelve brokers' logs of one demo and the jobs' checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything the report is made of."""

    settings: DemoSettings
    figures: Figures
    goals: tuple[Goal, ...]
    recording: Recording
    failure: str | None
    """What stopped the demo before its end; None: it was played to the end."""

    @property
    def broken(self) -> tuple[Goal, ...]:
        """The promises whose breach fails the demo: about what is right always, about seconds with `strict`."""
        return tuple(goal for goal in self.goals if not goal.met and (self.settings.strict or not goal.timed))

    @property
    def late(self) -> tuple[Goal, ...]:
        """Goals in seconds that this machine missed, which does not fail the demo."""
        return tuple(goal for goal in self.goals if not goal.met and goal not in self.broken)

    @property
    def ok(self) -> bool:
        """Tell whether the demo came to its end with nothing broken."""
        return self.failure is None and not self.broken


@contextmanager
def played(settings: DemoSettings, console: Console) -> Iterator[tuple[Stage, Outcome]]:
    """Play a demo; while the context is open the stage still stands, after it nothing is left of it.

    Raises:
        DiscoveryError: the cluster could not be started.

    Runs: main thread; blocks two to four minutes, more for the first download.
    """
    from discovery.spark.fetch.native.code import code  # noqa: PLC0415 - an extra: the other commands do without

    began = time.monotonic()
    require_space(Path(tempfile.gettempdir()))
    with ThreadPoolExecutor(1) as meanwhile:
        meanwhile.submit(code)  # else the first job's first task compiles it; without a compiler workers do without
        kafka_jars()
    download_seconds = time.monotonic() - began
    folder = Path(tempfile.mkdtemp(prefix="kafka-discovery-demo-"))
    stage = Stage(settings, folder)
    try:
        yield stage, _play(stage, console, download_seconds=download_seconds)
    finally:
        stage.close()
        shutil.rmtree(folder, ignore_errors=True)


def require_space(folder: Path, *, needed_bytes: int = _NEEDED_BYTES) -> None:
    """See that a demo's files fit, before minutes are spent on it.

    Raises:
        StateError: they do not.

    Runs: anywhere; asks the file system.
    """
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise StateError(
            f"{folder} has {free >> 20} MB free and a demo needs {needed_bytes >> 20} MB there:"
            " free some space or set TMPDIR to another folder"
        )


def _play(stage: Stage, console: Console, *, download_seconds: float) -> Outcome:
    began, recording = time.monotonic(), Recording()
    with open_view(stage.settings, console) as view:
        _raise_curtain(stage, recording, view)
        scenario = Scenario(stage, recording, view)
        scenario.run()
    for run in (stage.main, stage.single):
        run.close()
    figures = collect(
        stage,
        scenario,
        recording,
        demo_seconds=time.monotonic() - began,
        download_seconds=download_seconds,
    )
    return Outcome(
        settings=stage.settings,
        figures=figures,
        goals=goals(figures),
        recording=recording,
        failure=scenario.failure,
    )


def _raise_curtain(stage: Stage, recording: Recording, view: View) -> None:
    """Start the brokers and make the two topics."""
    settings = stage.settings
    view.begin(f"Start {settings.brokers} brokers in 3 racks", 10 + 2.5 * settings.brokers)
    stage.cluster.start(deadline_seconds=_START_SECONDS)
    stage.cluster.create_topic(
        stage.main.topic,
        partitions=settings.partitions,
        replication_factor=3,
        # One rack may die and producing goes on.
        config={"min.insync.replicas": "2"},
        deadline_seconds=60,
    )
    if stage.sidecar is not None:
        stage.sidecar.start(stage.cluster.bootstrap_servers)
        stage.main.follows = stage.single.follows = stage.sidecar.url
    # As many partitions as brokers: Kafka gives each broker one.
    stage.cluster.create_topic(stage.single.topic, partitions=settings.brokers, deadline_seconds=60)
    text = f"{settings.brokers} brokers are up; topic {stage.main.topic} has {settings.partitions} partitions."
    mark = Mark(wall=time.time(), moment=Moment.NOTE, text=text)
    recording.mark(mark)
    view.say(mark)
