"""The service for hours, while brokers vanish, freeze and change leaders: `make soak` (an hour), `… soak_service 20 7`.

Arguments: minutes, seed. librdkafka's own mock brokers, in a process of their own, so that nothing but the service
can grow and nothing but Python is needed. Faults are drawn from the seed; after each round all is healed, and what the
service then says must be the truth, however long it takes: a round that is not over in `HEAL_SECONDS` is a failure.
"""

import itertools
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.heaps import FEW_EVENTS, Heaps, lines_of
from tests.chaos.slope import Series, growing, grows, table
from tests.support.fakes.mock_cluster import MockCluster
from tests.support.family import descriptors, resident_mib, threads
from tests.support.heaps import armed
from tests.support.results import environment, say, write_result
from tests.support.service import ServiceProcess, serving

MINUTES = 60.0
SAMPLE_SECONDS = 2.0
HEAL_SECONDS = 60.0
BROKERS, TOPICS, PARTITIONS = 3, 4, 6
FOLLOWERS = 4
_HEAPS_EVERY = 4
"""Rounds."""
_ASKED = 10
_SLOW_MILLISECONDS = (0, 50, 400, 1500)
Result = dict[str, Any]
MEASURES = ("memory, MiB", "threads", "open files", "state on disk, kB", "answer to /v1/status, ms")


@dataclass(slots=True)
class World:
    """The brokers, and what is true of them once all is well."""

    kafka: MockCluster
    draw: random.Random
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)

    def make_topics(self) -> None:
        """Create the topics, with leaders in turn."""
        for topic in (f"t{number}" for number in range(TOPICS)):
            self.kafka.call("topic_create", topic, PARTITIONS, BROKERS)
            for partition in range(PARTITIONS):
                self.lead(topic, partition, partition % BROKERS + 1)

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Give a partition a leader."""
        self.kafka.call("partition_set_leader", topic, partition, broker)
        self.leaders[topic, partition] = broker

    def move(self) -> None:
        """Move some leaders."""
        for topic, partition in self.draw.sample(sorted(self.leaders), 5):
            self.lead(topic, partition, self.draw.randint(1, BROKERS))

    def orphan(self) -> None:
        """Take a partition's leader away; the truth that it returns to stays."""
        topic, partition = self.draw.choice(sorted(self.leaders))
        self.kafka.call("partition_set_leader", topic, partition, -1)

    def down(self) -> None:
        """Take one broker, or all of them."""
        for broker in self.draw.sample(range(1, BROKERS + 1), self.draw.choice((1, 1, 2, BROKERS))):
            self.kafka.call("broker_set_down", broker)

    def slow(self) -> None:
        """Let one broker answer late."""
        broker = self.draw.randint(1, BROKERS)
        self.kafka.call("broker_set_rtt", broker, self.draw.choice(_SLOW_MILLISECONDS))

    def heal(self) -> None:
        """Undo all but the moves."""
        for broker in range(1, BROKERS + 1):
            self.kafka.call("broker_set_up", broker)
            self.kafka.call("broker_set_rtt", broker, 0)
        for (topic, partition), broker in self.leaders.items():
            self.kafka.call("partition_set_leader", topic, partition, broker)


def soak(minutes: float, seed: int) -> Result:
    """Run for so long; return samples, rounds, and how long each took to heal."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        world = World(stack.enter_context(MockCluster(BROKERS)), random.Random(seed))
        world.make_topics()
        with armed(folder, **FEW_EVENTS):
            service = stack.enter_context(serving(world.kafka.bootstrap_servers, folder))
        stack.enter_context(_following(service))
        faults = (
            world.move,
            world.orphan,
            world.down,
            world.slow,
            lambda: freeze(service, world.draw.uniform(0.5, 3.0)),
        )
        watch, heaps = Watch(service, folder / "state"), Heaps(folder)
        rounds = []
        began = time.monotonic()
        until = began + minutes * 60
        for number in itertools.count(1):
            for fault in world.draw.choices(faults, k=world.draw.randint(1, 3)):
                fault()
                watch.pause(world.draw.uniform(1.0, 5.0))
            world.heal()
            rounds.append({"round": number, "healed_seconds": watch.wait(lambda: is_true(service, world))})
            if number % _HEAPS_EVERY == 0:
                heaps.add(time.monotonic() - began, {"service": [service.pid]})
            if time.monotonic() >= until:
                break
        log = service.log.read_text()
    return {
        "minutes": minutes,
        "seed": seed,
        "rounds": rounds,
        "generation_went_back": watch.went_back,
        "unexpected_errors": log.count("BUG in"),
        "slopes": watch.series.slopes(),
        **heaps.document(),
    }


class Watch:
    """Samples of the service, taken whenever somebody waits."""

    def __init__(self, service: ServiceProcess, state: Path) -> None:
        """Begin without a sample."""
        self._service, self._state = service, state
        self._began = time.monotonic()
        self.series = Series()
        self._generation = 0
        self.went_back = 0

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, SAMPLE_SECONDS))
            self._sample()

    def wait(self, holds: Callable[[], bool]) -> float | None:
        """Wait until something holds; return the seconds, None where it took too long."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > HEAL_SECONDS:
                return None
            time.sleep(0.2)
        self._sample()
        return round(time.monotonic() - began, 1)

    def _sample(self) -> None:
        pid = self._service.pid
        asked = []
        for _ in range(_ASKED):
            began = time.perf_counter()
            found = self._service.json("/v1/status")
            asked.append((time.perf_counter() - began) * 1000)
        self.went_back += found["generation"] < self._generation
        self._generation = found["generation"]
        state = sum(file.stat().st_size for file in self._state.rglob("*") if file.is_file()) / 1000
        seen = (resident_mib(pid), threads(pid), descriptors(pid), state, statistics.median(asked))
        self.series.add(time.monotonic() - self._began, dict(zip(MEASURES, seen, strict=True)))


