"""The service under faults drawn from seeds: `make chaos-service`, `… tests.chaos.service.rounds FIRST COUNT AT_ONCE`.

A seed makes a plan: faults of brokers as in `soak_service`, and of the service itself (killed, started again while all
brokers are silent, its state file damaged). What must hold, whatever comes:

- once all is healed the service says the truth within a minute;
- what it has served it serves again after a kill, at once and with no broker in reach; its generation never goes back;
- no topic it has served is ever smaller; no unexpected error is logged.

A seed that fails is played again with parts of its plan left out, until nothing more can be: that is what is printed.
"""

import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.seeds import BrokenPromiseError, Plan, damage, drawn, must, shrunk
from tests.chaos.service.soak import BROKERS, HEAL_SECONDS, PARTITIONS, TOPICS, World, freeze, is_true
from tests.support.fakes.mock_cluster import MockCluster
from tests.support.results import environment, say, write_result
from tests.support.service import ServiceProcess, serve_arguments

SEEDS = 200
ALL = TOPICS * PARTITIONS
_FAULTS = ("move", "orphan", "down", "slow", "freeze", "kill", "kill in silence", "damage", "heal")


def plan_of(seed: int) -> Plan:
    """Return the plan of a seed."""
    return drawn(seed, _FAULTS, least=3, most=9)


class Scene:
    """A service, its brokers, and what was seen of it."""

    def __init__(self, kafka: MockCluster, folder: Path) -> None:
        """Start the service; `begin` waits for it."""
        self.world = World(kafka, random.Random(0))
        self.world.make_topics()
        self._folder = folder
        self._arguments = serve_arguments(kafka.bootstrap_servers, folder / "state")
        self.service = self._started()
        self._generation = 0

    def begin(self) -> None:
        """Wait until the first view is complete and on disk."""
        self.heal()
        self.look()

    def play(self, fault: str, seed: int) -> None:
        """Do one thing of the plan, and look for a while what the service says."""
        self.world.draw = random.Random(seed)
        match fault:
            case "kill" | "kill in silence" | "damage":
                self._kill(silent=fault == "kill in silence", damaged=fault == "damage")
            case "freeze":
                freeze(self.service, self.world.draw.uniform(0.2, 2.0))
            case "heal":
                self.heal()
            case _:
                getattr(self.world, fault)()
        for _ in range(self.world.draw.randint(1, 4)):
            self.look()
            time.sleep(0.5)

    def look(self) -> dict[str, Any]:
        """Ask how it is, and hold it to what it has said before."""
        status: dict[str, Any] = self.service.json("/v1/status")
        must(status["generation"] >= self._generation, f"generation {status['generation']} after {self._generation}")
        must(status["partitions"] in {0, ALL} and (status["partitions"] == ALL or not self._generation), f"{status}")
        self._generation = status["generation"]
        return status

    def heal(self) -> None:
        """Let all be well, and wait until the service says so."""
        self.world.heal()
        until = time.monotonic() + HEAL_SECONDS
        while not is_true(self.service, self.world):
            must(time.monotonic() < until, f"not the truth after {HEAL_SECONDS:g} s: {self.service.json('/v1/status')}")
            time.sleep(0.2)

    def end(self) -> None:
        """End the service, and read what it has written."""
        self.service.end()
        written = self.service.log.read_text()
        must("BUG in" not in written, written[-2000:])

    def _kill(self, *, silent: bool, damaged: bool) -> None:
        self.service.end()  # SIGKILL
        if silent:
            for broker in range(1, BROKERS + 1):
                self.world.kafka.call("broker_set_down", broker)
        if damaged:
            damage(self._folder / "state", self.world.draw)
        self.service = self._started()
        if damaged:
            self._generation = 0  # it may know nothing of what it was, and then must learn it again
        elif self._generation:  # with its state damaged and no broker in reach it may have served nothing since
            found = self.look()
            must(found["partitions"] == ALL, f"what it had served was not served after a kill: {found}")

    def _started(self) -> ServiceProcess:
        service = ServiceProcess(*self._arguments, log=self._folder / "service.log")
        try:
            return service.start()
        except BaseException:
            service.end()
            raise


def play(plan: Plan) -> str:
    """Play a plan from a fresh start to a healed end; return what did not hold, nothing if all did."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, MockCluster(BROKERS) as kafka:
        scene = Scene(kafka, Path(folder))
        try:
            scene.begin()
            for fault, seed in plan:
                scene.play(fault, seed)
            scene.heal()
            scene.end()
        except (BrokenPromiseError, httpx.HTTPError) as broken:
            return f"{type(broken).__name__}: {broken}"
        finally:
            scene.service.end()
    return ""


def _played(seed: int) -> dict[str, Any]:
    plan = plan_of(seed)
    broken = play(plan)
    least = shrunk(plan, fails=play) if broken else ()
    say(f"seed {seed}: {broken[:300] or 'held'} ({', '.join(fault for fault, _ in least or plan)})")
    return {"seed": seed, "faults": [fault for fault, _ in plan], "broken": broken[:500], "least": list(least)}


def main(first: int = 1, count: int = SEEDS, at_once: int = 3) -> int:
    """Play the seeds, some at once, shrink what fails; `build/bench/chaos_service.json` holds those that are over."""
    seen: list[dict[str, Any]] = []
    found = environment()
    with ThreadPoolExecutor(at_once) as pool:
        for one in as_completed([pool.submit(_played, seed) for seed in range(first, first + count)]):
            seen.append(one.result())
            seen.sort(key=lambda one: int(one["seed"]))
            write_result("chaos_service", {"seeds": seen, "environment": found})
    return 1 if any(one["broken"] for one in seen) else 0


def section(result: dict[str, Any]) -> str:
    """Return these figures as a section of the benchmarks' page."""
    seeds = result["seeds"]
    failed = [one for one in seeds if one["broken"]]
    faults = Counter(fault for one in seeds for fault in one["faults"])
    found = "".join(
        f"\n- seed {one['seed']}: {', '.join(fault for fault, _ in one['least'])}: {one['broken'][:200]}"
        for one in failed
    )
    rows = "\n".join(f"| {fault} | {faults[fault]} |" for fault in _FAULTS)
    return f"""## The service under chaos

`make chaos-service`: plans drawn from seeds, {faults.total()} faults in {len(seeds)} seeds, a service of its own for
each. **{len(seeds) - len(failed)} of {len(seeds)} held**: the truth within {HEAL_SECONDS:g} s once all was healed,
what was served served again after a kill, no generation back, no unexpected error.
{found}

| fault | played |
|---|---|
{rows}
"""


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:4])))
