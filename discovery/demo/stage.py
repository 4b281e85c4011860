"""The things on stage: cluster, generators and jobs of one demo, and what they tell about themselves."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from discovery.core.errors import DiscoveryError
from discovery.demo.follow import Batch, Follower, JobHistory
from discovery.demo.load.oracle import Produced, load_produced
from discovery.demo.processes import Child
from discovery.demo.recording import BrokerState, Sample
from discovery.demo.settings import RACKS, DemoSettings
from discovery.demo.sidecar import Sidecar
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from discovery.spark.jobs.files import job_file

_RATE_WINDOW_SECONDS = 10.0
"""Longer than a batch on a busy machine: rows count in the moment in which their batch ends."""
_POLL_SECONDS = 0.05
_METADATA_SECONDS = 10.0
_BROKER_PROPERTIES = {
    # What comes ends a follower's wait at once; while nothing comes, asking twice a second costs half a core.
    "replica.fetch.wait.max.ms": "2000",
}
_JOB_SETTINGS = (
    # A demo lives for minutes and may share two cores with all brokers: no time to earn back an optimising compiler,
    # no use for parallel state.
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions=1",
)


class StepFailedError(DiscoveryError):
    """Something the demo waited for did not happen."""


class TopicRun:
    """One topic with its generator and its job: their files, their processes, their histories."""

    def __init__(self, cluster: LocalKafka, topic: str, folder: Path) -> None:
        self.topic = topic
        self._cluster = cluster
        self._folder = folder / topic
        self._folder.mkdir(parents=True, exist_ok=True)
        self._follower = Follower(self._file("job-progress.jsonl"), topic)
        self._follower_lock = threading.Lock()
        self.generator: Child | None = None
        self.job: Child | None = None
        self.job_runs = 0
        self.follows = ""
        """The address of the service that the jobs follow; they look for themselves if there is none."""

    def _file(self, name: str) -> Path:
        return self._folder / name

    @property
    def database(self) -> Path:
        """Where the job writes."""
        return self._file("dau.db")

    @property
    def expected(self) -> Path:
        """Where the generator writes its final account."""
        return self._file("expected.json")

    @property
    def job_log(self) -> Path:
        """What the job's processes say."""
        return self._file("job.log")

    def start_generator(self, *options: str) -> Child:
        """Start producing; returns at once."""
        arguments = ["--bootstrap-servers", self._cluster.bootstrap_servers, "--topic", self.topic]
        arguments += ["--progress", str(self._file("produced.json")), "--expected", str(self.expected), *options]
        self.generator = Child(
            "discovery.demo.load.generator",
            arguments,
            name=f"generator of {self.topic}",
            log=self._file("generator.log"),
        ).start()
        return self.generator

    def start_job(self, bootstrap_servers: str, *options: str) -> Child:
        """Start counting, with this list of brokers; state, checkpoint and output are those of the last run."""
        arguments = ["--bootstrap-servers", bootstrap_servers, "--topic", self.topic]
        arguments += ["--output", f"sqlite:///{self.database}", "--checkpoint", str(self._file("checkpoint"))]
        arguments += ["--source-id", f"demo-{self.topic}", "--state-dir", str(self._file("state"))]
        arguments += ["--progress-file", str(self._file("job-progress.jsonl")), "--trigger-interval", "1s"]
        arguments += [word for setting in _JOB_SETTINGS for word in ("--conf", setting)]
        arguments += ["--source-option", f"discoveryUrl={self.follows}"] if self.follows else []
        arguments += options
        self.job_runs += 1
        self.job = Child(str(job_file("dau")), arguments, name=f"job on {self.topic}", log=self.job_log).start()
        return self.job

    def produced(self) -> Produced:
        """Return the generator's account so far."""
        return load_produced(self._file("produced.json")) or Produced(wall=time.time())

    def history(self) -> JobHistory:
        """Return what the job has reported so far; thread-safe."""
        with self._follower_lock:
            return self._follower.read()

    def close(self) -> None:
        """End both processes; safe to call twice."""
        for child in (self.job, self.generator):
            if child is not None:
                child.stop(timeout_seconds=5.0)


