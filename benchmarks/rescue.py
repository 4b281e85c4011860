"""Jobs that do not change, with help and without: `make bench-rescue`; a case: `python -m benchmarks.rescue restart`.

Every job is the same program on Spark's own source, submitted with `spark-submit`; only who starts it differs.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import fill, load
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.jars.download import native_connector_jars
from discovery.localkafka.properties import ClusterSettings
from discovery.spark.launch.python import worker_python
from discovery.spark.supervise.classify import classify
from tests.support.endpoint import endpoint_to
from tests.support.results import run_cases, say

TOPIC = "events"
PARTITIONS = 6
DEAD_WATCH_SECONDS = 240.0
FIRST_BATCH_SECONDS = 240.0
QUIET_AFTER_SECONDS = 35.0
"""Until then a start has loaded its classes."""
JOB = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
frame = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "{servers}")
    .option("subscribe", "{topic}")
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    frame.writeStream.format("noop")
    .option("checkpointLocation", "{checkpoint}")
    .trigger(processingTime="500 milliseconds")
    .start()
)
query.awaitTermination()
"""
Result = dict[str, Any]


class Submitted:
    """One `spark-submit` of the job, under supervision or not, and what became of it."""

    def __init__(self, folder: Path, servers: str, *, protected: bool) -> None:
        self.folder, self.protected = folder, protected
        self.checkpoint = folder / "checkpoint"
        self.failed: int | None = None
        """How many of its starts failed; None: it was not stopped yet."""
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / "job.py"
        script.write_text(JOB.format(servers=servers, topic=TOPIC, checkpoint=self.checkpoint))
        submit = [
            str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", "--driver-memory", "512m",
            "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
            "--conf", "spark.log.level=ERROR",
            "--jars", ",".join(map(str, native_connector_jars())), str(script),
        ]  # fmt: skip
        run = [
            sys.executable, "-c", "from discovery.cli.app import main; main()", "run",
            "--state-dir", str(folder / "state"), "--report", str(self.report_file), "--",
        ]  # fmt: skip
        self.began = time.monotonic()
        self.known = self._commits()
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*run, *submit] if protected else submit,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": worker_python()},
                start_new_session=True,
            )

    @property
    def report_file(self) -> Path:
        """Where `run` writes its report."""
        return self.folder / "report.json"

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def first_batch_seconds(self, timeout_seconds: float) -> float | None:
        """Wait for the first batch this run commits; None: it died, or time is up."""
        while time.monotonic() - self.began < timeout_seconds and self.alive:
            if self._commits() - self.known:
                return round(time.monotonic() - self.began, 1)
            time.sleep(0.05)
        return None

    def batches(self) -> int:
        """Return how many batches this run has committed."""
        return len(self._commits() - self.known)

    def dies_after_seconds(self, timeout_seconds: float) -> float | None:
        """Wait for its end; None: it still ran when time was up."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_seconds)
            return round(time.monotonic() - self.began, 1)
        return None

    def stop(self) -> int:
        """End it as an operator would; keeps how many of its starts had failed until then."""
        if self.failed is None and not self.protected:
            self.failed = self._failures()
        code = self._end()
        if self.failed is None:
            self.failed = self._failures()  # the report is written at the end
        return code

    def _end(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()

    def _failures(self) -> int:
        """Return how many of its starts have failed; one that brought no batch has."""
        nothing = int(not self.batches())
        if self.protected:
            report = json.loads(self.report_file.read_text()) if self.report_file.exists() else {"failures": 1}
            return int(report["failures"]) or nothing
        died = not self.alive and self.process.returncode not in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        return int(died) or nothing

    def died_of(self) -> str:
        """Return the telling line of its log."""
        found = classify(self.log.read_text(errors="replace"), exit_code=self.process.returncode)
        return f"{found.failure.value}: {found.evidence}"

    def _commits(self) -> set[str]:
        folder = self.checkpoint / "commits"
        return {file.name for file in folder.glob("[0-9]*")} if folder.exists() else set()


def restart() -> Result:
    """A checkpoint with an unfinished batch, and a list of brokers that were removed."""
    removed = (1, 2, 3)
    with tempfile.TemporaryDirectory(prefix="rescue-") as name, LocalKafka(ClusterSettings(brokers=6)) as cluster:
        folder = Path(name)
        cluster.create_topic(TOPIC, PARTITIONS, replication_factor=3)
        fill(cluster.bootstrap_servers, TOPIC, PARTITIONS, 100)
        before = Submitted(folder / "before", cluster.bootstrap_servers, protected=True)
        usual = before.first_batch_seconds(FIRST_BATCH_SECONDS)
        before.stop()
        _unfinish(before.checkpoint)
        listed = ",".join(cluster.address(broker) for broker in removed)
        cluster.reassign_off(removed)
        state = folder / "endpoint-state"
        with endpoint_to(listed, state_dir=state):  # meets the others while the listed ones live
            time.sleep(3)
        cluster.kill(removed)
        say(f"with all brokers: first batch {usual} s after the command; now {listed} are removed")
        living = ",".join(cluster.address(broker) for broker in cluster.broker_ids if broker not in removed)
        seen: Result = {"with_all_brokers": usual, "one_after_the_other": True}
        with _started(folder, before, "without", listed, protected=False) as helpless:
            time.sleep(QUIET_AFTER_SECONDS)  # from here on it only waits: each of the others has the machine to itself
            with endpoint_to(listed, state_dir=state) as running:
                lists = {"living_list": living, "run": listed, "endpoint": running.endpoint.address}
                for kind, servers in lists.items():
                    with _started(folder, before, kind, servers, protected=kind == "run") as job:
                        seen[kind] = job.first_batch_seconds(FIRST_BATCH_SECONDS)
            say(f"first batches after {seen}; now waiting for the end of the one without help")
            seen["without_dies_after"] = helpless.dies_after_seconds(DEAD_WATCH_SECONDS)
            seen["without_batches"] = helpless.batches()
            seen["without_died_of"] = helpless.died_of()
    say(f"{seen}")
    return seen


@contextlib.contextmanager
def _started(folder: Path, before: Submitted, name: str, servers: str, *, protected: bool) -> Iterator[Submitted]:
    """Start the job on a copy of the checkpoint and of what `run` remembered."""
    shutil.copytree(before.folder, folder / name)
    (folder / name / "report.json").unlink(missing_ok=True)
    job = Submitted(folder / name, servers, protected=protected)
    try:
        yield job
    finally:
        job.stop()


def _unfinish(checkpoint: Path) -> None:
    """Let the last batch be planned and not committed: as after a crash."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    commits[-1].unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)


