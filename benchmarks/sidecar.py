"""The figures of the service: `python -m benchmarks.sidecar [PART…]`.

Except in the part `real`, Kafka is played in the service's own process, so that the brokers do not share its cores;
memory and CPU include it.
"""

import asyncio
import json
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.keeper.processes import resident_bytes
from discovery.localkafka.properties import ClusterSettings
from tests.support.family import cpu_seconds
from tests.support.helpers import eventually
from tests.support.results import environment
from tests.support.service import ServiceProcess, serving

RESULT = Path(__file__).parent / "results" / "sidecar.json"
PROGRAM = ("-m", "tests.support.fakes.service_main")
WATCHERS = 10_000
KILLS = 100
PARTITIONS = 1_000
REST_SECONDS = 15.0
SCRAPES = 500
SMALL = 6
"""Partitions of a second topic."""
FORGOTTEN_SECONDS = 31.0
"""A service keeps offsets fresh for 30 s after the last question about them."""
READERS = {
    "a_small_query": "&topics=small&isolation=read_uncommitted",
    "a_query_of_all": "&topics=t,small&isolation=read_uncommitted",
    "a_follower": "",
}
"""What they ask for; the last one asks for all topics and both ends, as `kafka-discovery watch` does."""


def service(folder: Path, topics: int, rhythm: str) -> ServiceProcess:
    return ServiceProcess(str(folder / "state"), "0", str(topics), rhythm, log=folder / "log", program=PROGRAM)


def resident_mb(pid: int) -> float:
    return (resident_bytes(pid) or 0) / 1e6


def settled(one: ServiceProcess, partitions: int) -> int:
    """Wait until all is known, and return the generation."""
    eventually(lambda: one.json("/v1/status").get("partitions") == partitions, 120, "all partitions")
    eventually(lambda: one.json("/v1/status")["parked"] == 0, 120, "all offsets")
    while True:
        found = one.json("/v1/status")["generation"]
        time.sleep(6)  # topic ids come every five seconds, and the first ones make a generation
        if found == one.json("/v1/status")["generation"]:
            return int(found)


def when_started(one: ServiceProcess) -> Any:
    """Return the first status it gives; before the loop has begun it is 503."""
    while (answer := one.get("/v1/status")).status_code == 503:  # noqa: PLR2004
        pass
    return answer.json()


def watchers(folder: Path) -> dict[str, Any]:
    """Ten thousand wait; one change; how long until the last has it, and what a waiter costs."""
    with service(folder, 1, "calm") as one:
        generation = settled(one, 3)
        before = resident_mb(one.pid)
        host, _, port = one.api.removeprefix("http://").partition(":")
        request = f"GET /v1/watch?generation={generation}&wait=60s HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

        async def run() -> tuple[float, list[float], int]:
            connections = []
            for _ in range(WATCHERS // 100):
                opening = [asyncio.open_connection(host, int(port)) for _ in range(100)]
                connections += await asyncio.gather(*opening)
            for _, writer in connections:
                writer.write(request)
            while f"api_waiters {WATCHERS}.0" not in (await asyncio.to_thread(one.probe, "/metrics")).text:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.2)
            during = resident_mb(one.pid)
            heard: list[float] = []
            good = 0

            async def hear(reader: asyncio.StreamReader) -> None:
                nonlocal good
                status = await reader.readline()
                heard.append(time.monotonic())
                good += b"200" in status

            hearing = [asyncio.ensure_future(hear(reader)) for reader, _ in connections]
            await asyncio.to_thread(one.say, "add_partitions t0 4")
            changed = time.monotonic()
            await asyncio.gather(*hearing)
            for _, writer in connections:
                writer.close()
            return during, [at - changed for at in heard], good

        during, delays, good = asyncio.run(run())
        first = min(delays)
        return {
            "watchers": WATCHERS,
            "answered_with_the_change": good,
            "first_seconds": round(first, 3),
            "last_seconds": round(max(delays), 3),
            "spread_seconds": round(max(delays) - first, 3),
            "kilobytes_per_waiter": round((during - before) * 1000 / WATCHERS, 1),
        }


def rest(folder: Path, topics: int) -> dict[str, Any]:
    """Memory and CPU with nobody asking, and the time of a scrape."""
    with service(folder, topics, "calm") as one:
        settled(one, 3 * topics)
        share = cpu_percent(one)
        return {
            "partitions": 3 * topics,
            "resident_megabytes": round(resident_mb(one.pid), 1),
            "cpu_percent_of_a_core": share,
            **scrapes(one),
        }


