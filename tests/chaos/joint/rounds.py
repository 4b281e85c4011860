"""Source, service and sink together under faults drawn from seeds: `make chaos`, `… chaos_joint FIRST COUNT`.

A seed is a *round* of two to four faults in a scene that goes on (`joint/scene.py`); then all is healed, and every
promise must hold before the next round begins (`joint/promises.py`):

- the service says what the brokers say, within a minute and a half;
- every record acknowledged until then is visible to a reader of committed records, once;
- no transaction is open, no unexpected error is logged, no process too many is there.

A scene lasts for some rounds; its end is read a second time from the beginning. A round that fails is played again in
a scene of its own with parts of its plan left out, until nothing more can be. A deleted topic keeps its promise only
as far as it was read: `onTopicRecreated=restart` says so; nothing of it may come twice.
"""

import contextlib
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import KafkaException

from discovery.core.errors import DiscoveryError
from discovery.core.plural import counted
from tests.chaos.joint.faults import DRAWN, DRAWN_AT_FIRST, MENU, Faults
from tests.chaos.joint.promises import Judge
from tests.chaos.joint.scene import Scene
from tests.chaos.seeds import Plan, drawn, shrunk
from tests.support.results import environment, kept_result, say, write_result

SEEDS = 200
ROUNDS_A_SCENE = 50
NAME = "chaos_joint"
KEPT = Path("build/chaos")
BROKEN = (AssertionError, httpx.HTTPError, KafkaException, DiscoveryError)


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    return drawn(seed, DRAWN_AT_FIRST if seed <= SEEDS else DRAWN, least=2, most=4)


class Stage:
    """A scene with its faults and its judge; what failed in it is kept."""

    def __init__(self, scene: Scene) -> None:
        """Wait until the first rows are through."""
        self.scene = scene
        self._faults, self._judge = Faults(scene), Judge(scene)
        self._judge.begin()

    def play(self, plan: Plan) -> dict[str, Any]:
        """Play one round; return how long it took, and what did not hold: nothing if all did."""
        began, ends = time.monotonic(), len(self.scene.ends)
        found: dict[str, Any] = {"broken": ""}
        try:
            for fault, seed in plan:
                self._faults.play(fault, seed)
            self.scene.heal()
            found["healed"] = round(time.monotonic() - began, 1)
            held = self._judge.hold()
            found["records"] = self.scene.account.total()
            found["twice_in_source"] = sum(count > 1 for count in self.scene.account.written.values())
            found |= {"truth": held.truth_seconds, "progress": held.progress_seconds, "processes": held.processes}
        except BROKEN as broken:
            found["broken"] = _sentence(broken)
        return {**found, "seconds": round(time.monotonic() - began, 1), "ended": self.scene.ends[ends:]}

    def finish(self) -> str:
        """End the load and compare once more from the beginning; return what did not hold."""
        try:
            self._judge.finish()
        except BROKEN as broken:
            return _sentence(broken)
        return ""


def _sentence(broken: BaseException) -> str:
    return f"{type(broken).__name__}: {broken}"[:2000]


@contextlib.contextmanager
def staged(name: str) -> Iterator[Stage]:
    """Yield a stage of its own; its logs stay in `build/chaos/NAME`."""
    with (
        tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder,
        Scene(Path(folder)) as scene,
    ):
        try:
            yield Stage(scene)
        finally:
            _keep(scene, KEPT / name)


