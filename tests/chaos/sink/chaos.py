"""Many seeds of faults against the sink on real brokers, and a table: `python -m tests.chaos.sink.chaos --seeds 100`.

One seed again: `--first 17 --seeds 1`. In several runs, one table: `--keep FILE` in each.
Exit code 1 when anything was lost, repeated, torn or else wrong.
"""

import argparse
import contextlib
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.chaos.sink import brokers, spark
from tests.chaos.sink.checks import CHECKS, Finding
from tests.chaos.sink.engine import Played, at_every_point, plan_of, play, play_mutant
from tests.chaos.sink.mutants import MUTANTS
from tests.support.proxy import KafkaProxy
from tests.support.spark.standalone import standalone

_COUNTED = {"lost": "C1 lost", "duplicates": "C2 duplicate", "torn": "C4 torn lane"}


@dataclass(frozen=True)
class Result:
    """What one seed showed."""

    seed: int
    faults: tuple[str, ...]
    """Those that came about."""
    rows: int
    seconds: float
    findings: tuple[Finding, ...]
    error: str = ""
    kind: str = "tasks"
    """Single tasks, or Spark on one JVM or on executors."""
    drawn: int = 0
    """How many faults were meant to come about; 0: an older run, whose `faults` are all that were drawn."""
    plain: bool = False
    """Records were produced as in production."""

    @property
    def sound(self) -> bool:
        return not self.findings and not self.error


