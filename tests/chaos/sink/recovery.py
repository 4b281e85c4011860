"""How long the sink takes to recover; joins the figures of `benchmarks.sink`: `python -m tests.chaos.sink.recovery`."""

import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.chaos.sink.collect import stable_ends
from tests.chaos.sink.processes import start_attempt
from tests.chaos.sink.spark import Fault, SparkSeed, armed_driver
from tests.support.results import run_cases, say, summary
from tests.support.sink import Sink
from tests.support.spark.standalone import standalone

EXECUTOR_KILLS = 12
HANGING = 3


def recovery(cluster: LocalKafka) -> dict[str, Any]:
    """Seconds from the kill of one of two executors in mid-transaction to the next visible row, and the batch's end."""
    taken: list[float] = []
    complete: list[float] = []
    with (
        tempfile.TemporaryDirectory(prefix="chaos-sink-") as name,
        standalone(folder := Path(name)) as master,
        armed_driver(folder, master=master) as (driver, armed),
    ):
        for number in range(EXECUTOR_KILLS):
            topic = f"recovery-{number}"
            run = SparkSeed(cluster, driver, topic, folder / f"run-{number}", armed, executors=2)
            # One in each run: the rows are all written before a second executor has come back.
            if found := run.play([Fault(victim="executor", point="step5.middle", after_rows=5)]):
                raise SystemExit(f"not exactly once: {found}")
            taken += run.recoveries
            complete += run.completions
            say(f"recovery: {run.recoveries}, {run.completions}")
    return summary(taken) | {"complete": summary(complete)}


def hanging(cluster: LocalKafka) -> dict[str, Any]:
    """Seconds for which a transaction of a killed task stays open where nobody tries again."""
    taken: list[float] = []
    with tempfile.TemporaryDirectory(prefix="chaos-sink-") as name:
        folder = Path(name)
        for number in range(HANGING):
            topic = f"hanging-{number}"
            cluster.create_topic(topic, 1, replication_factor=3)
            sink = Sink(cluster, folder, sink_id=topic, topic=topic, more={"transactionTimeout": "10s"})
            plan = sink.plan()
            (folder / "step6.sent").write_text("hold")
            child = start_attempt(plan, sink.attempt(0), ["k:1"], folder)
            began = asked = time.monotonic()
            while not any(
                high for _, high in stable_ends(cluster.bootstrap_servers, topic, patience_seconds=0).values()
            ):
                began = asked  # nothing of it was there then
                time.sleep(0.05)
                asked = time.monotonic()
            child.end()
            ends = stable_ends(cluster.bootstrap_servers, topic, patience_seconds=40)
            if any(stable != high for stable, high in ends.values()):
                raise SystemExit(f"open for more than 40 s: {ends}")
            taken.append(time.monotonic() - began)
    say(f"hanging: {taken}")
    return summary(taken)


if __name__ == "__main__":
    with LocalKafka(ClusterSettings(brokers=3)) as kafka:
        run_cases("sink", {case.__name__: partial(case, kafka) for case in (recovery, hanging)}, sys.argv[1:])
