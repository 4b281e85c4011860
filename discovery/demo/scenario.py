"""The incident, step by step. Each step does one thing to the cluster, waits for what must follow, and marks both."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from discovery.core.errors import DiscoveryError
from discovery.core.plural import counted
from discovery.demo.processes import ProcessError
from discovery.demo.recording import Mark, Moment, Recording
from discovery.demo.report.live_view import View
from discovery.demo.report.measure import first_batch_after, first_seen_wall
from discovery.demo.report.story import listed
from discovery.demo.sidecar import embedded_loop_starts, follows
from discovery.demo.stage import Stage, StepFailedError, TopicRun, lag

_LATENESS = ("--allowed-lateness", "2 days")
"""The demo squeezes days into minutes: an outage of seconds makes events hours late."""
_PLANNED_SECONDS = 150.0
"""In so much time the simulated days pass."""
_SAMPLE_SECONDS = 0.25
_PATIENCE_SECONDS = 300.0
"""So late a step may end: on a busy machine a Java process takes minutes to start."""
_SETTLE_SECONDS = 45.0
_SETTLED_SECONDS, _SETTLED_BATCHES = 2.0, 5
"""The job keeps up when it is at most so far behind, after so many batches."""
_PARKED = "partitions parked: "
"""How the source begins the sentence that names all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One act: its title, how long it is expected to take, and what it does."""

    title: str
    planned_seconds: float
    act: Callable[[], None]


class Scenario:
    """Plays the steps on a stage whose cluster runs. `failure` holds what stopped it, if something did."""

    def __init__(self, stage: Stage, recording: Recording, view: View) -> None:
        self._stage, self._recording, self._view = stage, recording, view
        self._settings = stage.settings
        self._over = threading.Event()
        self.failure: str | None = None
        self.created_wall: float | None = None
        """When the cluster had accepted the new partitions."""
        self.job_started_wall: float | None = None
        self.restarted_wall: float | None = None
        self.single_started_wall: float | None = None
        self.single_flowing_wall: float | None = None
        self.returned_wall: float | None = None
        self.single_complete_wall: float | None = None
        self.drained = False
        """The job has read everything the generator sent: only then its output can be compared."""
        self.killed: tuple[int, ...] = ()
        self.single_named: tuple[int, ...] = ()
        """What the one-replica query named as parked while the brokers were dead."""
        self._single_leaders: dict[int, int] = {}

    def steps(self) -> Sequence[Step]:
        """Return the plan."""
        s = self._settings
        return (
            Step(title="Start the job with all brokers listed", planned_seconds=25 + s.warm_seconds, act=self._begin),
            Step(title="Everything is well", planned_seconds=s.steady_seconds, act=self._steady),
            Step(
                title=f"Grow the topic from {s.partitions} to {s.grown_partitions} partitions",
                planned_seconds=2 + s.after_partitions_seconds,
                act=self._grow,
            ),
            Step(title=f"Kill {s.per_rack} brokers at once", planned_seconds=s.after_kill_seconds, act=self._kill),
            Step(
                title="Freeze two brokers, then thaw them",
                planned_seconds=s.frozen_seconds + s.after_thaw_seconds,
                act=self._freeze,
            ),
            Step(
                title="Restart the job with a list of dead brokers only",
                planned_seconds=15 + s.after_restart_seconds,
                act=self._restart,
            ),
            Step(title="Read a topic with one replica and dead leaders", planned_seconds=20, act=self._single),
            Step(title="Stop producing and count to the end", planned_seconds=6, act=self._drain),
            Step(title="Bring the dead brokers back", planned_seconds=15, act=self._return),
        )

    def run(self) -> None:
        """Play everything; a step that fails ends it, with its reason in `failure`.

        Runs: main thread; blocks two to four minutes.
        """
        sampler = threading.Thread(target=self._sample, name="sampler", daemon=True)
        try:
            sampler.start()
            steps = self.steps()
            for place, step in enumerate(steps, start=1):
                self._view.begin(f"{place} of {len(steps)}: {step.title}", step.planned_seconds)
                step.act()
        except DiscoveryError as error:
            self.failure = str(error)
            self._mark(Moment.NOTE, f"The demo stops here: {error}")
            self._drain_what_runs()
        finally:
            self._over.set()
            if sampler.is_alive():  # not where Ctrl-C came before it had begun
                sampler.join(10)

    # -- steps --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        s, stage = self._settings, self._stage
        audience = ("--malformed-share", str(s.malformed_share), "--users", str(s.users))
        writer = stage.single.start_generator(
            "--rate", "3000", "--count", str(s.single_records), "--days", "0.5", "--seed", "2", *audience
        )
        speed = s.days * 86_400 / _PLANNED_SECONDS
        stage.main.start_generator("--rate", str(s.rate), "--days", str(s.days), "--speed", str(speed), *audience)
        if writer.wait(timeout_seconds=_PATIENCE_SECONDS):
            raise ProcessError(f"the {writer.name} could not write everything: {writer.last_words()}")
        self._single_leaders = stage.leaders(stage.single.topic)
        stage.watch(s.warm_seconds)
        self.job_started_wall = time.time()
        stage.main.start_job(stage.cluster.bootstrap_servers, *_LATENESS)
        stage.wait_until(
            lambda: bool(stage.main.history().batches),
            deadline_seconds=_PATIENCE_SECONDS,
            otherwise="the job has not counted a row",
        )
        self._mark(Moment.STARTED, f"The job runs and knows all {s.brokers} brokers.", "job runs")

    def _steady(self) -> None:
        """Let the job warm up: what follows is about brokers, not about a Java machine's first minutes."""
        stage, enough = self._stage, self._settings.rate * _SETTLED_SECONDS
        with contextlib.suppress(StepFailedError):
            stage.wait_until(
                lambda: (
                    len(stage.main.history().batches) >= _SETTLED_BATCHES
                    and lag(stage.main.produced().end_offsets, stage.main.history().end_offsets) <= enough
                ),
                deadline_seconds=_SETTLE_SECONDS,
                otherwise="the job still catches up",
            )
        stage.watch(self._settings.steady_seconds)

    def _grow(self) -> None:
        s, stage = self._settings, self._stage
        stage.cluster.add_partitions(stage.main.topic, s.grown_partitions, await_leaders=False)
        self.created_wall = time.time()
        self._mark(
            Moment.PARTITIONS,
            f"The topic grew from {s.partitions} to {s.grown_partitions} partitions.",
            f"{s.partitions} → {s.grown_partitions} partitions",
        )
        fresh = [str(partition) for partition in range(s.partitions, s.grown_partitions)]
        stage.wait_until(
            lambda: all(first_seen_wall(stage.main.history().batches, partition) for partition in fresh),
            deadline_seconds=_PATIENCE_SECONDS,
            otherwise="not all new partitions have been read",
        )
        self._mark(Moment.NOTE, "The running query reads all new partitions.")
        stage.watch(s.after_partitions_seconds)

    def _kill(self) -> None:
        doomed = self._settings.doomed
        self._mark(
            Moment.KILLED,
            f"Brokers {listed(doomed)}, a whole rack, were killed with SIGKILL.",
            f"{len(doomed)} brokers killed",
        )
        self._stage.cluster.kill(doomed)
        self.killed = doomed
        self._stage.watch(self._settings.after_kill_seconds)

    def _freeze(self) -> None:
        freezing, stage = self._settings.freezing, self._stage
        self._mark(
            Moment.FROZEN, f"Brokers {listed(freezing)} froze: they accept connections and say nothing.", "2 frozen"
        )
        stage.cluster.pause(freezing)
        stage.watch(self._settings.frozen_seconds)
        stage.cluster.resume(freezing)
        self._mark(Moment.THAWED, f"Brokers {listed(freezing)} woke up again.", "thawed")
        stage.watch(self._settings.after_thaw_seconds)

    def _restart(self) -> None:
        stage, job = self._stage, self._stage.main.job
        if job is not None and (code := job.stop()):
            raise ProcessError(f"the job did not stop cleanly: exit code {code}: {job.last_words()}")
        self._mark(Moment.STOPPED, "The job was stopped on purpose.", "job stopped")
        dead = stage.addresses(self.killed)
        self.restarted_wall = time.time()
        self._mark(
            Moment.RESTARTED, f"The job was started with a list that names only the {len(self.killed)} dead brokers."
        )
        stage.main.start_job(dead, *_LATENESS)
        began = self.restarted_wall
        stage.wait_until(
            lambda: first_batch_after(stage.main.history().batches, began) is not None,
            deadline_seconds=_PATIENCE_SECONDS,
            otherwise="the job on the dead list has not counted a row",
        )
        knows = "the service knows" if self._settings.sidecar else "it remembered"
        self._mark(Moment.NOTE, f"The job counts again: {knows} the living brokers.", "job back")
        stage.watch(self._settings.after_restart_seconds)

    def _single(self) -> None:
        stage = self._stage
        self.single_started_wall = time.time()
        self._mark(
            Moment.SINGLE,
            f"A query started on a topic with one replica; {len(self.leaderless())} of its"
            f" {self._settings.brokers} partitions have no living broker.",
            "one-replica query",
        )
        stage.single.start_job(stage.cluster.bootstrap_servers, *_LATENESS)
        dead = self.leaderless()
        stage.wait_until(
            lambda: _lag_without(stage.single, dead) == 0 and bool(stage.single.history().batches),
            deadline_seconds=_PATIENCE_SECONDS,
            otherwise="the partitions that have a living broker are not read",
        )
        self.single_flowing_wall = stage.single.history().batches[-1].finished_wall
        stage.wait_until(
            lambda: self._named() == dead,
            deadline_seconds=_PATIENCE_SECONDS,
            otherwise=f"the query did not name the partitions {list(dead)} as parked",
        )
        self._mark(Moment.NOTE, f"The others were read to the end; the query names the parked ones: {listed(dead)}.")

    def _drain(self) -> None:
        stage, generator = self._stage, self._stage.main.generator
        if generator is not None and generator.stop(timeout_seconds=_PATIENCE_SECONDS):
            raise ProcessError(f"not every record was acknowledged: {generator.last_words()}")
        self._mark(Moment.NOTE, "The generator stopped; every record it sent is acknowledged.")
        stage.wait_until(
            lambda: lag(stage.main.produced().end_offsets, stage.main.history().end_offsets) == 0,
            deadline_seconds=_PATIENCE_SECONDS,
            otherwise="the job has not read everything",
        )
        if stage.main.job is not None:
            stage.main.job.stop()
        self.drained = True
        self._mark(Moment.NOTE, "The job has counted everything.")

    def _drain_what_runs(self) -> None:
        """After a failed step: judge at least the count, if the job still can."""
        job, generator = self._stage.main.job, self._stage.main.generator
        if job is None or generator is None or job.exit_code is not None or self.drained:
            return
        with contextlib.suppress(DiscoveryError):
            self._drain()

    def _return(self) -> None:
        stage = self._stage
        stage.cluster.restart(self.killed)
        self.returned_wall = time.time()
        self._mark(Moment.RETURNED, f"Brokers {listed(self.killed)} came back.", "brokers back")
        stage.wait_until(
            lambda: _lag_without(stage.single, ()) == 0,
            deadline_seconds=_PATIENCE_SECONDS,
            otherwise="the parked partitions were not read after their brokers came back",
        )
        self.single_complete_wall = stage.single.history().batches[-1].finished_wall
        if stage.single.job is not None:
            stage.single.job.stop()
        self._mark(Moment.NOTE, "What was parked has been read, where it had stopped.")
        if self._settings.sidecar:
            self._judge_following()

    def _judge_following(self) -> None:
        """Say whether the jobs really followed the service: by themselves they would have counted the same."""
        logs = (self._stage.main.job_log, self._stage.single.job_log)
        if not all(follows(log) for log in logs):
            raise StepFailedError("a job never followed the service, so this was not a demo of it")
        looks = sum(embedded_loop_starts(log) for log in logs)
        by_themselves = (
            f"looked for themselves {counted(looks, 'time')} meanwhile" if looks else "never looked for themselves"
        )
        self._mark(Moment.NOTE, f"Both jobs followed the service, and {by_themselves}.")

    # -- facts --------------------------------------------------------------------------------------------------

    def leaderless(self) -> tuple[int, ...]:
        """Return the partitions of the one-replica topic whose only broker is dead."""
        return tuple(sorted(p for p, broker_id in self._single_leaders.items() if broker_id in self.killed))

    def _named(self) -> tuple[int, ...]:
        text = self._stage.single.job_log.read_text(errors="replace")
        self.single_named = parked_partitions(text, self._stage.single.topic)
        return self.single_named

    def _sample(self) -> None:
        main = self._stage.main
        while not self._over.wait(_SAMPLE_SECONDS):
            sample = self._stage.sample(main.produced(), main.history())
            self._recording.sample(sample)
            self._view.show(sample)

    def _mark(self, moment: Moment, text: str, label: str = "") -> None:
        mark = Mark(wall=time.time(), moment=moment, text=text, label=label)
        self._recording.mark(mark)
        self._view.say(mark)


def parked_partitions(log: str, topic: str) -> tuple[int, ...]:
    """Find the partitions a source named in its log as parked, by its last word on the matter. Pure."""
    said = [line for line in log.splitlines() if _PARKED in line]
    names = re.findall(rf"\b{re.escape(topic)}-(\d+) \(", said[-1]) if said else []
    return tuple(sorted({int(number) for number in names}))


def _lag_without(run: TopicRun, partitions: Sequence[int]) -> int:
    left_out = {str(partition) for partition in partitions}
    produced = {p: end for p, end in run.produced().end_offsets.items() if p not in left_out}
    return lag(produced, run.history().end_offsets)