class Kept:
    """Results of earlier runs and of this one, a line each."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self.results = [result_of(json.loads(line)) for line in lines]

    def add(self, result: Result) -> None:
        """Print it and keep it."""
        print(line(result), flush=True)
        self.results.append(result)
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")


def result_of(raw: dict[str, Any]) -> Result:
    """Read one that was kept."""
    found = tuple(Finding(*finding) for finding in raw["findings"])
    return Result(**{**raw, "faults": tuple(raw["faults"]), "findings": found})


def _tell(result: Result) -> None:
    print(line(result), flush=True)


def run_seeds(
    cluster: LocalKafka,
    seeds: Iterable[int],
    folder: Path,
    *,
    at_once: int = 2,
    break_brokers: bool = False,
    until: float = math.inf,
    tell: Callable[[Result], None] = _tell,
) -> list[Result]:
    """Play seeds, several at once, and tell of each. Seeds 0 to -3 kill and stop at every point in turn."""
    breaker = brokers.Brokers(cluster)

    def one(seed: int) -> Result | None:
        if time.monotonic() > until:
            return None
        plan = plan_of(seed, brokers=brokers.FAULTS if break_brokers else ())
        if seed <= 0:
            plan = at_every_point(seed)
        topic, began = f"chaos-{seed}", time.monotonic()
        found, error = Played((), ()), ""
        try:
            cluster.create_topic(topic, partitions=2, replication_factor=3, config={"min.insync.replicas": "2"})
            found = play(
                cluster,
                topic,
                plan,
                folder / topic,
                break_brokers=lambda fault: breaker.break_(fault, f"{topic}-0"),
            )
        except Exception as broken:  # noqa: BLE001 - a table of all seeds tells more than the first failure
            error = f"{type(broken).__name__}: {broken}"
        rows = sum(len(lane) for batch in plan.batches for lane in batch)
        names, seconds = tuple(fault.name for fault in found.hits), time.monotonic() - began
        result = Result(
            seed, names, rows, seconds, found.findings, error, drawn=len(plan.faults), plain=plan.plain
        )  # fmt: skip
        tell(result)
        return result

    with breaker.settled(), ThreadPoolExecutor(at_once) as pool:
        return [result for result in pool.map(one, seeds) if result is not None]


def run_spark_seeds(
    cluster: LocalKafka,
    seeds: Iterable[int],
    folder: Path,
    *,
    executors: bool,
    until: float = math.inf,
    tell: Callable[[Result], None] = _tell,
) -> list[Result]:
    """Play seeds on real Spark, one after the other: on executors of their own, or in one JVM."""
    results = []
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(standalone(folder)) if executors else "local[2,8]"
        driver, armed = stack.enter_context(spark.armed_driver(folder, master=master))
        proxy = stack.enter_context(KafkaProxy({number: cluster.address(number) for number in cluster.broker_ids}))
        victims = spark.victims_of(executors=executors)
        for seed in seeds:
            if time.monotonic() > until:
                break
            faults, began = spark.faults_of(seed, victims=victims), time.monotonic()
            found: tuple[Finding, ...] = ()
            error = ""
            run = spark.SparkSeed(cluster, driver, f"spark-{seed}", folder / f"seed-{seed}", armed, proxy=proxy)
            try:
                run.produce_plain(on=spark.is_plain(seed))
                found = run.play(faults)
            except Exception as broken:  # noqa: BLE001 - as above
                error = f"{type(broken).__name__}: {broken}"
            names, seconds = tuple(fault.name for fault in run.hits), time.monotonic() - began
            kind = "Spark, executors" if executors else "Spark, one JVM"
            results.append(
                Result(
                    seed, names, spark.ROWS, seconds, found, error, kind, drawn=len(faults), plain=spark.is_plain(seed)
                )
            )
            tell(results[-1])
    return results


def line(result: Result) -> str:
    """Return one row of the table."""
    counts = Counter(finding.check for finding in result.findings)
    text = "  ".join(f"{name} {counts[check]}" for name, check in _COUNTED.items())
    others = {name: counts[name] for name in CHECKS if name not in _COUNTED.values() and counts[name]}
    rest = "; ".join([*(f"{f.check}: {f.text}" for f in result.findings), *([result.error] if result.error else [])])
    return (
        f"seed {result.seed:4}  {result.rows:3} rows  {result.seconds:5.1f} s  {text}  others {sum(others.values())}"
        f"  [{', '.join(result.faults)}]{'  ' + rest if rest else ''}"
    )


def table(results: Sequence[Result]) -> str:
    """Return faults that came about against what was found."""
    faults: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
        wrong.update(set() if result.sound else set(result.faults))
    rows = [f"| {name} | {count} | {wrong[name]} |" for name, count in sorted(faults.items())]
    totals = [
        f"{name} = {sum(finding.check == check for result in results for finding in result.findings)}"
        for name, check in _COUNTED.items()
    ]
    bad = sum(not result.sound for result in results)
    return "\n".join(
        [
            f"| fault | {'hits' if all(result.drawn for result in results) else 'draws'} | seeds not sound |",
            "|---|---|---|",
            *rows,
            "",
            f"{_seeds(results)}, {sum(r.rows for r in results)} rows: {', '.join(totals)}; {bad} seeds not sound",
        ]
    )


def _seeds(results: Sequence[Result]) -> str:
    kinds = Counter(result.kind for result in results)
    said = f"{len(results)} seeds ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))})"
    if not all(result.drawn for result in results):
        return said
    hits, drawn = sum(len(result.faults) for result in results), sum(result.drawn for result in results)
    plain = sum(result.plain for result in results)
    return f"{said}, {hits} of {drawn} faults came about, {plain} seeds by production's way to produce"


def main(arguments: Sequence[str]) -> int:
    """Run seeds on a cluster of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=-3)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--brokers", action="store_true", help="also pause, bounce and kill brokers")
    parser.add_argument("--spark", choices=("local", "executors"), help="real Spark instead of single tasks")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no seed later than this")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add the results to this file; the table shows all")
    parser.add_argument("--mutant", choices=MUTANTS, help="play a broken writer instead, which must be found")
    given = parser.parse_args(arguments)
    kept = Kept(given.keep)
    until = time.monotonic() + given.minutes * 60
    with LocalKafka(ClusterSettings(brokers=3)) as cluster, tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        if given.mutant:
            cluster.create_topic("mutant", partitions=2, replication_factor=3)
            found = play_mutant(cluster, "mutant", given.mutant, Path(folder))
            print("\n".join(f"{finding.check}: {finding.text}" for finding in found))
            return int(bool(found))
        seeds = range(given.first, given.first + given.seeds)
        if given.spark:
            executors = given.spark == "executors"
            run_spark_seeds(cluster, seeds, Path(folder), executors=executors, until=until, tell=kept.add)
        else:
            run_seeds(
                cluster,
                seeds,
                Path(folder),
                at_once=given.at_once,
                break_brokers=given.brokers,
                until=until,
                tell=kept.add,
            )
    print(table(kept.results))
    return int(any(not result.sound for result in kept.results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
