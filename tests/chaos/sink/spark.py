"""The same evidence from real Spark: a query that copies a topic while its workers, executors and driver are killed."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.sink import hooks
from tests.chaos.sink.checks import Finding, findings
from tests.chaos.sink.collect import proofs, read_all, said, sentinels_read, stable_ends, tailing
from tests.chaos.sink.engine import COMMIT_POINTS, TASK_POINTS
from tests.chaos.sink.evidence import Evidence, Seen
from tests.support.helpers import produce
from tests.support.proxy import Api, KafkaProxy, Rule
from tests.support.sink import Sink
from tests.support.spark.driver import SparkDriver

_HOOK_POLL_SECONDS = 0.05
_STALL_SECONDS = 120.0
_TAKEN_SECONDS = 30.0
_STARTS = 8
LANES, ROWS = 2, 60
_PROGRESS_SECONDS = 100.0
"""With a driver's or an executor's start in it, and whoever is stopped for `_FROZEN_SECONDS`."""
_FROZEN_SECONDS = 24.0
"""Longer than Spark waits for a heartbeat."""
_PACKETS = ("reply lost", "request held")
_VICTIMS = ("worker", "worker stopped", "driver", "driver stopped", *_PACKETS, "commits/N")
_APIS = (
    Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS, Api.PRODUCE, Api.ADD_OFFSETS, Api.TXN_OFFSET_COMMIT, Api.END_TXN
)  # fmt: skip


def victims_of(*, executors: bool) -> tuple[str, ...]:
    """Return who can be hit; a driver that is replaced while it is stopped would keep the executors."""
    return (*_VICTIMS, *(("executor", "executor stopped") if executors else ("driver replaced",)))


def is_plain(seed: int) -> bool:
    """Tell whether the records of a seed are produced as in production, without an audit header."""
    return seed % 2 == 1


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Who is hit where, once so many rows are visible."""

    victim: str
    point: str
    after_rows: int

    @property
    def name(self) -> str:
        return self.victim if self.victim == "commits/N" else f"{self.victim} at {self.point}"


