"""What a query costs while little happens: `make bench-idle`, or one case: `python -m benchmarks.idle requests`.

`start`: time to the first row of a new query. `busy`: the same beside busy processes. `overhead`: how long Spark says
its triggers took with a handful of records, and how much processor time a query without any takes. `requests`: what
idle queries ask of the brokers, counted in the brokers' own request logs. Both sources in one run on the same brokers.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.empty_source import NAME as EMPTY
from benchmarks.empty_source import EmptySource
from benchmarks.harness import NATIVE, OURS, Watched, fill, running_query, spark_session
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.support.family import cpu_seconds, descendants, jvm_of
from tests.support.results import run_cases, say, summary
from tests.support.service import ServiceProcess, serve_arguments

STARTS = 6
"""Pairs in one session; the first is left out."""
COLD_STARTS = 3
"""Pairs of new applications, each with one query."""
QUERIES = {1: "200 milliseconds", 10: "200 milliseconds", 50: "1 second"}
"""How many, and their trigger: fifty that plan five times a second are more than two cores do."""
TRIES = 4
"""Spark gives a source's Python process 15 s to call back, which a full machine may miss."""
BUSY = 4
"""Processes beside the starts."""
PARTITIONS = 6
COUNT_SECONDS = 15.0
TOPIC = "events"
TRIGGER = "200 milliseconds"
SERVED = "kafka-discovery behind a service"
"""The same source with `discoveryUrl`: one loop for all queries, in a process of its own."""
Result = dict[str, Any]
_REQUEST = re.compile(r'"clientId":"([^"]*)","requestApiKeyName":"([A-Z_]+)"')


def start() -> Result:
    """New query to the first finished batch with rows: in a warm session, pair by pair, then in new applications."""
    warm: dict[str, list[float]] = {OURS: [], NATIVE: []}
    cold: dict[str, list[float]] = {OURS: [], NATIVE: [], EMPTY: []}
    with _three_brokers() as cluster:
        fill(cluster.bootstrap_servers, TOPIC, PARTITIONS, 10)
        with spark_session(native=True) as spark:
            for number in range(STARTS):
                for source in _order(number):
                    warm[source].append(_started(spark, cluster, source))
        for number in range(COLD_STARTS):
            for source in (*_order(number), EMPTY):
                cold[source].append(_in_new_application(cluster, source))
    seen = {source: {"cold": summary(cold[source]), **summary(warm[source][1:])} for source in (OURS, NATIVE)}
    return {**seen, EMPTY: {"cold": summary(cold[EMPTY])}}


def busy() -> Result:
    """The same starts beside four processes that do nothing but take processor time."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        return start()
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _order(number: int) -> tuple[str, str]:
    return (OURS, NATIVE) if number % 2 else (NATIVE, OURS)


def _in_new_application(cluster: LocalKafka, source: str) -> float:
    command = [sys.executable, "-m", "benchmarks.idle", "once", cluster.bootstrap_servers, source]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=180)
    seconds = float(done.stdout.splitlines()[-1])
    say(f"{source}: first row of a new application's first query after {seconds:.2f} s")
    return seconds


def once(servers: str, source: str) -> None:
    """Start one query in a new session; print the seconds to its first row, the session's own start left out."""
    with spark_session(native=True) as spark:
        if source == EMPTY:
            spark.dataSource.register(EmptySource)
        with running_query(spark, servers, TOPIC, source=source) as query:
            print(query.first_row_seconds(60) or 60.0)


def _started(spark: SparkSession, cluster: LocalKafka, source: str) -> float:
    with running_query(spark, cluster.bootstrap_servers, TOPIC, source=source) as query:
        seconds = query.first_row_seconds(60) or 60.0
    say(f"{source}: first row after {seconds:.2f} s")
    return seconds


def overhead() -> Result:
    """Ten records every half second: what a trigger takes; then nothing: what the query costs the processor."""
    result: Result = {"trigger": TRIGGER}
    with _three_brokers() as cluster, spark_session(native=True) as spark:
        for source in (NATIVE, OURS):
            fill(cluster.bootstrap_servers, TOPIC, PARTITIONS, 1)
            with running_query(spark, cluster.bootstrap_servers, TOPIC, source=source, trigger=TRIGGER) as query:
                query.first_row_seconds(60)
                for _ in range(40):
                    fill(cluster.bootstrap_servers, TOPIC, 2, 5)
                    time.sleep(0.5)
                durations = _durations(query)[5:]
                busy = _cpu_share(spark, 15.0)
            result[source] = {
                "batches": len(durations),
                "trigger_milliseconds": summary([d["triggerExecution"] for d in durations]),
                "latest_offset_milliseconds": summary([d.get("latestOffset", 0) for d in durations]),
                "idle_cores": busy,
            }
            say(f"{source}: trigger p50 {result[source]['trigger_milliseconds']['p50']} ms, idle {busy} cores")
    return result


