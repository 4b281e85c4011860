"""What must hold after every round: the promises of `make chaos`."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx
from confluent_kafka import KafkaException

from discovery.core.errors import BUG_PHRASE
from tests.chaos.joint.scene import Scene
from tests.chaos.seeds import must
from tests.chaos.sink.collect import ends_of
from tests.chaos.sink.evidence import Place
from tests.support.sink import committed_values

TRUTH_SECONDS = 90.0
PROGRESS_SECONDS = 180.0
SETTLE_SECONDS = 60.0
_SPARE = 16
"""Processes that come and go: Python workers that Spark has forked for a batch and keeps for the next one."""


@dataclass(frozen=True, slots=True)
class Held:
    """How long each promise took after the healing."""

    truth_seconds: float
    progress_seconds: float
    processes: int


class Judge:
    """Holds one scene to its promises, round after round."""

    def __init__(self, scene: Scene) -> None:
        """Begin to watch."""
        self._scene = scene
        self._read: dict[str, int] = {}
        self._processes = 0

    def begin(self) -> None:
        """Wait until rows have come through, and remember how many processes that takes.

        Raises:
            BrokenPromiseError: they do not.
        """
        self.hold()
        self._processes = self._scene.processes()

    def hold(self) -> Held:
        """Wait for every promise.

        Raises:
            BrokenPromiseError: one did not hold.

        Runs: the calling thread; blocks until all acknowledged so far is visible, at most some minutes.
        """
        scene = self._scene
        scene.owe()
        progress = self._wait(scene.account.settled, PROGRESS_SECONDS, scene.account.found)
        truth = self._wait(self._is_true, TRUTH_SECONDS, lambda: "the service does not say the truth")
        scene.account.check_once(scene.account.seen, self._held)
        ends: dict[Place, int] = {}
        self._wait(
            lambda: ends.update(self._ends(committed=False)) or ends, SETTLE_SECONDS, lambda: "nobody tells ends"
        )
        self._wait(lambda: self._stable(ends), SETTLE_SECONDS, lambda: f"a transaction is open before {ends}")
        self._wait(self._as_many, SETTLE_SECONDS, self._reported_processes)
        self._check_logs()
        return Held(round(truth, 1), round(progress, 1), scene.processes())

    def finish(self) -> None:
        """End the load and read the target again from its beginning.

        Raises:
            BrokenPromiseError: something is lost, there twice or strange.
        """
        scene = self._scene
        for load in scene.loads.values():
            load.stop(deadline_seconds=PROGRESS_SECONDS)
        self.hold()
        again = committed_values(scene.servers, scene.target)
        scene.account.check_once(Counter(value or "" for value in again), self._held)
        lost = scene.account.due - set(again)
        must(not lost, f"{len(lost)} records are lost to a second reader: {sorted(lost)[:3]}")
        scene.account.check_known(value for value in again if value and value.partition("#")[0] in scene.retired)

    def _held(self) -> Counter[str]:
        scene = self._scene
        return Counter(value or "" for topic in scene.sources for value in committed_values(scene.servers, topic))

    def _wait(self, holds: Callable[[], object], seconds: float, otherwise: Callable[[], str]) -> float:
        """Wait while the query is kept going; return how long it took."""
        began = looked = time.monotonic()
        while not holds():
            must(time.monotonic() - began < seconds, f"{otherwise()} ({seconds:g} s after healing)")
            if time.monotonic() - looked > 1.0:
                self._scene.keep_going()
                looked = time.monotonic()
            time.sleep(0.1)
        return time.monotonic() - began

    def _is_true(self) -> bool:
        """Tell whether the service says what brokers say, and that all is well."""
        service, brokers = self._scene.service, len(self._scene.brokers)
        try:
            status = service.json("/v1/status")
            if (status["state"], status["brokers"]["healthy"], status["parked"]) != ("fresh", brokers, 0):
                return False
            found = {
                (topic, partition["partition"]): partition["leader_id"]
                for topic in (*self._scene.sources, self._scene.target)
                for partition in service.json(f"/v1/topics/{topic}")["partitions"]
            }
            return found == self._scene.leaders()
        except (httpx.HTTPError, KafkaException, KeyError, ValueError):
            return False  # one of them has just come up, or has not found a topic yet

    def _stable(self, ends: Mapping[Place, int]) -> bool:
        stable = self._ends(committed=True)
        return bool(stable) and all(stable[place] >= end for place, end in ends.items())

    def _ends(self, *, committed: bool) -> Mapping[Place, int]:
        """Ask for the target's ends; nothing where brokers, just back, do not answer in time."""
        with contextlib.suppress(KafkaException):
            return ends_of(self._scene.servers, self._scene.target, committed=committed)
        return {}

    def _as_many(self) -> bool:
        executors = len(self._scene.executors())
        return executors == self._scene.wanted_executors and (
            not self._processes or self._scene.processes() <= self._processes + _SPARE
        )

    def _reported_processes(self) -> str:
        scene = self._scene
        return f"{scene.processes()} processes, {self._processes} at the beginning; {len(scene.executors())} executors"

    def _check_logs(self) -> None:
        for file in self._scene.logs():
            with file.open("rb") as log:
                log.seek(self._read.get(str(file), 0))
                written = log.read()
                self._read[str(file)] = log.tell()
            at = written.find(BUG_PHRASE.encode())
            must(at < 0, f"{file.name}: {written[max(0, at - 200) : at + 1500].decode(errors='replace')}")