def faults_of(seed: int, *, victims: Sequence[str], count: int = 2) -> tuple[Fault, ...]:
    """Draw the faults of a seed; the same seed gives the same."""
    random = Random(seed)
    drawn = []
    for number in range(count):
        victim = random.choice(victims)
        points = (*TASK_POINTS, *COMMIT_POINTS) if victim.startswith("driver") else TASK_POINTS
        points = tuple(api.name for api in _APIS) if victim in _PACKETS else points
        after = random.randrange(ROWS * number // count, ROWS * (number + 1) // count - 10)
        drawn.append(Fault(victim=victim, point=random.choice(points), after_rows=after))
    return tuple(drawn)


class SparkSeed:
    """One seed on a running driver, which may be killed and started again."""

    def __init__(
        self,
        cluster: LocalKafka,
        driver: SparkDriver,
        topic: str,
        folder: Path,
        armed: Path,
        *,
        executors: int | None = None,
        proxy: KafkaProxy | None = None,
    ) -> None:
        """Name the seed.

        Args:
            cluster: Source and target.
            driver: A running one.
            topic: The target, and the sink's name.
            folder: Of its own.
            armed: Where hooks are armed.
            executors: Hit nobody before so many are there, and wait for the end of each batch hit.
            proxy: Before the cluster, for the driver alone; needed where packets are hit.
        """
        self._proxy = proxy
        self._executors = executors
        self._cluster, self._driver, self._armed = cluster, driver, armed
        self._topic, self._source, self._folder = topic, f"{topic}-in", folder
        self._checkpoint = folder / "checkpoint"
        self._sink = Sink(cluster, folder / "own-state", sink_id=topic, topic=topic, lanes=LANES)
        self._starts = 0
        self.recoveries: list[float] = []
        """Seconds from each kill to the next visible row."""
        self.completions: list[float] = []
        """The same to the end of the batch that was under way, where `executors` is set."""
        self.hits: list[Fault] = []
        """Faults that came about."""

    def produce_plain(self, *, on: bool) -> None:
        """Let workers produce as in production, or with the header that says whose a record is."""
        if on:
            (self._armed / hooks.PLAIN).touch()
        else:
            (self._armed / hooks.PLAIN).unlink(missing_ok=True)

    def play(self, faults: Sequence[Fault]) -> tuple[Finding, ...]:
        """Copy all rows through the faults and return what the checks found."""
        (self._armed / hooks.SAID).unlink(missing_ok=True)
        for topic in (self._source, self._topic):
            self._cluster.create_topic(topic, partitions=2, replication_factor=3)
        values = [f"k{number % 5}:{number}" for number in range(ROWS)]
        produce(self._cluster.bootstrap_servers, self._source, *[(v.partition(":")[0], v) for v in values])
        with tailing(self._cluster.bootstrap_servers, self._topic) as tail:
            self._start()
            for fault in sorted(faults, key=lambda f: f.after_rows):
                self._until(lambda after=fault.after_rows: len(tail) >= after, "the next fault")  # type: ignore[misc]
                if self._hit(fault, tail):
                    self.hits.append(fault)
            self._until(lambda: len(tail) >= ROWS, "the last row")
            self._until(lambda: self._committed() is not None and not self._in_flight(), "the last commit")
            last = self._committed()
            before = len(read_all(self._cluster.bootstrap_servers, self._topic))
            self._forget_commit()
            self._until(lambda: not self._in_flight(), "the replay of the last batch")
            self._driver.ask("stop", name=self._topic)
            return findings(self._evidence(frozenset(values), tail, last, before))

    # -- the query ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._starts += 1
        assert self._starts <= _STARTS, f"started {_STARTS} times and not done: {self._driver.log()[-3000:]}"
        servers = (self._proxy or self._cluster).bootstrap_servers
        common = {"kafka.bootstrap.servers": servers, "stateDir": str(self._folder / "state")}
        self._driver.ask(
            "copy",
            name=self._topic,
            lanes=LANES,
            source={
                **common,
                "subscribe": self._source,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "10",
            },
            sink={**common, "topic": self._topic, "sinkId": self._topic, "transactionTimeout": "30s"},
            checkpoint=str(self._checkpoint),
        )

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait; a query that ended with an error is started again, as a supervisor would."""
        deadline = time.monotonic() + _STALL_SECONDS
        asked = time.monotonic()
        while not condition():
            assert time.monotonic() < deadline, f"no {what} in {_STALL_SECONDS:g} s: {self._driver.log()[-3000:]}"
            if time.monotonic() - asked > 1.0:
                asked = time.monotonic()
                if not self._driver.ask("status", name=self._topic)["active"]:
                    self._start()
            time.sleep(_HOOK_POLL_SECONDS)

    def _committed(self) -> int | None:
        numbers = [int(f.name) for f in (self._checkpoint / "commits").glob("*") if f.name.isdigit()]
        return max(numbers, default=None)

    def _last_planned(self) -> int:
        return max((int(f.name) for f in (self._checkpoint / "offsets").glob("*") if f.name.isdigit()), default=-1)

    def _in_flight(self) -> bool:
        return self._last_planned() != self._last_committed()

    def _last_committed(self) -> int:
        return -1 if (last := self._committed()) is None else last

    def _has_executors(self) -> bool:
        return self._executors is None or int(self._driver.ask("executors")) >= self._executors

    # -- faults ---------------------------------------------------------------------------------------------------

    def _hit(self, fault: Fault, tail: Sequence[Seen]) -> bool:
        """Bring a fault about; False where nobody comes to its point any more."""
        if fault.victim == "commits/N":
            self._forget_commit()
            return True
        if fault.victim in _PACKETS:
            return self._intercept(fault, tail)
        self._until(self._has_executors, "executor")
        action = {"worker": "kill", "worker stopped": "stop"}.get(fault.victim, "hold")
        (self._armed / fault.point).write_text(action)
        pid = self._taken(fault.point, tail)
        if pid is None:
            (self._armed / fault.point).unlink(missing_ok=True)
            return False
        before, batch, began = len(tail), self._last_planned(), time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            self._act(fault, pid)
        self._release(fault.point)
        self._until(lambda: len(tail) > before or len(tail) >= ROWS, "progress after the fault")
        self.recoveries.append(time.monotonic() - began)
        if self._executors is not None:
            self._until(lambda: self._last_committed() >= batch, "end of the batch that was hit")
            self.completions.append(time.monotonic() - began)
        return True

    def _intercept(self, fault: Fault, tail: Sequence[Seen]) -> bool:
        """Lose the reply to the next request of a kind, or hold the request until all goes on without it."""
        assert self._proxy is not None, "no proxy"
        held = fault.victim == "request held"
        rule = self._proxy.rule(Rule(api=Api[fault.point], lose_reply=not held, hold_request=held))
        deadline = time.monotonic() + _TAKEN_SECONDS
        while rule.hits == 0 and time.monotonic() < deadline and (len(tail) < ROWS or self._in_flight()):
            time.sleep(_HOOK_POLL_SECONDS)
        if rule.hits == 0:
            rule.count = 0
            return False
        before, began = len(tail), time.monotonic()
        self._until(lambda: len(tail) > before or len(tail) >= ROWS, "progress after the fault")
        self.recoveries.append(time.monotonic() - began)
        rule.release.set()
        return True

    def _act(self, fault: Fault, pid: int) -> None:
        match fault.victim:
            case "worker stopped":
                time.sleep(2)
                os.kill(pid, signal.SIGCONT)
            case "executor":
                os.kill(_executor(pid), signal.SIGKILL)
            case "executor stopped":
                # The task runs again elsewhere, and this one lives on.
                os.kill(executor := _executor(pid), signal.SIGSTOP)
                self._release(fault.point)
                time.sleep(_FROZEN_SECONDS)
                os.kill(executor, signal.SIGCONT)
            case "driver":
                self._driver.kill()
                # Its task goes on as a zombie while the next driver starts.
                self._release(fault.point)
                self._driver.start()
                self._start()
            case "driver stopped":
                # Its workers are no part of its process group: the task goes on, and nobody takes its result.
                with self._driver.stopped():
                    self._release(fault.point)
                    time.sleep(_FROZEN_SECONDS)
            case "driver replaced":
                # The stopped one goes on while its successor writes, and is killed a while later.
                with self._driver.replaced():
                    self._release(fault.point)
                    self._start()

    def _taken(self, point: str, tail: Sequence[Seen]) -> int | None:
        """Return the process that came to the point; None where nobody does any more."""
        deadline = time.monotonic() + _TAKEN_SECONDS
        while time.monotonic() < deadline:
            for file in self._armed.glob(f"{point}.held.*"):
                return int(file.name.rpartition(".")[2])
            if len(tail) >= ROWS and not self._in_flight():
                return None
            time.sleep(_HOOK_POLL_SECONDS)
        return None

    def _release(self, point: str) -> None:
        for file in self._armed.glob(f"{point}.held.*"):
            file.unlink(missing_ok=True)

    def _forget_commit(self) -> None:
        """What Spark finds after dying between the sink's commit and its own."""
        self._driver.ask("stop", name=self._topic)
        last = self._committed()
        for name in (f"{last}", f".{last}.crc") if last is not None else ():
            (self._checkpoint / "commits" / name).unlink(missing_ok=True)
        self._start()

    # -- evidence -------------------------------------------------------------------------------------------------

    def _evidence(self, expected: frozenset[str], tail: Sequence[Seen], last: int | None, before: int) -> Evidence:
        servers = self._cluster.bootstrap_servers
        committed = read_all(servers, self._topic)
        plan = self._sink.plan()
        return Evidence(
            expected=expected,
            committed=committed,
            again=read_all(servers, self._topic),
            tail=tuple(tail),
            everything=read_all(servers, self._topic, committed=False),
            said=said(self._armed),
            markers=(proofs(plan),),
            last_batch=last,
            stable_ends=stable_ends(servers, self._topic, patience_seconds=40),
            sentinels_read=sentinels_read(servers, self._topic),
            new_after_restart=len(committed) - before,
            seconds_to_progress=max(self.recoveries, default=None),
            progress_limit_seconds=_PROGRESS_SECONDS,
        )


def _executor(pid: int) -> int:
    """Return the JVM above a Python worker: the parent of the daemon that forked it."""
    daemon = _parent(pid)
    return _parent(daemon)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.task.maxFailures": "8",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.sql.shuffle.partitions": "2",
}


@contextlib.contextmanager
def armed_driver(folder: Path, *, master: str) -> Iterator[tuple[SparkDriver, Path]]:
    """Yield a driver whose tasks meet the hooks armed in a folder."""
    armed = folder / "hooks"
    armed.mkdir(parents=True, exist_ok=True)
    saved = os.environ.get(hooks.VARIABLE)
    os.environ[hooks.VARIABLE] = str(armed)
    settings: dict[str, Any] = {**SETTINGS, f"spark.executorEnv.{hooks.VARIABLE}": str(armed)}
    try:
        with SparkDriver(folder, master=master, settings=settings) as driver:
            yield driver, armed
    finally:
        os.environ.pop(hooks.VARIABLE, None)
        if saved is not None:
            os.environ[hooks.VARIABLE] = saved
