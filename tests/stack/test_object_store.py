"""Ready jobs with their checkpoint, their state and their output in an object store (`s3a`), and drivers killed there.

The store is versitygw on this machine, Hadoop's client the one of PySpark's version. Kafka's brokers are real.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.sink import hooks
from tests.stack.s3.store import ObjectStore, object_store
from tests.support.checkpoint import committed
from tests.support.helpers import eventually, produce
from tests.support.sink import committed_values
from tests.support.spark.jobs import event, unexpected

STEP_SECONDS = 600.0
USERS, EVENTS, PER_BATCH = 7, 200, 50
pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(6 * STEP_SECONDS)]
NOT_HERE = "is no path of this machine"
COPY_IT = f"{NOT_HERE}; copy its metadata, offsets, commits and sources here (hadoop fs -get) and name the copy"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as running:
        yield running


class Job:
    """A ready job as a user runs it: what it is given, and how its driver dies."""

    def __init__(self, store: ObjectStore, cluster: LocalKafka, name: str, folder: Path) -> None:
        self.store, self.cluster, self.name, self.folder = store, cluster, name, folder
        self.source, self.target = f"{name}-in", f"{name}-out"
        self.log = folder / "job.log"
        for topic in (self.source, self.target):
            cluster.create_topic(topic, 2, replication_factor=3)
        self._sent = 0

    @property
    def checkpoint(self) -> Path:
        """Its objects; what a task of Spark's has not written whole is not there."""
        return self.store.objects / self.name

    @property
    def sent(self) -> list[str]:
        return [str(number) for number in range(self._sent)]

    def put(self) -> None:
        numbers = range(self._sent, self._sent + EVENTS)
        produce(
            self.cluster.bootstrap_servers, self.source, *(event(f"u{n % USERS}", event_id=str(n)) for n in numbers)
        )
        self._sent += EVENTS

    def command(self, job: str, *more: str) -> list[str]:
        named = {
            "--bootstrap-servers": self.cluster.bootstrap_servers,
            "--topic": self.source,
            "--checkpoint": f"{self.store.url}/{self.name}",
            "--conf": f"spark.driver.extraClassPath={self.store.jars}",
            "--state-dir": str(self.folder / "state"),
            "--max-offsets-per-trigger": str(PER_BATCH),
        }
        return [sys.executable, f"spark_jobs/{job}.py", *(word for pair in named.items() for word in pair), *more]

    @property
    def to_kafka(self) -> list[str]:
        return ["--output-topic", self.target, "--sink-id", self.target]

    @property
    def named(self) -> list[str]:
        return ["--source-id", self.source, "--source-option", "cutLedger=kafka"]

    @contextmanager
    def driver(self, command: Sequence[str], armed: Path | None = None) -> Iterator["subprocess.Popen[bytes]"]:
        """Run one, all of which is killed at the end of the block; it finds no state, as on another host."""
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        environment = self.store.environment | ({hooks.VARIABLE: str(armed)} if armed else {})
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(STEP_SECONDS)
            for held in armed.glob("*.held.*") if armed else ():
                held.unlink()  # Spark's workers are in a group of their own

    def until(self, process: "subprocess.Popen[bytes]", condition: Callable[[], object], what: str) -> None:
        """Wait for something that must happen while this driver lives."""
        eventually(lambda: condition() or process.poll() is not None, STEP_SECONDS, lambda: f"{what}: {self.said()}")
        assert process.poll() is None, f"ended while {what} was waited for: {self.said()}"

    def run(self, command: Sequence[str]) -> int:
        with self.driver(command) as process:
            eventually(lambda: process.poll() is not None, STEP_SECONDS, self.said)
            return process.returncode

    def is_in_flight(self) -> bool:
        """Tell whether a batch is planned and not recorded."""
        planned = max((int(file.name) + 1 for file in self.checkpoint.glob("offsets/[0-9]*")), default=0)
        return planned > committed(self.checkpoint)

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def copied(self) -> Counter[str]:
        """How often each event is in the target."""
        values = committed_values(self.cluster.bootstrap_servers, self.target)
        return Counter(json.loads(str(value))["event_id"] for value in values)


@pytest.fixture
def job(store: ObjectStore, kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path) -> Job:
    return Job(store, kafka_cluster, topic_name, tmp_path)