class Stage:
    """Owns the cluster and the topics of one demo. Constructed without I/O but for its folder."""

    def __init__(self, settings: DemoSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.cluster = LocalKafka(
            ClusterSettings(brokers=settings.brokers, racks=RACKS, extra_properties=_BROKER_PROPERTIES)
        )
        self.sidecar = Sidecar(folder) if settings.sidecar else None
        self.main = TopicRun(self.cluster, "events", folder)
        self.single = TopicRun(self.cluster, "single", folder)

    def close(self) -> None:
        """End every process this demo started; safe to call twice."""
        self.main.close()
        self.single.close()
        if self.sidecar is not None:
            self.sidecar.close()
        self.cluster.stop()

    def addresses(self, broker_ids: Sequence[int]) -> str:
        """Write brokers as a bootstrap list."""
        return ",".join(self.cluster.address(broker_id) for broker_id in broker_ids)

    def leaders(self, topic: str) -> dict[int, int]:
        """Ask which broker leads each partition.

        Raises:
            StepFailedError: no broker answered in time.
        """
        client = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "allow.auto.create.topics": False})
        try:
            found = client.list_topics(topic, timeout=_METADATA_SECONDS).topics[topic].partitions
        except KafkaException as error:
            raise StepFailedError(f"no broker reported the leaders of topic {topic}: {error.args[0].str()}") from error
        return {partition: description.leader for partition, description in found.items()}

    def broker_states(self) -> dict[int, BrokerState]:
        """Ask the processes themselves."""
        running = self.cluster.process_ids()
        living = self.cluster.living_ids()
        return {
            broker_id: BrokerState.ALIVE
            if broker_id in living
            else BrokerState.FROZEN
            if str(broker_id) in running
            else BrokerState.DEAD
            for broker_id in self.cluster.broker_ids
        }

    def sample(self, produced: Produced, history: JobHistory) -> Sample:
        """Describe this moment."""
        now = time.time()
        return Sample(
            wall=now,
            produced=produced.records,
            counted=history.rows,
            rows_per_second=rows_per_second(history.batches, now),
            lag=lag(produced.end_offsets, history.end_offsets),
            partitions=sum(1 for offset in history.end_offsets.values() if offset > 0),
            brokers=self.broker_states(),
        )

    def wait_until(self, condition: Callable[[], bool], *, deadline_seconds: float, otherwise: str) -> None:
        """Wait, and notice when a process of the demo ends meanwhile.

        Raises:
            ProcessError: a job or generator ended by itself.
            StepFailedError: not in time; carries `otherwise`.
        """
        deadline = time.monotonic() + deadline_seconds
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise StepFailedError(f"{otherwise} (waited {deadline_seconds:g} s)")
            time.sleep(_POLL_SECONDS)

    def watch(self, seconds: float) -> None:
        """Let it run for a while, and notice when a process ends meanwhile.

        Raises:
            ProcessError: a job or generator ended by itself.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise where a process has ended that should run."""
        service = self.sidecar.child if self.sidecar is not None else None
        for child in (self.main.generator, self.main.job, self.single.job, service):
            if child is not None and not child.retired:
                child.check()


def rows_per_second(batches: Sequence[Batch], now: float) -> float:
    """Return the mean over the last ten seconds."""
    recent = (batch.rows for batch in batches if batch.finished_wall > now - _RATE_WINDOW_SECONDS)
    return sum(recent) / _RATE_WINDOW_SECONDS


def lag(produced: dict[str, int], counted: dict[str, int]) -> int:
    """Return how many acknowledged records are not counted yet."""
    return sum(max(0, end - counted.get(partition, 0)) for partition, end in produced.items())
