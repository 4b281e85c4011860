"""Ready jobs on YARN as docs/how-to/cluster.md submits them: a packed environment, the checkpoint on HDFS, kills.

The cluster is Hadoop's mini cluster: two node managers, on this machine. Kafka's brokers are real.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.jars.download import native_connector_jars
from tests.stack.hadoop.cluster import EXECUTOR, MASTER, SPARK, Hadoop, application_in, hadoop
from tests.support import wheel
from tests.support.helpers import eventually, produce
from tests.support.kafka_fixtures import KafkaFactory
from tests.support.sink import committed_values
from tests.support.spark.jobs import event
from tests.support.spark.native import dead_list

PAGE = Path(__file__).parents[2] / "docs/how-to/cluster.md"
PACKED = "pyspark_env.tar.gz"
STEP_SECONDS = 900.0
USERS, EVENTS = 7, 300
pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(4 * STEP_SECONDS)]
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.yarn.am.waitTime": "600s",
    "spark.yarn.maxAppAttempts": "2",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    # Instead of an upload of 400 MB with each submit.
    "spark.yarn.jars": f"local:{SPARK}/jars/*",
}
NATIVE = """
import sys
from pyspark.sql import SparkSession

_, _, servers, topic, output, checkpoint = sys.argv
spark = SparkSession.builder.getOrCreate()
events = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
writer = events.option("startingOffsets", "earliest").load().selectExpr("CAST(value AS STRING)").writeStream
writer = writer.format("text").option("path", output).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    """A cluster with the environment of the page on HDFS."""
    folder = tmp_path_factory.mktemp("packed")
    home = wheel.install(folder, "spark", "run.txt")
    uv = [sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from", "venv-pack==0.2.0"]
    pack = [*uv, "venv-pack", "--quiet", "-p", str(home), "-o", PACKED]
    subprocess.run(pack, cwd=folder, check=True, timeout=STEP_SECONDS)
    with hadoop(tmp_path_factory.mktemp("hadoop")) as cluster:
        cluster.put(folder / PACKED)
        yield cluster


class Submitted:
    """One `spark-submit`, in cluster mode, and the application it waits for."""

    def __init__(self, hadoop: Hadoop, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.hadoop, self.process, self.log = hadoop, process, log

    @property
    def application(self) -> str:
        return application_in(self.log.read_text(errors="replace"))

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something that must happen while the application lives."""

        def holds() -> bool:
            assert self.process.poll() is None, f"ended while {what} was waited for: {self.said()}"
            return bool(condition())

        eventually(holds, STEP_SECONDS, lambda: f"{what}: {self.said()}")

    def one_of(self, main: str, *, but: int = 0) -> int:
        """Return a JVM in one of its containers, as soon as there is one."""
        found: list[int] = []

        def there() -> bool:
            found[:] = [pid for pid in self.hadoop.processes(main, self.application or "none") if pid != but]
            return bool(found)

        self.until(there, main)
        return found[0]

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] + self.hadoop.said(self.application or "none")


def as_on_the_page(yarn: Hadoop, job: str, *arguments: str, more: dict[str, str] | None = None) -> list[str]:
    """Return the page's command with another job, and small containers."""
    (block,) = re.findall(r"```sh\n(spark-submit .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[:1]
    words = shlex.split(block.replace("\\\n", " ").replace(PACKED, f"{yarn.hdfs}/{PACKED}"))
    assert (words[0], words[-1]) == ("spark-submit", "job.py")
    small = [word for pair in {**SMALL, **(more or {})}.items() for word in ("--conf", "=".join(pair))]
    return [str(Path(sys.executable).with_name(words[0])), *words[1:-1], *small, job, *arguments]


def environment(yarn: Hadoop) -> dict[str, str]:
    ours = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in ours} | {
        "HADOOP_CONF_DIR": str(yarn.configuration),
        "SPARK_HOME": str(SPARK),
    }


@contextlib.contextmanager
def submitted(yarn: Hadoop, command: Sequence[str], log: Path) -> Iterator[Submitted]:
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env=environment(yarn), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as process,
    ):
        job = Submitted(yarn, process, log)
        try:
            yield job
        finally:
            process.terminate()
            for pid in yarn.processes(application=job.application or "none"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def totals(cluster: LocalKafka, topic: str) -> dict[str, tuple[int, int]]:
    """Return events and checksum of each user by the last record of each."""
    values: list[str | None] = []
    with contextlib.suppress(KafkaException):  # asked again
        # A killed writer leaves a transaction open until the brokers abort it.
        values = committed_values(cluster.bootstrap_servers, topic, deadline_seconds=STEP_SECONDS)
    records = [json.loads(str(value)) for value in values]
    return {one["user_id"]: (one["events"], one["checksum"]) for one in records}


class Load:
    """Events in a topic, and what they add up to."""

    def __init__(self, cluster: LocalKafka, source: str, target: str) -> None:
        self.cluster, self.source, self.target = cluster, source, target
        self.expected: dict[str, tuple[int, int]] = {}
        self._sent = 0

    def put(self) -> None:
        names = [(f"u{number % USERS}", str(number)) for number in range(self._sent, self._sent + EVENTS)]
        self._sent += EVENTS
        for user, name in names:
            events, checksum = self.expected.get(user, (0, 0))
            self.expected[user] = (events + 1, checksum + zlib.crc32(name.encode()))
        produce(self.cluster.bootstrap_servers, self.source, *(event(user, event_id=name) for user, name in names))

    def counted(self) -> int:
        return sum(events for events, _ in totals(self.cluster, self.target).values())

    def is_exact(self) -> bool:
        return totals(self.cluster, self.target) == self.expected


@pytest.mark.parametrize("ledger", ["kafka", "file"])
def test_given_a_job_on_yarn_when_an_executor_and_the_master_are_killed_then_the_counts_are_exact(
    yarn: Hadoop, kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path, ledger: str
) -> None:
    load = Load(kafka_cluster, f"{topic_name}-in", f"{topic_name}-out")
    kafka_cluster.create_topic(load.source, 3, replication_factor=3)
    kafka_cluster.create_topic(load.target, 1, replication_factor=3)
    # A relative folder lies in the container and ends with it: what must outlive the driver is in Kafka then.
    state = "state" if ledger == "kafka" else str(tmp_path / "state")
    command = as_on_the_page(
        yarn, str(Path("spark_jobs/dau.py").resolve()),
        "--bootstrap-servers", kafka_cluster.bootstrap_servers, "--topic", load.source, "--output-topic", load.target,
        "--sink-id", load.target, "--source-id", load.source, "--state-dir", state,
        "--checkpoint", f"{yarn.hdfs}/{topic_name}", "--source-option", f"cutLedger={ledger}",
        "--max-offsets-per-trigger", "40", "--trigger-interval", "0s",
    )  # fmt: skip
    load.put()
    with submitted(yarn, command, tmp_path / "submit.log") as job:
        job.until(load.counted, "the first count")
        os.kill(job.one_of(EXECUTOR), signal.SIGKILL)
        job.until(load.is_exact, "exact counts after an executor was killed")
        before = load.counted()
        load.put()
        job.until(lambda: load.counted() > before, "a count before the master is killed")
        first = job.one_of(MASTER)
        os.kill(first, signal.SIGKILL)
        job.one_of(MASTER, but=first)
        load.put()
        job.until(load.is_exact, "exact counts after the master was killed")
        yarn.end(job.application)
        assert job.process.wait(STEP_SECONDS) != 0
        assert "final status: KILLED" in job.log.read_text(errors="replace"), job.said()
        assert load.is_exact()


def test_given_a_native_job_on_yarn_when_all_it_lists_is_dead_then_run_lets_its_first_start_succeed(
    yarn: Hadoop, kafka_factory: KafkaFactory, topic_name: str, tmp_path: Path
) -> None:
    cluster = kafka_factory(brokers=4)
    cluster.create_topic(topic_name, 3, replication_factor=3)
    produce(cluster.bootstrap_servers, topic_name, "a", "b", "c")
    dead = dead_list(cluster, topic_name, tmp_path / "state")
    (tmp_path / "native.py").write_text(NATIVE, encoding="utf-8")
    more = {"spark.jars": ",".join(map(str, native_connector_jars())), "spark.yarn.maxAppAttempts": "1"}
    output, checkpoint = (tmp_path / "values").as_uri(), f"{yarn.hdfs}/{topic_name}"
    submit = as_on_the_page(
        yarn, str(tmp_path / "native.py"), "--bootstrap-servers", dead, topic_name, output, checkpoint, more=more
    )
    program, report = str(Path(sys.executable).with_name("kafka-discovery")), tmp_path / "report.json"
    run = [program, "run", "--state-dir", str(tmp_path / "state"), "--report", str(report), "--", *submit]
    with submitted(yarn, run, tmp_path / "run.log") as job:
        assert job.process.wait(STEP_SECONDS) == 0, job.said()
    made = json.loads(report.read_text(encoding="utf-8"))
    assert (made["outcome"], made["runs"], made["failures"]) == ("finished", 1, 0)
    assert sorted("".join(file.read_text() for file in (tmp_path / "values").glob("*.txt")).split()) == ["a", "b", "c"]