def checkpoint(command: str, *arguments: str | Path) -> tuple[int, str]:
    """Run `kafka-discovery checkpoint`; return the exit code, and the last line of what was said."""
    program = str(Path(sys.executable).with_name("kafka-discovery"))
    done = subprocess.run(
        [program, "checkpoint", command, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=STEP_SECONDS, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.rstrip("\n").rpartition("\n")[2]


def test_given_a_checkpoint_on_s3a_when_the_driver_is_killed_then_every_record_is_in_kafka_once(
    job: Job, tmp_path: Path
) -> None:
    armed, point = tmp_path / "hooks", "step6.after@0"
    armed.mkdir()
    command = job.command("copy_topic", *job.to_kafka, *job.named)
    job.put()
    with job.driver([*command, "--trigger-interval", "0s"], armed) as process:
        job.until(process, lambda: committed(job.checkpoint), "the first batch")
        (armed / point).write_text("hold")  # its records are committed, and the checkpoint does not say so
        job.until(process, lambda: list(armed.glob(f"{point}.held.*")), point)
    assert job.is_in_flight(), "Spark knew of the commit"
    job.put()
    assert job.run([*command, "--available-now"]) == 0, job.said()
    assert job.copied() == Counter(job.sent)


def test_given_checkpoint_and_folder_on_s3a_when_the_driver_is_killed_then_the_totals_are_exact(job: Job) -> None:
    out = f"{job.name}-tables"
    table = job.store.objects / out / "daily_users"
    command = job.command("dau", "--output", f"parquet:{job.store.url}/{out}", *job.named)

    def is_ahead() -> bool:
        return len(list(table.glob("batch_id=*/_SUCCESS"))) > committed(job.checkpoint) > 0

    job.put()
    with job.driver([*command, "--trigger-interval", "0s"]) as process:
        job.until(process, is_ahead, "a table of a batch that is not recorded")
    assert job.is_in_flight(), "Spark knew of the table"
    job.put()
    assert job.run([*command, "--available-now"]) == 0, job.said()
    rows: list[dict[str, object]] = []
    for folder in sorted(table.glob("batch_id=*"), key=lambda folder: int(folder.name.partition("=")[2])):
        rows += [row for file in folder.glob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    totals = {row["user_id"]: row["events"] for row in rows}
    assert totals == Counter(f"u{number % USERS}" for number in range(2 * EVENTS))


def test_given_a_checkpoint_on_s3a_without_a_ledger_when_a_copy_of_it_is_adopted_then_the_source_goes_on_under_its_name(
    job: Job, tmp_path: Path
) -> None:
    unnamed = job.command("copy_topic", *job.to_kafka, "--available-now")
    named = [*unnamed, *job.named]
    job.put()
    assert job.run(unnamed) == 0, job.said()
    job.put()
    assert job.run(named) == 1, job.said()
    assert "adopt the checkpoint: kafka-discovery checkpoint adopt" in job.said()
    there, servers = f"{job.store.url}/{job.name}", job.cluster.bootstrap_servers
    ledger = ("--source-id", job.source, "--cut-ledger", "kafka", "--bootstrap", servers)
    assert checkpoint("verify", there, "--bootstrap", servers) == (2, f"kafka-discovery: {there} {COPY_IT}")
    assert checkpoint("adopt", there, *ledger, "--yes") == (2, f"kafka-discovery: {there} {COPY_IT}")
    copy = job.store.get(job.name, tmp_path)
    assert checkpoint("verify", copy, "--bootstrap", servers) == (0, "sound for kafka-discovery")
    code, line = checkpoint("adopt", copy, *ledger, "--yes")
    assert (code, line.startswith(f"adopted {copy} ")) == (0, True), line
    assert job.run(named) == 0, job.said()
    assert job.copied() == Counter(job.sent)
    (tmp_path / "later").mkdir()
    later = job.store.get(job.name, tmp_path / "later")
    assert checkpoint("verify", later, *ledger) == (0, "sound for kafka-discovery")


def test_given_a_bucket_that_is_not_there_when_a_job_starts_then_one_line_says_so(job: Job) -> None:
    there = "s3a://nobody/checkpoint"
    arguments = ("--output", f"parquet:{job.store.url}/out", "--checkpoint", there, "--available-now")
    assert job.run(job.command("copy_topic", *arguments)) == 1
    lines = unexpected(job.said())
    assert "Traceback" not in job.said()
    assert lines[-1].startswith("copy: the query failed: org.apache.hadoop.fs.s3a.UnknownStoreException"), lines[-1]


def test_given_a_state_dir_on_s3a_when_a_job_starts_then_one_line_refuses_it(job: Job) -> None:
    there = f"{job.store.url}/state"
    assert job.run(job.command("copy_topic", "--output-topic", job.target, "--state-dir", there)) == 2
    assert job.log.read_text() == f"copy: --state-dir: {there} {NOT_HERE}; name a local or mounted one\n"