def requests() -> Result:
    """1, 10 and 50 idle queries: requests per second at all brokers, by kind; ours also behind one service."""
    result: Result = {"seconds": COUNT_SECONDS, "brokers": 3, "partitions": PARTITIONS, "triggers": QUERIES}
    with _three_brokers() as cluster, spark_session(native=True) as spark:
        fill(cluster.bootstrap_servers, TOPIC, PARTITIONS, 10)
        cluster.log_requests()
        for source in (NATIVE, OURS, SERVED):
            result[source] = {}
            for count in QUERIES:
                with _options(source, cluster) as options:
                    seen = result[source][str(count)] = _count(cluster, spark, source, count, options)
                say(f"{source}, {count} queries: {seen}")
                time.sleep(3.0)
    return result


def _count(
    cluster: LocalKafka, spark: SparkSession, source: str, count: int, options: dict[str, str]
) -> dict[str, Any]:
    """Let so many queries come to rest, then count requests for a while."""
    form = NATIVE if source == NATIVE else OURS
    with contextlib.ExitStack() as stack:
        start = partial(
            running_query, spark, cluster.bootstrap_servers, TOPIC, source=form, trigger=QUERIES[count], options=options
        )
        queries = [_settled(stack, start) for _ in range(count)]  # one by one
        time.sleep(5.0)
        before, began = _requests(cluster.folder), time.monotonic()
        busy = _cpu_share(spark, COUNT_SECONDS)
        rates = _rates(before, _requests(cluster.folder), time.monotonic() - began)
        running = sum(query is not None and query.query.isActive for query in queries)
        return {**rates, "running": running, "spark_cores": busy}


def _settled(stack: contextlib.ExitStack, start: Callable[[], AbstractContextManager[Watched]]) -> Watched | None:
    """Start one query and wait for its first rows; again where it did not come up."""
    for _ in range(TRIES):
        query = stack.enter_context(start())
        if query.first_row_seconds(60) is not None:
            return query
        query.query.stop()
    return None


@contextlib.contextmanager
def _options(source: str, cluster: LocalKafka) -> Iterator[dict[str, str]]:
    """Yield what a query of this source needs besides the brokers; starts the service for the one that follows it."""
    if source != SERVED:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="bench-service-") as folder:
        arguments = serve_arguments(cluster.bootstrap_servers, Path(folder) / "state")
        with ServiceProcess(*arguments, log=Path(folder) / "log") as service:
            yield {"discoveryUrl": service.api}


@contextlib.contextmanager
def _three_brokers() -> Iterator[LocalKafka]:
    with LocalKafka(ClusterSettings(brokers=3)) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, replication_factor=1)
        yield cluster


def _durations(query: Watched) -> list[dict[str, float]]:
    raw = [p if isinstance(p, dict) else json.loads(p.json) for p in query.query.recentProgress]
    return [p["durationMs"] for p in raw if p["numInputRows"] > 0]


def _cpu_share(spark: SparkSession, seconds: float) -> float:
    """Return how many cores Spark's processes use together."""
    family = (jvm_of(spark), *descendants(jvm_of(spark)))
    before, began = {pid: cpu_seconds(pid) for pid in family}, time.monotonic()
    time.sleep(seconds)
    spent = sum(max(0.0, cpu_seconds(pid) - used) for pid, used in before.items())
    return round(spent / (time.monotonic() - began), 3)


def _requests(folder: Path) -> Counter[str]:
    """Count the clients' requests in the logs of all brokers so far; brokers ask one another, too, and are left out."""
    counted: Counter[str] = Counter()
    for log in sorted((folder / "logs").glob("[0-9]*.log")):
        with log.open(errors="replace") as lines:
            counted.update(
                found.group(2)
                for line in lines
                if "Completed request" in line and (found := _REQUEST.search(line)) and "broker" not in found.group(1)
            )
    return counted