def _following(service: ServiceProcess) -> ExitStack:
    """Follow it as queries do, until the stack is left."""
    ended = threading.Event()
    followers = [threading.Thread(target=_follow, args=(service, ended), daemon=True) for _ in range(FOLLOWERS)]
    for follower in followers:
        follower.start()
    stack = ExitStack()
    for follower in followers:
        stack.callback(follower.join, 40)
    stack.callback(ended.set)
    return stack


def _follow(service: ServiceProcess, ended: threading.Event) -> None:
    found: dict[str, Any] = {"version": 0, "epoch": ""}
    with httpx.Client(base_url=service.api, timeout=35, trust_env=False) as client:
        while not ended.is_set():
            try:
                answer = client.get(
                    "/v1/follow", params={"version": found["version"], "epoch": found["epoch"], "wait": "5s"}
                )
                found = answer.json() if answer.is_success else found
            except httpx.HTTPError:
                ended.wait(0.5)


def freeze(service: ServiceProcess, seconds: float) -> None:
    """Stop the service's process for a while."""
    service.send(signal.SIGSTOP)
    time.sleep(seconds)
    service.send(signal.SIGCONT)


def is_true(service: ServiceProcess, world: World) -> bool:
    """Tell whether the service says what is: all brokers well, every leader the right one, nothing parked."""
    status = service.json("/v1/status")
    if (status["state"], status["brokers"]["healthy"], status["parked"]) != ("fresh", BROKERS, 0):
        return False
    found = {
        (topic, partition["partition"]): partition["leader_id"]
        for topic in sorted({name for name, _ in world.leaders})
        for partition in service.json(f"/v1/topics/{topic}")["partitions"]
    }
    return found == world.leaders


def section(result: Result) -> str:
    """Return these figures as a section of the benchmarks' page."""
    healed = [one["healed_seconds"] for one in result["rounds"]]
    known = sorted(seconds for seconds in healed if seconds is not None) or [HEAL_SECONDS]
    grown = any(map(grows, {**result["slopes"], **result.get("heaps", {})}.values()))
    over = len(healed) - healed.count(None)
    return "\n".join(
        [
            "## The service for hours",
            "",
            f"`make soak`, {result['minutes']:g} minutes, seed {result['seed']}: {FOLLOWERS} followers, {BROKERS} mock",
            "brokers that vanish, answer late, lose and swap leaders, and a service that is frozen now and then. After",
            f"each of {len(healed)} rounds all is healed, and the service's view must be the truth within",
            f"{HEAL_SECONDS:g} s: it was {over} times, median {statistics.median(known):g} s, longest",
            f"{known[-1]:g} s. Generations went back {result['generation_went_back']} times; unexpected errors:",
            f"{result['unexpected_errors']}. Growth is that of a line through means of twelfths, after a quarter to",
            "warm up.",
            "",
            *table(result["slopes"]),
            "",
            *lines_of(result),
            *(["What grew in this run is not explained yet.", ""] * (grown and "remarks" not in result)),
        ]
    )


def failures(result: Result) -> list[str]:
    """Return what may not happen, and did."""
    unhealed = [one["round"] for one in result["rounds"] if one["healed_seconds"] is None]
    return [
        *(f"round {number} did not heal within {HEAL_SECONDS:g} s" for number in unhealed),
        *(["generations went back"] * bool(result["generation_went_back"])),
        *(["unexpected errors"] * bool(result["unexpected_errors"])),
        *(f"grows: {title}" for title in growing({**result["slopes"], **result.get("heaps", {})})),
    ]


def main(minutes: float = MINUTES, seed: int = 1) -> int:
    """Run, write `build/bench/soak_service.json`, tell; 1 where something failed or grows."""
    result = {**soak(minutes, seed), "environment": environment()}
    say(f"written to {write_result('soak_service', result)}")
    print(section(result))
    failed = failures(result)
    for one in failed:
        say(one)
    return 1 if failed else 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main(float(arguments[0]) if arguments else MINUTES, int(arguments[1]) if arguments[1:] else 1))
