"""The whole on one machine: five brokers, a service, a query on executors of its own, a load, a committed reader.

Three topics are copied into one by a source with `discoveryUrl` and `sourceId` and the exactly-once sink: `kept` has
three copies, `alone` one (a dead broker leaves partitions that nobody can read), `again` is deleted and recreated.
Everything runs in processes of its own and may be killed; this one starts, watches and judges.
"""

import contextlib
import os
import signal
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import AdminClient

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.chaos.joint.account import Account
from tests.chaos.joint.clock import Clock
from tests.chaos.sink.collect import following
from tests.chaos.sink.spark import SETTINGS
from tests.support import leftovers
from tests.support.family import command_line, descendants
from tests.support.helpers import eventually
from tests.support.service import ServiceProcess, serve_arguments
from tests.support.spark.driver import SparkDriver
from tests.support.spark.fixtures import replicas
from tests.support.spark.oracle import Load
from tests.support.spark.standalone import standalone

BROKERS = 5
LANES = 2
EXECUTOR = "CoarseGrainedExecutorBackend"
_RATE = 30
DURABLE = {"min.insync.replicas": "2"}
_PATIENT = {"message.timeout.ms": "900000"}
"""What has no leader is written when that returns, however long a round takes."""


class Scene:
    """Starts everything, and knows where it is; `with Scene(folder)`."""

    def __init__(
        self, folder: Path, *, cluster: LocalKafka | None = None, name: str = "joint", executors: int = LANES
    ) -> None:
        """Remember where; nothing is started.

        Args:
            folder: For state, checkpoint and logs.
            cluster: It runs already, and is left running; None: one of its own.
            name: Begins the names of topics.
            executors: Processes of their own; 0: the driver's JVM runs all, and no executor can be killed.
        """
        self.folder = folder
        self.wanted_executors = executors
        self.name = name
        self.account = Account()
        self.cluster = cluster or LocalKafka(ClusterSettings(brokers=BROKERS))
        self._is_ours = cluster is None
        self.kept, self.alone, self.again, self.target = (f"{name}-{t}" for t in ("kept", "alone", "again", "target"))
        self.sources = (self.kept, self.alone, self.again)
        self.partitions = {self.kept: 3, self.alone: len(self.brokers), self.again: 2}
        self.loads: dict[str, Load] = {}
        self.retired: set[str] = set()
        """Prefixes of what was written by loads that ended without waiting."""
        self.ends: list[str] = []
        """Why the query ended, where it did."""
        self.owed_so_far: dict[str, int] = {}
        self.clock = Clock(folder / "clock")
        """The service's."""
        self.hosts_clock = Clock(folder / "hosts-clock")
        """That of Spark's Python processes, the driver's and the executors'."""
        self._stack = contextlib.ExitStack()
        self._port = ""

    def __enter__(self) -> Self:
        """Start everything; blocks half a minute to a minute."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self.close()

    def close(self) -> None:
        """End everything; a second call does nothing."""
        self._stack.close()

    def _start(self) -> None:
        os.environ.setdefault(leftovers.MARK, uuid.uuid4().hex)
        if self._is_ours:
            self._stack.enter_context(self.cluster)
        self._make_topics()
        self.start_service()
        self._stack.callback(self._end_service)
        workers = self.wanted_executors
        master = self._stack.enter_context(standalone(self.folder, workers=workers)) if workers else "local[2,8]"
        python = self.hosts_clock.python(self.folder / "python")
        self.driver = self._stack.enter_context(
            SparkDriver(self.folder, master=master, settings=SETTINGS, python=python)
        )
        for topic in self.sources:
            self.begin_load(topic)
        self._stack.callback(self._end_loads)
        self._stack.enter_context(following(self.servers, self.target, self.account.take))
        self.start_query()

    def _make_topics(self) -> None:
        for topic, leaders in {self.kept: (1, 3, 5), self.again: (2, 4), self.target: (3, 5, 1)}.items():
            self.make_topic(topic, leaders)
        self.cluster.create_topic(self.alone, assignment=replicas(self.brokers, copies=1, brokers=len(self.brokers)))

    def make_topic(self, topic: str, leaders: Sequence[int]) -> None:
        """Create a topic of three copies, of which two must hold a record before it is acknowledged."""
        self.cluster.create_topic(topic, assignment=replicas(leaders, brokers=len(self.brokers)), config=DURABLE)

    @property
    def brokers(self) -> tuple[int, ...]:
        """All brokers, dead ones too."""
        return self.cluster.broker_ids

    @property
    def servers(self) -> str:
        """All addresses, dead ones too."""
        return self.cluster.bootstrap_servers

    # -- what is killed and comes again ---------------------------------------------------------------------------

    def start_service(self) -> None:
        """Start the service, from the second time on where it was."""
        more = ("--port", self._port) if self._port else ()
        arguments = serve_arguments(self.servers, self.folder / "service", *more)
        log = self.folder / "service.log"
        self.service = ServiceProcess(*arguments, log=log, program=self.clock.program)
        try:
            self.service.start()
        except BaseException:
            self.service.end()
            raise
        self._port = self.service.api.rpartition(":")[2]

    def start_query(self) -> None:
        """Start the query, on its checkpoint."""
        state = {"kafka.bootstrap.servers": self.servers, "stateDir": str(self.folder / "state")}
        follows = {"discoveryUrl": self.service.api, "sourceId": self.name, "onTopicRecreated": "restart"}
        # What a lane has committed of a topic that was then recreated cannot be read again for a replay.
        writes = {
            "topic": self.target,
            "sinkId": self.name,
            "transactionTimeout": "30s",
            "onMismatch": "keep-committed",
        }
        self.driver.ask(
            "copy",
            name=self.name,
            lanes=LANES,
            by="value",
            source={**state, **follows, "subscribe": ",".join(self.sources), "startingOffsets": "earliest"},
            sink={**state, **writes},
            checkpoint=str(self.folder / "checkpoint"),
        )

    def keep_going(self) -> None:
        """Start a query that ended with an error again, as whatever supervises it would, and note why."""
        status = self.driver.ask("status", name=self.name)
        if not status["active"]:
            self.ends.append(str(status["failure"]))
            self.start_query()

    def refused(self) -> str:
        """Return why the query ended, within a minute; nothing while it runs and has planned a batch."""
        found: dict[str, Any] = {}

        def has_come_to_something() -> bool:
            found.update(self.driver.ask("status", name=self.name))
            return bool(not found["active"] or found["planned"])

        eventually(has_come_to_something, 60, "a query that runs, or ends")
        return "" if found["active"] else str(found["failure"])

    def restart_driver(self) -> None:
        """Bring up another driver and the query in it."""
        self.driver.start()
        self.start_query()

    def heal(self) -> None:
        """Let all brokers and the service be well; returns when they are registered."""
        self.cluster.heal()
        self.service.send(signal.SIGCONT)

    # -- the load -------------------------------------------------------------------------------------------------

    def begin_load(self, topic: str) -> None:
        """Write to all partitions of a topic."""
        load = Load(self.servers, topic, range(self.partitions[topic]), per_second=_RATE, options=_PATIENT)
        self.loads[topic] = load.__enter__()
        self.owed_so_far[topic] = 0

    def retire_load(self, topic: str) -> None:
        """Write no more to a topic that will be deleted; what it took and nobody read is forgiven."""
        load = self.loads.pop(topic)
        load.__exit__(None, None, None)
        self.retired.add(load.name)
        self.account.owe(row.value or "" for row in load.acknowledged[self.owed_so_far[topic] :])
        self.gone = [row.value or "" for row in load.acknowledged]

    def owe(self) -> None:
        """Count what was acknowledged up to now."""
        for topic, load in self.loads.items():
            known = len(load.acknowledged)
            self.account.owe(row.value or "" for row in load.acknowledged[self.owed_so_far[topic] : known])
            self.owed_so_far[topic] = known

    def _end_service(self) -> None:
        self.service.end()  # the one of now

    def _end_loads(self) -> None:
        for load in self.loads.values():
            load.__exit__(None, None, None)

    # -- looks ----------------------------------------------------------------------------------------------------

    def leaders(self) -> dict[tuple[str, int], int]:
        """Return what brokers say now: the leader of every partition of the topics here."""
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        topics: Any = admin.list_topics(timeout=10).topics
        return {
            (topic, number): partition.leader
            for topic in (*self.sources, self.target)
            for number, partition in (topics[topic].partitions.items() if topic in topics else ())
        }

    def executors(self) -> list[int]:
        """Return the executors' JVMs."""
        return [pid for pid in descendants(os.getpid()) if EXECUTOR in command_line(pid)]

    def processes(self) -> int:
        """Count what runs here, orphans too."""
        return sum(1 for _ in leftovers.carrying(os.environ[leftovers.MARK]))

    def logs(self) -> list[Path]:
        """Return every file that our code writes into: the service's, the driver's, the executors'."""
        return [self.service.log, self.folder / "driver.log", *self.folder.glob("worker-*/app-*/*/stderr")]
