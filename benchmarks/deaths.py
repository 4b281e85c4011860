"""Is every record read once while brokers and Spark's processes die together? `python -m benchmarks.deaths [ROUNDS]`.

In every round two of six brokers that alone hold their partitions are killed under load, and up to 2.5 s later, in the
middle of cuts and retries, either Spark's Python workers or the whole driver with its JVM. Rows go to Spark's own file
sink; at the end its files must hold every offset of the log once.
"""

import contextlib
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks.harness import environment, load, load_noted, say, write_result
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.spark.support_driver import Query, SparkDriver
from tests.support import eventually

ROUNDS = 20
ROWS_PER_SECOND = 200.0
CATCH_UP_SECONDS = 120.0
BROKERS = (1, 2, 3, 4, 5, 6)
VICTIMS = ("workers", "driver")
_PAIRS = tuple(itertools.combinations(BROKERS, 2))
Result = dict[str, Any]


def measure(rounds: int) -> Result:
    """Run so many rounds and compare the files with the log."""
    result: Result = {"rounds": []}
    with contextlib.ExitStack() as stack:
        stack.enter_context(load_noted(result))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-deaths-")))
        cluster = stack.enter_context(LocalKafka(ClusterSettings(brokers=len(BROKERS))))
        cluster.create_topic("t", assignment=[[leader] for leader in BROKERS])
        driver = stack.enter_context(SparkDriver(folder, master="local[4,4]"))
        query, rng = _start(driver, cluster), random.Random(20)
        with load(cluster.bootstrap_servers, "t", len(BROKERS), rows_per_second=ROWS_PER_SECOND):
            time.sleep(10)
            for number in range(rounds):
                query = _round(cluster, driver, query, rng, result["rounds"], VICTIMS[number % 2])
        return result | _compare(cluster, driver) | {"cuts_logged": driver.log().count("cut, since nobody could")}


def _start(driver: SparkDriver, cluster: LocalKafka) -> Query:
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "t",
        "sourceId": "deaths",
        "stateDir": str(driver.folder / "ledgers"),
    }
    return driver.query(options, checkpoint=driver.folder / "t", shape="parquet", trigger="200 milliseconds")


def _round(  # noqa: PLR0917 - one story
    cluster: LocalKafka, driver: SparkDriver, query: Query, rng: random.Random, told: list[Result], victim: str
) -> Query:
    pair, pause = list(rng.choice(_PAIRS)), rng.uniform(0.0, 2.5)
    cluster.kill(pair)
    time.sleep(pause)
    if victim == "driver":
        driver.kill()
        driver.start()
        query = _start(driver, cluster)
        killed = 1
    else:
        killed = driver.kill_workers()
    time.sleep(rng.uniform(1.0, 4.0))
    cluster.restart(pair)
    cluster.wait_registered(pair)
    time.sleep(2.0)
    status = query.status()
    told.append({"brokers": pair, "after_seconds": round(pause, 2), victim: killed, "active": status["active"]})
    told[-1]["load_average"] = round(os.getloadavg()[0], 1)
    say(f"round {len(told)}: {told[-1]}")
    return query if status["active"] else _start(driver, cluster)


def _compare(cluster: LocalKafka, driver: SparkDriver) -> Result:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "deaths", "log_level": 0})
    places = [TopicPartition("t", partition) for partition in range(len(BROKERS))]
    wanted = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
    consumer.close()
    path = str(driver.folder / "t.parquet")
    rows: list[Sequence[Any]] = []

    def all_there() -> bool:
        rows[:] = driver.ask("parquet", path=path)
        return len(rows) >= wanted

    with contextlib.suppress(AssertionError):  # what is missing is told below
        eventually(all_there, CATCH_UP_SECONDS, "every record in the files")
    counted = Counter((row[1], row[2]) for row in rows)
    return {"records": wanted, "rows": len(rows), "distinct": len(counted)}


def section(result: Result) -> str:
    """Tell the figures in words."""
    rounds = result["rounds"]
    drivers = sum("driver" in r for r in rounds)
    killed = sum(r.get("workers", 0) for r in rounds)
    lost, twice = result["records"] - result["distinct"], result["rows"] - result["distinct"]
    return "\n".join(
        [
            "## Brokers, workers and the driver killed together",
            "",
            f"`python -m benchmarks.deaths`: {len(rounds)} rounds of kill -9 of two of six brokers, RF 1, under load,",
            f"and up to 2.5 s later of the whole driver with its JVM ({drivers} rounds) or of all Python workers",
            f"({len(rounds) - drivers} rounds, {killed} processes). `sourceId`, ledger in a file, rows into Spark's",
            "file sink.",
            "",
            "| records in the log | rows in the files | lost | twice |",
            "|---|---|---|---|",
            f"| {result['records']} | {result['rows']} | {lost} | {twice} |",
            "",
            f"{result['cuts_logged']} cuts were logged. Load averages before and after: {result['load_average']}.",
        ]
    )


def main(arguments: Sequence[str]) -> None:
    """Run and write `build/bench/deaths.json`."""
    result = {"environment": environment(), **measure(int(arguments[0]) if arguments else ROUNDS)}
    say(f"{result['records']} records, {result['rows']} rows, {result['distinct']} of them different")
    print(f"wrote {write_result('deaths', result)}")


if __name__ == "__main__":
    main(sys.argv[1:])
