"""`make chaos-predict`: prints what was predicted beside what happened; exit code 1 where a prediction was wrong.

`python -m tests.chaos.prediction [SCENARIOS] [REMOVALS] [SEED]`, 60, 40 and 1 by default; with 0 of one kind, what an
earlier run with this seed found of it stays in the result. Half of the removals must be called safe, and half not safe:
while there are fewer of one verdict, up to half as many removals more are played, and fewer in the end is exit code 1.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.chaos.prediction.comparison import Judged
from tests.chaos.prediction.play import TOPIC, play
from tests.chaos.prediction.removals import Removed, draw_removals, make_topics, remove
from tests.chaos.prediction.scenarios import MOST_LIVING, VERSIONS, draw
from tests.support.faults import refused_port
from tests.support.results import environment

RESULTS = Path("build/bench/prediction.json")


def main(scenarios: int = 60, removals: int = 40, seed: int = 1) -> int:
    """Play everything and say how many predictions were right."""
    begun = time.monotonic()
    with LocalKafka(ClusterSettings(brokers=MOST_LIVING)) as cluster:
        cluster.create_topic(TOPIC, 2, replication_factor=3)
        judged = play(draw(scenarios, seed=seed), cluster)
        for one in judged:
            _show(one)
        removed = list(_removals(cluster, removals, seed))
    _write(judged, removed, seed)
    right = [one for one in judged if one.outcome_right]
    timely = [one for one in judged if one.time_right]
    gate, verdicts = [one for one in removed if one.right], Counter(one.verdict for one in removed)
    print(
        f"\n{len(judged)} lists: outcome right {len(right)}, time within a factor of 1.5 {len(timely)}; "
        f"{len(removed)} removals ({dict(verdicts)}): right {len(gate)}; {time.monotonic() - begun:.0f} s"
    )
    return 0 if len(right) == len(judged) and len(gate) == len(removed) and _is_enough(verdicts, removals) else 1


def _removals(cluster: LocalKafka, count: int, seed: int) -> Iterator[Removed]:
    if count:
        make_topics(cluster)
    verdicts: Counter[str] = Counter()
    with refused_port() as refused:
        dead = (refused, "gone.invalid:9092")
        for number, case in enumerate(draw_removals(MOST_LIVING, count + count // 2, seed=seed)):
            if number >= count and _is_enough(verdicts, count):
                return
            one = remove(cluster, case, VERSIONS[number % len(VERSIONS)], dead)
            verdicts[one.verdict] += 1
            _show_removal(one)
            yield one


def _is_enough(verdicts: Counter[str], count: int) -> bool:
    return min(verdicts["safe"], verdicts["not"]) >= count // 2


def _show(one: Judged) -> None:
    said = f"{one.predicted_failure:7.1%} {one.predicted_seconds:5.1f} s"
    seen = f"{one.failed:2}/{one.starts:<2} {one.seconds:5.1f} s"
    marks = ("ok " if one.outcome_right else "WRONG ") + ("" if one.time_right else "TIME ")
    print(f"said {said}   happened {seen}   {marks:<6} {one.words}", flush=True)


def _show_removal(one: Removed) -> None:
    mark = "WRONG" if not one.right else "?" if one.verdict == "unknown" else "ok "
    print(
        f"remove {one.words}; client {one.version}: {one.verdict}, said {one.predicted}, broken {one.broken}  {mark}",
        flush=True,
    )
    if one.verdict == "unknown" or not one.right:
        print(*(f"    {finding}" for finding in one.findings), sep="\n", flush=True)


def _write(judged: Sequence[Judged], removed: Sequence[Removed], seed: int) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    kept = before if before.get("seed") == seed else {}
    found = {
        "environment": environment(),
        "seed": seed,
        "lists": [asdict(one) for one in judged] or kept.get("lists", []),
        "removals": [asdict(one) for one in removed] or kept.get("removals", []),
    }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