def incident() -> Result:
    """The demo's incident on six brokers, both jobs at the same time on the same cluster."""
    doomed, freezing = (5, 6), (3, 4)
    with (
        tempfile.TemporaryDirectory(prefix="rescue-") as name,
        LocalKafka(ClusterSettings(brokers=6, racks=3)) as cluster,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        cluster.create_topic(TOPIC, PARTITIONS, replication_factor=3, config={"min.insync.replicas": "1"})
        stack.enter_context(load(cluster.bootstrap_servers, TOPIC, PARTITIONS, rows_per_second=200))
        kinds = {"run": True, "without": False}
        starts: dict[str, list[Submitted]] = {kind: [] for kind in kinds}

        def start(servers: str) -> None:
            for kind, protected in kinds.items():
                job = Submitted(folder / kind, servers, protected=protected)
                stack.callback(job.stop)
                starts[kind].append(job)

        start(cluster.bootstrap_servers)
        first = {kind: jobs[0].first_batch_seconds(FIRST_BATCH_SECONDS) for kind, jobs in starts.items()}
        say(f"first batches after {first} s; adding partitions")
        cluster.add_partitions(TOPIC, PARTITIONS + 2)
        time.sleep(5)
        cluster.kill(doomed)
        time.sleep(15)
        cluster.pause(freezing)
        time.sleep(8)
        cluster.resume(freezing)
        time.sleep(6)
        survived = {kind: jobs[0].alive for kind, jobs in starts.items()}
        for jobs in starts.values():
            jobs[0].stop()
        listed = ",".join(cluster.address(broker) for broker in doomed)
        say(f"alive after kill and freeze: {survived}; both start again with a list of dead brokers only")
        start(listed)
        found: Result = {"survived_kill_and_freeze": survived}
        back = _each(starts, lambda job: job.first_batch_seconds(DEAD_WATCH_SECONDS))
        found["back_after_seconds"] = back
        for jobs in starts.values():
            jobs[1].stop()
        found["failed_starts"] = {kind: sum(job.failed or 0 for job in jobs) for kind, jobs in starts.items()}
        found["without_died_of"] = None if back["without"] else starts["without"][1].died_of()
    say(f"{found}")
    return found


def _each(starts: dict[str, list[Submitted]], ask: Callable[[Submitted], float | None]) -> dict[str, float | None]:
    """Ask the newest job of each kind, all at the same time."""
    seen: dict[str, float | None] = {}
    threads = [
        threading.Thread(target=lambda kind=kind, job=jobs[-1]: seen.update({kind: ask(job)}))
        for kind, jobs in starts.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


CASES: dict[str, Callable[[], Result]] = {"restart": restart, "incident": incident}


def section(result: Result) -> str:
    """Tell the kept run; `benchmarks.report` puts it into the page."""
    return "\n".join(
        [
            "## Jobs that do not change\n",
            "`make bench-rescue`. One program on Spark's own source, submitted with `spark-submit`; seconds count from",
            "the command, the start of Spark included.\n",
            *(_restart_section(result["restart"]) if "restart" in result else ()),
            *(_incident_section(result["incident"]) if "incident" in result else ()),
        ]
    )


def _restart_section(one: Result) -> list[str]:
    load_before, load_after = one["load_average"]
    how = "one job with help after the other" if one.get("one_after_the_other") else "four jobs at the same time"
    without = f"{one['without_batches']} batches, dead after {one['without_dies_after']} s"
    rows = [
        ("a list of living brokers (for comparison)", _after(one["living_list"]), "-"),
        ("a list of removed brokers, without help", without, "-"),
        ("the same list, `kafka-discovery run`", _after(one["run"]), "<= 15 s"),
        ("the endpoint's address as the list", _after(one["endpoint"]), "<= 15 s"),
    ]
    return [
        "A restart from a checkpoint with an unfinished batch after three of six brokers were removed;",
        f"{how} on two cores (load average {load_before}-{load_after}):\n",
        "| started with | first batch | target |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
        f"\nWithout help it died of: {one['without_died_of']}\n",
    ]


def _incident_section(one: Result) -> list[str]:
    load_before, load_after = one["load_average"]
    back = one["back_after_seconds"]
    failed = {kind: max(count, int(back[kind] is None)) for kind, count in one["failed_starts"].items()}
    return [
        "The incident of the demo (partitions added, a rack killed, two brokers frozen, a restart on a dead list),",
        f"both at the same time on the same six brokers (load average {load_before}-{load_after}):\n",
        "| | `kafka-discovery run` | without |",
        "|---|---|---|",
        f"| survived kill and freeze | {_both(one['survived_kill_and_freeze'])} |",
        f"| first batch after the restart on the dead list, s | {_both(back)} |",
        f"| starts that died or brought no batch in 240 s | {_both(failed)} |",
        f"\nWithout help it died of: {one['without_died_of']}\n",
    ]


def _both(seen: dict[str, Any]) -> str:
    return " | ".join(_word(seen[kind]) for kind in ("run", "without"))


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "never" if value is None else str(value)


def _after(seconds: float | None) -> str:
    return "never" if seconds is None else f"after {seconds} s"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the jobs end with us
    run_cases("rescue", CASES, sys.argv[1:])