def _rates(before: Counter[str], after: Counter[str], seconds: float) -> Result:
    kinds = {kind: round((after[kind] - before[kind]) / seconds, 1) for kind in sorted(after)}
    return {
        "per_second": round(sum(kinds.values()), 1),
        "kinds": {kind: rate for kind, rate in kinds.items() if rate > 0},
        "load_average": round(os.getloadavg()[0], 1),
    }


CASES: dict[str, Callable[[], Result]] = {"start": start, "busy": busy, "overhead": overhead, "requests": requests}


def section(result: Result) -> str:
    """Return these figures as a section of the benchmarks' page."""
    rows: list[str] = []
    for case, where in (("start", ""), ("busy", f", beside {BUSY} busy processes")):
        if of := result.get(case):
            rows += [_row(f"new query to the first finished batch, warm{where}, n = {of[OURS]['n']}", of, _spread)]
            n = of[OURS]["cold"]["n"]
            rows += [_row(f"first query of a new application{where}, n = {n}", of, lambda r: _spread(r["cold"]))]
    if "overhead" in result:
        seen = result["overhead"]
        rows += [_row("a trigger with ten records", seen, lambda r: f"{r['trigger_milliseconds']['p50']:.0f} ms")]
        rows += [_row("a query without records, trigger 200 ms", seen, lambda r: f"{r['idle_cores']:.2f} cores")]
    head = ["| what | kafka-discovery | Spark's own source |", "|---|---|---|"]
    asked = _asked(result["requests"]) if "requests" in result else []
    runs = ", ".join(f"{n} on {result[n]['commit']}, {result[n]['load_average']}" for n in CASES if n in result)
    noted = [f"Commits, and load averages before and after: {runs}.", ""]
    return "\n".join(("## Idle", "", _TEXT, "", *head, *rows, "", *asked, *noted))


def _asked(seen: Result) -> list[str]:
    """Return the table of requests."""
    sources = [s for s in (OURS, SERVED, NATIVE) if s in seen]
    head = f"| idle queries | {' | '.join(sources)} |"
    rows = [
        f"| {count}, every {_trigger(seen, count)} | "
        f"{' | '.join(_rate(seen[source].get(str(count)), count) for source in sources)} |"
        for count in QUERIES
    ]
    return [_REQUESTS_TEXT, "", head, "|---|" + "---|" * len(sources), *rows, ""]


def _trigger(seen: Result, count: int) -> str:
    return str(seen["triggers"][str(count)] if "triggers" in seen else seen["trigger"])


def _rate(found: Result | None, count: int) -> str:
    if found is None:
        return "not run"
    kinds = ", ".join(f"{rate:.0f} {kind}" for kind, rate in found["kinds"].items() if rate >= 1)
    short = "" if found["running"] == count else f", {found['running']} running"
    return f"**{found['per_second']:.0f}/s**{short} ({kinds})"


def _spread(seen: Result) -> str:
    return f"{seen['p50']:.2f} s ({seen['min']:.2f}-{seen['max']:.2f})"


def _row(what: str, by_source: Result, show: Callable[[Result], str]) -> str:
    return f"| {what} | {show(by_source[OURS])} | {show(by_source[NATIVE])} |"


_TEXT = """`make bench-idle`. Three brokers, six partitions, trigger 200 ms. Starts are medians (extremes) of
alternating pairs, warm ones in one session, cold ones in applications of their own, counted from the query's definition
on. The project is installed with its bytecode, as an installer leaves it; without it every Python process of Spark's
compiles it again. Before the first query of an application Spark starts five Python processes one after the other for
any Python source, and each compiles PySpark, which comes in a zip without bytecode. Triggers are medians of one query
each, one after the other."""
_REQUESTS_TEXT = """Requests of idle queries at the three brokers a second, counted in the brokers' own request logs;
those of brokers among themselves are left out. Each query has a loop of its own, since Spark gives each a process of
its own: metadata once, and end offsets from each leader, 0.15 s before each plan; or every 300 and 200 ms where the
trigger is shorter than half a second or has no rhythm; and metadata once a second, ends every 10 s, where it is longer.
With `discoveryUrl` one service asks for all of them, high watermarks and last stable offsets both, and the number of
queries does not matter. Spark's own source asks at each trigger; without a trigger interval it asks as fast as it is
answered. Where fewer queries ran than were started, the machine was too busy for Spark to start so many Python
processes in the 15 s it gives each."""


if __name__ == "__main__":
    once(*sys.argv[2:]) if sys.argv[1:2] == ["once"] else run_cases("idle", CASES, sys.argv[1:])
