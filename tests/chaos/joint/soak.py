"""Source, service and sink together for hours: `make soak-joint` (an hour), `… soak_joint 20 7`.

Arguments: minutes, seed. The scene and the judge of `make chaos`, under those of its faults that leave every process of
ours and Spark's alive: what is measured is the same process from beginning to end. A sample is taken after each round,
when all is healed and every promise held.
"""

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.heaps import FEW_EVENTS, Heaps, lines_of
from tests.chaos.joint.rounds import staged
from tests.chaos.joint.scene import EXECUTOR, Scene
from tests.chaos.seeds import drawn
from tests.chaos.slope import Series, growing, grows, table
from tests.support.family import command_line, descendants, descriptors, resident_mib, threads
from tests.support.heaps import armed
from tests.support.results import environment, say, write_result

MINUTES = 60.0
FAULTS = ("kill brokers", "freeze brokers", "restart a broker", "reassign", "freeze the service")
PROCESSES = {
    "source runner": "python_streaming_source_runner",
    "Python workers": "pyspark.daemon",
    "driver, Python": "spark.driver_main",
    "driver, JVM": "deploy.SparkSubmit",
    "executors, JVM": EXECUTOR,
}
"""Title, and a word of the command line; several processes of a kind count together."""
_HEAPS_EVERY = 4
"""Rounds: what heaps hold is known only after a collection, which costs each process a moment."""
_COUNTS: dict[str, Callable[[int], float]] = {"threads": threads, "open files": descriptors}
Result = dict[str, Any]


def soak(minutes: float, seed: int) -> Result:
    """Run for so long, or until a promise does not hold; return what each round took, and what grew."""
    draw, series, rounds = random.Random(seed), Series(), list[Result]()
    broken = ""
    with (
        tempfile.TemporaryDirectory(prefix="heaps-") as folder,
        armed(Path(folder), **FEW_EVENTS),
        staged("soak") as stage,
    ):
        heaps, began = Heaps(Path(folder)), time.monotonic()
        while not broken and time.monotonic() - began < minutes * 60:
            plan = drawn(draw.randrange(1 << 30), FAULTS, least=1, most=3)
            done = stage.play(plan)
            broken = done["broken"]
            rounds.append({"faults": [fault for fault, _ in plan], **done})
            if not broken:
                at = time.monotonic() - began
                series.add(at, sample(stage.scene) | {"visible again after, s": done["progress"]})
                if len(rounds) % _HEAPS_EVERY == 0:
                    heaps.add(at, _processes(stage.scene))
                say(f"round {len(rounds)}, {rounds[-1]['faults']}: {done['seconds']} s, visible {done['progress']} s")
        broken = broken or stage.finish()
    ended = sum(len(one["ended"]) for one in rounds)
    return {
        "minutes": minutes,
        "seed": seed,
        "rounds": len(rounds),
        "records": max((one.get("records", 0) for one in rounds), default=0),
        "ended": ended,
        "broken": broken,
        "slopes": series.slopes(),
        **heaps.document(),
    }


def _processes(scene: Scene) -> dict[str, list[int]]:
    """Return every process of the scene that is not a broker's, by kind."""
    family = {pid: command_line(pid) for pid in descendants(os.getpid())}
    kinds = {title: [pid for pid, command in family.items() if word in command] for title, word in PROCESSES.items()}
    return {"service": [scene.service.pid], **kinds}


def sample(scene: Scene) -> dict[str, float]:
    """Measure the processes, and what is on the disk, now."""
    kinds = _processes(scene)
    found = {f"{title}: memory, MiB": sum(map(resident_mib, pids)) for title, pids in kinds.items()}
    for name, measure in _COUNTS.items():
        found |= {f"{title}: {name}": sum(map(measure, kinds[title])) for title in ("service", "source runner")}
    states = [scene.folder / "service", scene.folder / "state"]
    return {
        **found,
        "state on disk, kB": _kilobytes(states),
        "checkpoint, kB": _kilobytes([scene.folder / "checkpoint"]),
    }


def _kilobytes(folders: Sequence[Path]) -> float:
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file()) / 1000


def section(result: Result) -> str:
    """Return these figures as a section of the benchmarks' page."""
    held = "every promise held each time" if not result["broken"] else f"the last one did not hold: {result['broken']}"
    heaps = result.get("heaps", {})
    grown = [title for title, done in {**result["slopes"], **heaps}.items() if grows(done)]
    return "\n".join(
        [
            "## Source, service and sink for hours",
            "",
            f"`make soak-joint`, {result['minutes']:g} minutes, seed {result['seed']}: the scene of `make chaos` under",
            f"one to three of these faults a round: {', '.join(FAULTS)}. After each of",
            f"{result['rounds']} rounds all is healed; {held}. {result['records']:,} records were read, none lost and",
            f"none twice; the query ended {result['ended']} times. Measured between rounds; growth is that of a line",
            "through means of twelfths, after a quarter to warm up.",
            "",
            *table(result["slopes"]),
            "",
            *lines_of(result),
            *([f"Sure to have grown in this run: {'; '.join(grown)}.", ""] if grown else []),
        ]
    )


def failures(result: Result) -> list[str]:
    """Return what may not happen, and did."""
    return [
        *([result["broken"]] if result["broken"] else []),
        *(f"grows: {one}" for one in growing({**result["slopes"], **result.get("heaps", {})})),
    ]


def main(minutes: float = MINUTES, seed: int = 1) -> int:
    """Run, write `build/bench/soak_joint.json`, tell; 1 where a promise did not hold or something grows."""
    done = environment()
    result = {**soak(minutes, seed), "environment": done}
    say(f"written to {write_result('soak_joint', result)}")
    print(section(result))
    failed = failures(result)
    for one in failed:
        say(one)
    return 1 if failed else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(float(arguments[0]) if arguments else MINUTES, int(arguments[1]) if arguments[1:] else 1))
