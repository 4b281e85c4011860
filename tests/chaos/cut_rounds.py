"""Round after round two of six brokers die, and in between a worker, an executor or the driver: `make chaos-source`.

Topics with one replica, so every kill leaves partitions that nobody can read; a source with a name, so batches end
without them. Every record that a broker acknowledged must be in the rows of all runs together once, whatever died and
when.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.family import command_line, descendants
from tests.support.helpers import eventually
from tests.support.results import environment, say
from tests.support.spark.driver import BUG_PHRASE, Query, SparkDriver, joined
from tests.support.spark.fixtures import replicas
from tests.support.spark.oracle import Load, assert_exactly_once
from tests.support.spark.standalone import standalone

VICTIMS = ("worker", "executor", "driver")
BROKERS = (1, 2, 3, 4, 5, 6)
TOPIC = "rounds"
OUTPUT = Path("build/bench/cut_rounds.json")
_SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # Executors that are killed on purpose must not end the application.
    "spark.task.maxFailures": "8",
    "spark.deploy.maxExecutorRetries": "-1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What dies, and how long after the brokers."""

    pair: tuple[int, int]
    victim: str
    after_seconds: float


def plan(rounds: int, seed: int) -> list[Round]:
    """Return the rounds of a seed; each victim comes as often as the others."""
    rng = random.Random(seed)
    return [
        Round(
            pair=(first := rng.choice(BROKERS), rng.choice([b for b in BROKERS if b != first])),
            victim=VICTIMS[number % len(VICTIMS)],
            after_seconds=round(rng.uniform(0.0, 3.0), 2),
        )
        for number in range(rounds)
    ]


class Exercise:
    """A query on executors of their own, started again on its checkpoint after each death of its driver."""

    def __init__(self, cluster: LocalKafka, driver: SparkDriver, load: Load) -> None:
        self._cluster = cluster
        self._driver = driver
        self._load = load
        self.runs = [self._query()]

    def _query(self) -> Query:
        options = {
            "kafka.bootstrap.servers": self._cluster.bootstrap_servers,
            "subscribe": TOPIC,
            "sourceId": TOPIC,
            "stateDir": str(self._driver.folder / "ledgers"),
        }
        return self._driver.query(options, checkpoint=self._driver.folder / "checkpoint")

    def play(self, step: Round) -> float:
        """Kill, wait until every living partition gave rows again, heal; return the seconds without.

        A driver that dies before a cut was written leaves a plan that a sink may already hold: its replay must not be
        cut, so it waits for the leaders, and this heals first.
        """
        living = {number - 1 for number in BROKERS if number not in step.pair}
        killed_at = time.monotonic()
        self._cluster.kill(list(step.pair))
        time.sleep(step.after_seconds)  # anywhere between the kill, the cut, and the batch after it
        self._kill(step.victim)
        if step.victim == "driver":
            self._cluster.heal()
        marks = {row.partition: row.offset for row in tuple(self._load.acknowledged)}
        goal = {partition: marks.get(partition, -1) + 1 for partition in living}
        query = self.runs[-1]
        query.wait_until(lambda: self._passed(goal), f"rows of {sorted(living)} after {step}", 120)
        seconds = time.monotonic() - killed_at
        self._cluster.heal()
        return seconds

    def finish(self) -> None:
        """End the load, wait for its last record, compare."""
        self._load.stop(deadline_seconds=120)
        wanted = self._load.acknowledged
        self.runs[-1].wait_until(lambda: len(joined(*self.runs)) >= len(wanted), "the last record", 120)
        assert_exactly_once(joined(*self.runs), wanted)
        assert BUG_PHRASE not in self._driver.log()

    def _kill(self, victim: str) -> None:
        if victim == "driver":
            self._driver.kill()
            self._driver.start()
            self.runs.append(self._query())
            return
        word = "pyspark.daemon" if victim == "worker" else "CoarseGrainedExecutorBackend"
        eventually(lambda: _below(word), 60, f"one {victim} at least")
        with contextlib.suppress(ProcessLookupError, IndexError):  # one that ended by itself is as dead
            os.kill(_below(word)[0], signal.SIGKILL)

    def _passed(self, goal: dict[int, int]) -> bool:
        reached = Counter[int]()
        for row in self.runs[-1].rows():
            reached[row.partition] = max(reached[row.partition], row.offset)
        return all(reached[partition] >= offset for partition, offset in goal.items())


def _below(word: str) -> list[int]:
    """Return the processes below this one whose command line has a word in it: daemons of workers, or executors."""
    return [pid for pid in descendants(os.getpid()) if word in command_line(pid)]


def run(rounds: int, seed: int) -> dict[str, object]:
    """Play the rounds on a cluster and a Spark of their own; raises AssertionError where a row is lost or doubled."""
    found: list[dict[str, object]] = []
    seen = environment()
    with (
        tempfile.TemporaryDirectory(prefix="cut-rounds-") as name,
        LocalKafka(ClusterSettings(brokers=len(BROKERS))) as cluster,
        standalone(Path(name)) as master,
        SparkDriver(Path(name), master=master, settings=_SETTINGS) as driver,
    ):
        cluster.create_topic(TOPIC, assignment=replicas(BROKERS, copies=1))
        # A partition without its leader is written to again when that returns, however long a driver takes to start.
        patient = {"message.timeout.ms": "900000"}
        with Load(cluster.bootstrap_servers, TOPIC, range(len(BROKERS)), options=patient) as load:
            exercise = Exercise(cluster, driver, load)
            exercise.runs[0].wait_rows(100, 120)
            for number, step in enumerate(plan(rounds, seed), start=1):
                seconds = exercise.play(step)
                found.append({**asdict(step), "seconds": round(seconds, 2)})
                say(f"round {number}: {found[-1]}")
            exercise.finish()
        cuts = driver.log().count("cut, since nobody could be read from")
        say(f"{len(load.acknowledged)} records, each once; {cuts} cuts; {len(exercise.runs)} drivers")
    records, drivers = len(load.acknowledged), len(exercise.runs)
    return {"environment": seen, "rounds": found, "records": records, "cuts": cuts, "drivers": drivers, "seed": seed}


def main(arguments: Sequence[str]) -> None:
    """Play `--rounds` rounds of `--seed` and keep what was seen."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as every other end: what was started is stopped
    found = run(given.rounds, given.seed)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