def scrapes(one: ServiceProcess) -> dict[str, float]:
    """How long scrapes take, one after the other."""
    took = []
    with httpx.Client(trust_env=False) as client:
        for _ in range(SCRAPES):
            at = time.perf_counter()
            client.get(one.probes + "/metrics", timeout=30).raise_for_status()
            took.append(time.perf_counter() - at)
    return {
        "scrape_milliseconds_p50": round(1000 * statistics.median(took), 1),
        "scrape_milliseconds_p99": round(1000 * statistics.quantiles(took, n=100)[-1], 1),
        "scrape_milliseconds_max": round(1000 * max(took), 1),
    }


def real(folder: Path) -> dict[str, Any]:
    """CPU with librdkafka and real brokers at rest and with readers; then scrapes while all brokers are frozen."""
    with LocalKafka(ClusterSettings(brokers=3)) as cluster:
        cluster.create_topic("t", PARTITIONS - SMALL)
        cluster.create_topic("small", SMALL)
        with serving(cluster.bootstrap_servers, folder) as one:
            settled(one, PARTITIONS)
            found: dict[str, Any] = {"partitions": PARTITIONS, "cpu_percent_at_rest": cpu_percent(one)}
            found["resident_megabytes"] = round(resident_mb(one.pid), 1)
            for name, wanted in READERS.items():
                found[f"cpu_percent_with_{name}"] = with_reader(one, wanted)
            found["resident_megabytes_after_readers"] = round(resident_mb(one.pid), 1)
            found |= scrapes(one)
            cluster.pause(cluster.broker_ids)
            try:
                eventually(lambda: one.json("/v1/status")["state"] not in {"fresh", "cold"}, 60, "the view to age")
                found["frozen"] = scrapes(one)
            finally:
                cluster.resume(cluster.broker_ids)
    return found


def with_reader(one: ServiceProcess, wanted: str) -> float:
    """Return the share of a core while somebody follows; the readers before are forgotten first."""
    time.sleep(FORGOTTEN_SECONDS)
    over = threading.Event()
    reader = threading.Thread(target=follow, args=(one, over, wanted))
    reader.start()
    try:
        time.sleep(3)
        return cpu_percent(one)
    finally:
        over.set()
        reader.join()


def follow(one: ServiceProcess, over: threading.Event, wanted: str) -> None:
    """Ask for what changed, as a query does."""
    found: dict[str, Any] = {"version": 0, "epoch": ""}
    while not over.is_set():
        found = one.json(f"/v1/follow?version={found['version']}&epoch={found['epoch']}&wait=1s{wanted}")


def cpu_percent(one: ServiceProcess) -> float:
    """Share of one core over a while."""
    began, used = time.monotonic(), cpu_seconds(one.pid)
    time.sleep(REST_SECONDS)
    return round(100 * (cpu_seconds(one.pid) - used) / (time.monotonic() - began), 1)


def kills(folder: Path) -> dict[str, Any]:
    """Kill -9 at random moments under churn and start again: generations and epochs."""
    generation, epochs, backwards = 0, set(), 0
    for round_number in range(KILLS):
        with service(folder, 1, "fast") as one:
            found = when_started(one)
            backwards += found["generation"] < generation
            epochs.add(found["epoch"])
            until = time.monotonic() + random.uniform(0.05, 0.6)
            size = 4
            while time.monotonic() < until:
                one.say(f"add_partitions t0 {size}")
                size += 1
                generation = max(generation, one.json("/v1/status")["generation"])
            one.send(signal.SIGKILL)
        print(f"  kill {round_number + 1} of {KILLS}: generation {generation}", flush=True)
    log = (folder / "log").read_text()
    return {
        "kills": KILLS,
        "generation_went_back": backwards,
        "epochs": len(epochs),
        "damaged_state_files": log.count("state_unreadable"),
        "generation_at_the_end": generation,
    }


def load(folder: Path) -> dict[str, Any]:
    """Metadata rounds per second with one follower and with fifty: they must be the same."""

    async def rounds(one: ServiceProcess, followers: int) -> float:
        async with httpx.AsyncClient(
            base_url=one.api, trust_env=False, timeout=30, limits=httpx.Limits(max_connections=100)
        ) as client:

            async def follow() -> None:
                found: dict[str, Any] = {"version": 0, "epoch": ""}
                while True:
                    answer = await client.get(
                        "/v1/follow", params={"version": found["version"], "epoch": found["epoch"]}
                    )
                    found = answer.json()

            tasks = [asyncio.ensure_future(follow()) for _ in range(followers)]
            before = await asyncio.to_thread(_cycles, one)
            await asyncio.sleep(REST_SECONDS)
            after = await asyncio.to_thread(_cycles, one)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return (after - before) / REST_SECONDS

    with service(folder, 30, "calm") as one:
        settled(one, 90)
        return {f"{count}_followers": round(asyncio.run(rounds(one, count)), 2) for count in (1, 50)}


