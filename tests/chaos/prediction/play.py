"""Plays scenarios: dead addresses on this machine, real brokers, and starts of real JVM clients."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from discovery.config.client.options import ClientOptions
from discovery.config.java import java_command
from discovery.core.model import parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.core.prediction.forecast import FailureMode, Forecast, forecast
from discovery.doctor.examine import examine
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.jars.download import client_jars
from tests.chaos.prediction.comparison import Judged, Started, judge_starts, starts_needed
from tests.chaos.prediction.scenarios import Scenario
from tests.support.faults import accept_and_hang, black_hole, refused_port

PROGRAM = Path(__file__).with_name("ClientStarts.java")
TOPIC = "foresight"
_EXAMINED_AT_ONCE = 6
_APART_MILLISECONDS = 30
_SPARE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One client to start: what it does with which topic, and how it is configured."""

    name: str
    what: str
    topic: str
    properties: Mapping[str, str]

    @property
    def line(self) -> str:
        """What the program reads."""
        return "\t".join([self.name, self.what, self.topic, *(f"{n}={v}" for n, v in self.properties.items())])


def can_compile() -> bool:
    """Tell whether the Java here can run a source file: a JDK can, a plain runtime cannot."""
    listed = subprocess.run([java_command(), "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
    return "jdk.compiler" in listed.stdout


@contextlib.contextmanager
def dead_addresses(most: int = 12) -> Iterator[Mapping[FailureMode, Sequence[str]]]:
    """Yield addresses that fail in every way, as many of each kind as a list may hold."""
    with contextlib.ExitStack() as stack:
        yield {
            FailureMode.BLACK_HOLE: [stack.enter_context(black_hole()) for _ in range(most)],
            FailureMode.REFUSED: [stack.enter_context(refused_port()) for _ in range(most)],
            FailureMode.SILENT: [stack.enter_context(accept_and_hang()) for _ in range(most)],
            FailureMode.UNRESOLVABLE: [f"gone-{number}.invalid:9092" for number in range(most)],
        }


def addresses_of(scenario: Scenario, living: Sequence[str], dead: Mapping[FailureMode, Sequence[str]]) -> list[str]:
    """Return the list of a scenario."""
    gone = [dead[mode][place] for mode, count in scenario.dead.items() for place in range(count)]
    return [*living[: scenario.living], *gone]


def predict(scenario: Scenario, addresses: Sequence[str]) -> Forecast:
    """Let the doctor look at the list, which it knows nothing about, and say what a start will do.

    It waits for longer than it would for a user: on a machine that plays, a living broker may take seconds to answer.
    """
    patient = Policy(connect_timeout_seconds=5, request_timeout_seconds=20, api_timeout_seconds=25)
    seen = examine(parse_bootstrap_servers(",".join(addresses)), ClientOptions(), patient)
    return forecast(seen.counts, scenario.client.limits)


def play(scenarios: Sequence[Scenario], cluster: LocalKafka, *, sure: int = 4, unsure: int = 40) -> tuple[Judged, ...]:
    """Predict every scenario, start real clients, and compare.

    Args:
        scenarios: All clients of one version start in one JVM, a moment apart.
        cluster: Its brokers are the living addresses; it must have the topic `foresight`.
        sure: How many starts where all should end the same way.
        unsure: How many where some should fail.
    """
    living = [cluster.address(broker) for broker in cluster.living_ids()]
    with dead_addresses() as dead:
        lists = [addresses_of(one, living, dead) for one in scenarios]
        with ThreadPoolExecutor(_EXAMINED_AT_ONCE) as pool:
            predicted = list(pool.map(predict, scenarios, lists))
        judged: list[Judged] = []
        for version in sorted({one.version for one in scenarios}):
            rows = [row for row in zip(scenarios, lists, predicted, strict=True) if row[0].version == version]
            orders = [
                order
                for one, addresses, said in rows
                for order in _orders(one, addresses, starts_needed(said, sure=sure, unsure=unsure))
            ]
            happened = start_clients(version, orders, warm_up=living[0])
            judged += [judge_starts(one.name, one.words, said, happened[one.name]) for one, _, said in rows]
    return tuple(judged)


def _orders(scenario: Scenario, addresses: Sequence[str], starts: int) -> list[Order]:
    properties = {**scenario.properties, "bootstrap.servers": ",".join(addresses)}
    return [Order(name=scenario.name, what=scenario.kind.value, topic=TOPIC, properties=properties)] * starts


def start_clients(
    version: str, orders: Sequence[Order], *, warm_up: str, jars: Sequence[Path] = ()
) -> dict[str, list[Started]]:
    """Start real clients in one JVM and return how each start ended, by order.

    Args:
        version: Of the client.
        orders: What to start.
        warm_up: A living address: the first start loads the client's classes and would be measured.
        jars: Of the client; those of the version if none.
    """
    longest = max(_api_seconds(order) for order in orders)
    path = os.pathsep.join(map(str, jars or client_jars()[version]))
    done = subprocess.run(
        [java_command(), "-Xmx700m", "-XX:+UseSerialGC", "-cp", path, str(PROGRAM), warm_up, str(_APART_MILLISECONDS)],
        input="".join(f"{order.line}\n" for order in orders),
        capture_output=True,
        text=True,
        timeout=2 * longest + len(orders) * _APART_MILLISECONDS / 1000 + _SPARE_SECONDS,
        check=False,
    )
    found: dict[str, list[Started]] = {order.name: [] for order in orders}
    for line in done.stdout.splitlines():
        name, ended, seconds, error = line.split("\t", 3)
        found[name].append(Started(ok=ended == "ok", seconds=float(seconds), error=error))
    if sum(map(len, found.values())) != len(orders):
        raise RuntimeError(f"the program with clients {version} ended with {done.returncode}: {done.stderr[-2000:]}")
    return found


def _api_seconds(order: Order) -> float:
    return int(order.properties.get("default.api.timeout.ms", "60000")) / 1000