def _keep(scene: Scene, kept: Path) -> None:
    """Copy what was written, for whoever looks into it."""
    shutil.rmtree(kept, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.jar", "warehouse")
    with contextlib.suppress(OSError, shutil.Error):
        shutil.copytree(scene.folder, kept, ignore=ignored)
        shutil.copytree(scene.cluster.folder / "logs", kept / "brokers")


def alone(plan: Plan, name: str) -> str:
    """Play one plan in a scene of its own; return what did not hold."""
    with staged(name) as stage:
        return str(stage.play(plan)["broken"]) or stage.finish()


def run(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Play the seeds, scene after scene, a new one after a failure; yield what was seen of each."""
    end = first + count
    while first < end:
        for found in _scene(first, min(end, first + ROUNDS_A_SCENE)):
            first = found["seed"] + 1
            yield found


def _scene(first: int, end: int) -> Iterator[dict[str, Any]]:
    """Play seeds in one scene, up to the first that fails; the last one tells also how the scene ended."""
    with staged(f"scene-{first}") as stage:
        for seed in range(first, end):
            plan = plan_of(seed)
            found = {"seed": seed, "scene": first, "faults": [fault for fault, _ in plan], **stage.play(plan)}
            if not found["broken"] and seed == end - 1:
                found["broken"] = stage.finish()
            yield found
            if found["broken"]:
                return


def _least(seed: int, scene: int) -> dict[str, Any]:
    """Say what of a failed round is needed for the failure (nothing: it held alone), and how to see it again."""
    plan = plan_of(seed)
    if alone(plan, f"seed-{seed}"):
        least = shrunk(plan, fails=lambda part: alone(part, f"seed-{seed}-shrunk"))
        return {"least": list(least), "again": f"make chaos FIRST={seed} COUNT=1"}
    return {"least": [], "again": _again(seed, scene)}


def _again(seed: int, scene: int) -> str:
    return f"make chaos FIRST={scene} COUNT={seed - scene + 1}"


def main(first: int = 1, count: int = SEEDS) -> int:
    """Play the seeds, then shrink what failed; `build/bench/chaos_joint.json` keeps all, of earlier runs too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as every other end: what was started is stopped
    found, broken = environment(), []
    for one in run(first, count):
        say(_line(one))
        _write(one, found)
        broken += [one] if one["broken"] else []
    for one in broken:
        least = _least(one["seed"], one["scene"])
        say(f"seed {one['seed']}: least {least['least']}; again: {least['again']}")
        _write(one | least, found)
    return 1 if broken else 0


def _write(one: dict[str, Any], found: dict[str, Any]) -> None:
    seen = {other["seed"]: other for other in kept_result(NAME).get("seeds", ())} | {one["seed"]: one}
    write_result(NAME, {"seeds": [seen[seed] for seed in sorted(seen)], "environment": found})


def _line(one: dict[str, Any]) -> str:
    times = f"{one['seconds']:5.1f} s, progress {one.get('progress', '-')} s, truth {one.get('truth', '-')} s"
    ended = f"; query started again: {one['ended'][0][:150]!r}" if one["ended"] else ""
    again = f"\n  BROKEN {one['broken']}" if one["broken"] else ""
    count = one.get("twice_in_source", 0)
    twice = f"; {counted(count, 'record')} came as often as a source held it" if count else ""
    return f"seed {one['seed']}: {times} [{', '.join(one['faults'])}]{twice}{ended}{again}"


def _counted(records: int) -> str:
    return f", {records} records read; in rounds that held none lost and none twice" if records else ""


def section(result: dict[str, Any]) -> str:
    """Return these figures as a section of the benchmarks' page."""
    seeds = result["seeds"]
    held = [one for one in seeds if not one["broken"]]
    faults = Counter(fault for one in seeds for fault in one["faults"])
    rows = []
    for fault in MENU:
        seconds = [one["progress"] for one in held if fault in one["faults"]]
        times = f"{statistics.median(seconds):.1f} s | {max(seconds):.1f} s" if seconds else "- | -"
        rows.append(f"| {fault} | {faults[fault]} | {times} |")
    broken = "".join(
        f"\n- seed {one['seed']}: {one['broken'][:200]}{'; it held alone' if one.get('least') == [] else ''}; again:"
        f" `{one.get('again', _again(one['seed'], one['scene']))}`"
        for one in seeds
        if one["broken"]
    )
    ended = sum(len(one["ended"]) for one in seeds)
    scenes = {one["scene"]: one.get("records", 0) for one in held}  # the last round of each has seen all
    extent = f"{faults.total()} faults in {len(scenes)} scenes{_counted(sum(scenes.values()))}"
    return f"""## Source, service and sink together under chaos

`make chaos`: five brokers, `serve`, a query on two executors of a standalone Spark that follows the service and copies
three topics through the exactly-once sink, and a load that notes every acknowledgement. A seed is a round of two to
four faults; after it all is healed, and every record acknowledged until then must be visible to a committed reader,
once, the service must say what the brokers say, and no transaction, process or unexpected error may be left.
**{len(held)} of {len(seeds)} rounds held**, {extent}.
The query ended {ended} times and was started again on its checkpoint. Progress: seconds from the end of the healing
until all that was acknowledged by then was visible.
{broken}

| fault | played | progress, median | longest |
|---|---|---|---|
{chr(10).join(rows)}

{result.get("found", "")}
"""


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