def _cycles(one: ServiceProcess) -> float:
    lines = [line for line in one.probe("/metrics").text.splitlines() if 'outcome="success"' in line]
    return float(lines[0].rpartition(" ")[2])


def section(result: dict[str, Any]) -> str:
    """Return these figures as a section of the benchmarks' page."""
    crowd, load_text, killed = (result[name] for name in ("watchers", "load", "kills"))
    rows = [
        (
            f"{crowd['watchers']:,} watchers, one change: the last has it after the first, after the change",
            f"{crowd['spread_seconds']} s, {crowd['last_seconds']} s; {crowd['answered_with_the_change']:,} answered",
            "<= 1 s, none lost",
        ),
        ("memory of a waiter", f"{crowd['kilobytes_per_waiter']} kB", "-"),
        (
            "metadata rounds a second with 1 and with 50 followers",
            f"{load_text['1_followers']} and {load_text['50_followers']}",
            "equal",
        ),
        (
            f"{killed['kills']} x kill -9 under churn",
            f"generation back {killed['generation_went_back']} x, damaged files {killed['damaged_state_files']}",
            "0, 0",
        ),
    ]
    for name, memory, scrape in (("rest_1_000", "90 MB, <= 2 %", "< 20 ms"), ("rest_50_000", "250 MB", "-")):
        found = result[name]
        rows += [
            (
                f"at rest, {found['partitions']:,} partitions: memory and CPU",
                f"{found['resident_megabytes']} MB, {found['cpu_percent_of_a_core']} % of a core",
                f"<= {memory}",
            ),
            ("a scrape of them", f"{found['scrape_milliseconds_p50']} ms", scrape),
        ]
    brokers, frozen = result["real"], result["real"]["frozen"]
    rows += [
        (
            f"three real brokers, {brokers['partitions']:,} partitions: memory and CPU at rest",
            f"{brokers['resident_megabytes']} MB, {brokers['cpu_percent_at_rest']} % of a core",
            "<= 90 MB, <= 2 %",
        ),
        (f"CPU with a query of {SMALL} of these partitions", _percent(brokers, "a_small_query"), "-"),
        ("CPU with a query of all of them", _percent(brokers, "a_query_of_all"), "-"),
        ("CPU with a follower of all, of both ends (`watch`)", _percent(brokers, "a_follower"), "-"),
        ("a scrape of them: median, p99, longest", _scrape(brokers), "p99 < 20 ms"),
        ("the same while all brokers are frozen", _scrape(frozen), "p99 < 20 ms"),
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"## The service\n\n{_TEXT}\n\n| what | seen | target |\n|---|---|---|\n{table}\n"


def _percent(found: dict[str, Any], who: str) -> str:
    seen = found.get(f"cpu_percent_with_{who}")
    return "not measured yet" if seen is None else f"{seen} % of a core"


def _scrape(found: dict[str, Any]) -> str:
    p99 = found.get("scrape_milliseconds_p99")
    seen = "not measured yet" if p99 is None else f"{p99} ms"
    return f"{found['scrape_milliseconds_p50']} ms, {seen}, {found['scrape_milliseconds_max']} ms"


_TEXT = """`make bench-sidecar`. Except for the rows of real brokers, Kafka is played inside the service's process, so
that memory and CPU include it; intervals of 1 s. The first watcher hears of a change when the next metadata round
brings it, half an interval later on average. Then one after the other is answered, and that bounds the last one's
time: the answer is encoded once, but each watcher is a task that wakes and writes. In ten more changes, beside other
work (load average 9 to 14), the service took 0.61 s of processor time for 10 000 watchers, and these clients, on the
same two cores, 0.25 s (medians); the last heard of a change 0.61 s after the first at best. In ten with clients that
only note the time it was 0.53 s.

With real brokers, readers have the ends of *their* partitions asked for five times a second, and those that they need:
high watermarks, or last stable offsets. Before it was so, and while a future was made of each partition, a service of
1 000 partitions took 4.6 % of a core at rest, 40.8 % with any follower, and 91.5 MB. These rows were taken beside other
work (load average 20), which shows in the longest scrapes: at a load of 3 they took 13.7 and 10.1 ms. 50 000
partitions with librdkafka are not measured.

Before partitions that had not changed were left alone, 50 001 of them took 86 % of a core."""


def main(names: list[str]) -> None:
    parts = {
        "watchers": watchers,
        "rest_1_000": lambda folder: rest(folder, 334),
        "rest_50_000": lambda folder: rest(folder, 16_667),
        "load": load,
        "real": real,
        "kills": kills,
    }
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in names or list(parts):
        with tempfile.TemporaryDirectory() as folder:
            result[name] = parts[name](Path(folder))
        print(name, json.dumps(result[name]), flush=True)
        result["environment"] = environment()
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
