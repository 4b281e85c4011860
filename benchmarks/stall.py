"""How long a query stands still when two of six brokers are killed: `python -m benchmarks.stall [CASE…] [--rounds N]`.

Every round kills two brokers under load, watches, restarts them, and lets the query catch up. The gap is the longest
time without a finished batch that has rows: rows of any partition end it. At the end of a case the load
stops, and the rows of all finished batches must be the records in the log, neither one less nor one more.
"""

import argparse
import contextlib
import itertools
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.chart import Strip, strips
from benchmarks.harness import NATIVE, OURS, PlainReader, Watched, load, running_query, spark_session
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.results import environment, kept_result, say, summary, write_result

_BROKERS = (1, 2, 3, 4, 5, 6)
_PAIRS = tuple(itertools.combinations(_BROKERS, 2))
_ROWS_PER_SECOND = 1_000.0
WATCH_SECONDS = 12.0
"""Of every round, whatever the source: twice the session timeout of a broker."""
_WARM_BATCHES = 5
_CATCH_UP_SECONDS = 90.0
NOTES = (
    "With a ledger in a file and RF 1 the gap is the batch in flight, which is cut as soon as the dead leaders refuse",
    "connections ([why](../decisions/0048-a-refused-connection-is-evidence.md)), and the next one. A ledger in Kafka",
    "is written in a transaction, so a cut also waits until the transaction log and the ledger's topic have new",
    "leaders; and where the killed pair holds two of three replicas of the transaction log, which by default takes",
    "nothing with fewer than two (`transaction.state.log.min.isr`), until one of them returns: those cases ran with 1,",
    "but where a row says otherwise. The ledger's own topic has five replicas here and takes records with three.",
)
_IN_KAFKA = {"sourceId": "stall", "cutLedger": "kafka"}
_TWO_MAY_DIE = {"transaction.state.log.min.isr": "1"}
"""By default Kafka's transaction log, of three replicas, takes nothing once two of them are dead."""
CASES: dict[str, dict[str, Any]] = {
    "rf1_file": {"source": OURS, "copies": 1, "options": {"sourceId": "stall"}},
    "rf3_file": {"source": OURS, "copies": 3, "options": {"sourceId": "stall"}},
    "rf1_kafka": {"source": OURS, "copies": 1, "options": _IN_KAFKA, "brokers": _TWO_MAY_DIE},
    "rf3_kafka": {"source": OURS, "copies": 3, "options": _IN_KAFKA, "brokers": _TWO_MAY_DIE},
    "rf1_kafka_stock": {"source": OURS, "copies": 1, "options": _IN_KAFKA},
    "rf3_without_cuts": {"source": OURS, "copies": 3, "options": {}},
    "rf1_without_cuts": {"source": OURS, "copies": 1, "options": {}},
    "rf3_native": {"source": NATIVE, "copies": 3, "options": {}},
    "rf1_native": {"source": NATIVE, "copies": 1, "options": {}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Which brokers are killed, and how long after the last round: the same in every case and run."""

    pair: tuple[int, int]
    after_seconds: float


def plan(rounds: int) -> list[Round]:
    """Return what happens, whatever the source."""
    rng = random.Random(20)
    return [Round(pair=rng.choice(_PAIRS), after_seconds=rng.uniform(0.0, 0.5)) for _ in range(rounds)]


@dataclass(slots=True)
class Reader:
    """One query, started again on its checkpoint where it died: every case goes through the same rounds."""

    start: Callable[[], AbstractContextManager[Watched]]
    stack: contextlib.ExitStack
    runs: list[Watched] = field(default_factory=list)

    @property
    def query(self) -> Watched:
        """Return the run that lives, or was the last to."""
        return self.runs[-1]

    def revive(self) -> None:
        """Start it, the first time or after its death."""
        if not self.runs or not self.query.query.isActive:
            self.runs.append(self.stack.enter_context(self.start()))

    def rows(self) -> int:
        """Count the rows of the finished batches of all runs."""
        return sum(count for run in self.runs for _, count, _ in run.batches)


class Plain(PlainReader):
    """What Kafka itself let anybody read in a round."""

    def __init__(self, servers: str) -> None:
        """Nothing but the instants is kept."""
        self._at: list[float] = []
        options = {"topic.metadata.refresh.interval.ms": 1_000}
        super().__init__(servers, "t", len(_BROKERS), lambda _, at: self._at.append(at), **options)

    def gap(self, since: float, until: float) -> float:
        """Return the longest time in which nothing came from any partition."""
        instants = [since, *(at for at in tuple(self._at) if since < at < until), until]
        return max(b - a for a, b in itertools.pairwise(instants))


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Run one case on a cluster and a session of its own."""
    case = CASES[name]
    settings = ClusterSettings(brokers=len(_BROKERS), extra_properties=case.get("brokers", {}))
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalKafka(settings))
        cluster.create_topic("t", assignment=[_ring(leader, case["copies"]) for leader in _BROKERS])
        spark = stack.enter_context(spark_session(4, native=True))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-stall-")))
        start = partial(
            running_query, spark, cluster.bootstrap_servers, "t", source=case["source"], options=case["options"],
            checkpoint=folder / "checkpoint", state_dir=folder / "state",
        )  # fmt: skip
        reader = Reader(start=start, stack=stack)
        reader.revive()
        with (
            load(cluster.bootstrap_servers, "t", len(_BROKERS), rows_per_second=_ROWS_PER_SECOND),
            Plain(cluster.bootstrap_servers) as plain,
        ):
            query = reader.query
            query.wait(lambda w: len(w.batches) >= 3 * _WARM_BATCHES, 90)
            quiet = query.longest_gap(query.batches[_WARM_BATCHES][0], query.batches[-1][0])
            seen = [_round(cluster, reader, plain, step, number) for number, step in enumerate(plan(rounds), start=1)]
        reported = {"rounds": seen, "gap_seconds": summary([r["gap_seconds"] for r in seen])}
        return reported | {
            "gap_before_seconds": round(quiet, 3),
            "deaths": len(reader.runs) - 1,
            **_check(reader, cluster),
        }


def _round(cluster: LocalKafka, reader: Reader, plain: Plain, step: Round, number: int) -> dict[str, Any]:
    time.sleep(step.after_seconds)  # anywhere in a batch
    query, killed_at = reader.query, time.monotonic()
    until = killed_at + WATCH_SECONDS
    cluster.kill(list(step.pair))
    query.wait(lambda _: time.monotonic() >= until, WATCH_SECONDS + 1)
    time.sleep(max(0.0, until - time.monotonic()))  # where it died
    gap = query.longest_gap(killed_at - 0.5, until)
    # No batch after the gap was seen: it was at least as long.
    censored = not any(at < until and at > until - gap for at, _, _ in query.batches)
    found = {
        "brokers": list(step.pair),
        "gap_seconds": round(gap, 3),
        "censored": censored,
        "plain_gap_seconds": round(plain.gap(killed_at - 0.5, until), 3),
        "died": not query.query.isActive,
        "load_average": round(os.getloadavg()[0], 1),
    }
    say(f"round {number}: {found}")
    cluster.restart(list(step.pair))
    cluster.wait_registered(list(step.pair))
    at = {partition: query.offset("t", partition) for partition in range(len(_BROKERS))}
    reader.revive()
    reader.query.wait(_passes(at), _CATCH_UP_SECONDS)
    return found


def _passes(at: dict[int, int]) -> Callable[[Watched], bool]:
    return lambda w: all(w.offset("t", partition) > offset for partition, offset in at.items())


def _check(reader: Reader, cluster: LocalKafka) -> dict[str, Any]:
    """Compare the rows of all finished batches with the log, once the load has ended."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "stall", "log_level": 0})
    places = [TopicPartition("t", partition) for partition in range(len(_BROKERS))]
    ends = {place.partition: consumer.get_watermark_offsets(place, timeout=10)[1] for place in places}
    consumer.close()
    reader.revive()
    reached = reader.query.wait(lambda w: all(w.offset("t", p) >= end for p, end in ends.items()), _CATCH_UP_SECONDS)
    return {"caught_up": reached is not None, "records": sum(ends.values()), "rows": reader.rows()}


def _ring(leader: int, copies: int) -> list[int]:
    return [(leader - 1 + step) % len(_BROKERS) + 1 for step in range(copies)]


_WORDS = {
    "rf1_file": ("RF 1, `sourceId`, ledger in a file", "median <= 0.5 s, p99 <= 1 s"),
    "rf3_file": ("RF 3, `sourceId`, ledger in a file", "median <= 0.5 s, p99 <= 1 s"),
    "rf1_kafka": ("RF 1, `sourceId`, ledger in Kafka", "<= session timeout (6 s) + 2 s"),
    "rf3_kafka": ("RF 3, `sourceId`, ledger in Kafka", "<= session timeout (6 s) + 2 s"),
    "rf1_kafka_stock": ("RF 1, ledger in Kafka, stock log (its default min.isr 2)", "-"),
    "rf3_without_cuts": ("RF 3, without `sourceId`", "-"),
    "rf1_without_cuts": ("RF 1, without `sourceId`", "-"),
    "rf3_native": ("RF 3, Spark's own source", "-"),
    "rf1_native": ("RF 1, Spark's own source", "-"),
}

_LEDGER_SECONDS = 8.0
"""The target of each round with a ledger in Kafka."""
_COLUMNS = (
    *("case", "n", "before", "median gap", "longest", "not over", "plain reader", "beyond", "deaths"),
    *("rows / records", "load", "commit", "target"),
)


def section(result: dict[str, Any]) -> str:
    """Return what a run has to say, for the page of all benchmarks."""
    lines = [_line(name, result[name]) for name in _reported(result)]
    return "\n".join(
        [
            "## Two of six brokers killed under load",
            "",
            "`make bench-stall`: kill -9 of two brokers at any moment of a batch, 1 000 records/s over six partitions,",
            "one led by each broker, trigger 200 ms, session timeout of brokers 6 s. Every case goes through the same",
            "rounds, drawn from one seed: the same pairs of brokers at the same moments. The gap is the longest time",
            "without a finished batch with rows, the batch's own duration included: rows of any partition end it, so",
            "it shows when the living ones are read on, and those of the killed leaders may take longer.",
            f"A round is watched for {WATCH_SECONDS:g} s: a gap that had not ended by then is shown as `>`. A",
            "query that died is started again on its checkpoint. At the end the rows of all batches are counted",
            "against the log. *Load* is the machine's load average in the rounds, median and largest: brokers, load",
            "and Spark themselves, and whoever else was there.",
            "*Plain* is a bare librdkafka reader of all six partitions in the same rounds: with RF 3 Kafka shows no",
            "new record of a partition, whoever leads it, until a dead follower has left its in-sync replicas.",
            "*Beyond* is the median of what ours took longer than that reader, round by round. *Before* is the longest",
            "gap under the same load before the first kill: what the machine takes without a fault, six brokers on its",
            "two cores.",
            "",
            f"| {' | '.join(_COLUMNS)} |",
            f"|{'---|' * len(_COLUMNS)}",
            *lines,
            "",
            f"Rounds longer than {_LEDGER_SECONDS:g} s with a ledger in Kafka: {_missed(result)}.",
            "",
            *(("![gaps by case](../../benchmarks/results/stall.svg)", "") if lines else ()),
            *NOTES,
        ]
    )


def _missed(result: dict[str, Any]) -> str:
    late = [
        f"RF {case[2]}, round {number} ({found['gap_seconds']:.2f} s)"
        for case in ("rf1_kafka", "rf3_kafka")
        if case in result
        for number, found in enumerate(result[case]["rounds"], 1)
        if found["gap_seconds"] > _LEDGER_SECONDS
    ]
    return "; ".join(late) or "none"


def _reported(result: dict[str, Any]) -> list[str]:
    return [name for name in CASES if name in result]


def _line(name: str, case: dict[str, Any]) -> str:
    words, target = _WORDS[name]
    rounds = case["rounds"]
    over = sum(r["censored"] for r in rounds)
    gaps = sorted((r["gap_seconds"], r["censored"]) for r in rounds)
    middle, longest = (statistics.median(gap for gap, _ in gaps), gaps[len(gaps) // 2][1]), gaps[-1]
    loads = sorted(r["load_average"] for r in rounds if "load_average" in r)
    load_seen = f"{statistics.median(loads):g}, {loads[-1]:g}" if loads else "not kept"
    exact = f"{case['rows']} / {case['records']}" if "records" in case else "not counted: cut short"
    cells = [
        words,
        str(len(rounds)),
        f"{case['gap_before_seconds']:.2f} s" if "gap_before_seconds" in case else "not kept",
        _gap(*middle),
        _gap(*longest),
        f"{over} of {len(rounds)}",
        _plain(rounds),
        _beyond(rounds),
        str(case["deaths"]),
    ]
    return f"| {' | '.join(cells)} | {exact} | {load_seen} | {case['commit']} | {target} |"


def _plain(rounds: list[dict[str, Any]]) -> str:
    gaps = [r["plain_gap_seconds"] for r in rounds if "plain_gap_seconds" in r]
    return f"{statistics.median(gaps):.2f} s, {max(gaps):.2f} s" if gaps else "not run"


def _beyond(rounds: list[dict[str, Any]]) -> str:
    more = [r["gap_seconds"] - r["plain_gap_seconds"] for r in rounds if "plain_gap_seconds" in r]
    over = any(r["censored"] for r in rounds)
    return f"{'> ' if over else ''}{statistics.median(more):.2f} s" if more else "not run"


def _gap(seconds: float, censored: bool) -> str:  # noqa: FBT001 - a pair
    return f"{'> ' if censored else ''}{seconds:.2f} s"


def chart(result: dict[str, Any]) -> str:
    """Draw every round of every case."""
    rows = [
        Strip(
            label=_WORDS[name][0].replace("`", "").partition(" (")[0],
            values=tuple(r["gap_seconds"] for r in result[name]["rounds"]),
            censored=tuple(r["censored"] for r in result[name]["rounds"]),
        )
        for name in _reported(result)
    ]
    return strips("Gap after kill -9 of two of six brokers, each round", rows, unit="s")


def main() -> None:
    """Run the cases named, by default all, and write `build/bench/stall.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    result = kept_result("stall")  # cases take minutes each: runs one after the other fill one file
    for name in given.cases:
        say(f"{name}:")
        result["environment"] = environment()
        result[name] = measure(name, given.rounds) | {"commit": result["environment"]["commit"]}
        say(str({key: value for key, value in result[name].items() if key not in ("gap_seconds", "rounds")}))
        say(f"wrote {write_result('stall', result)}")


if __name__ == "__main__":
    main()
