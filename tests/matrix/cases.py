"""What no test of `make test` plays: several Sparks on one checkpoint, Sparks below 4.2, packages left out."""

import json
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from tests.matrix.cells import Cell
from tests.matrix.environments import connector, environment, python
from tests.support.endpoint import endpoint_to
from tests.support.helpers import numbered, produce
from tests.support.results import ROOT
from tests.support.spark.native import dead_list

_PROBE_SECONDS = 300
_ORDER = ("4.2.0", "4.2.1", "4.3.0", "4.2.0")
_JOB = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
events = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "{servers}").option("subscribe", "{topic}")
events = events.option("startingOffsets", "earliest").load().selectExpr("CAST(value AS STRING)")
writer = events.writeStream.format("text").option("path", "{folder}/rows").trigger(availableNow=True)
writer.option("checkpointLocation", "{folder}/checkpoint").start().awaitTermination()
"""


def takeover(_: Cell) -> str:
    """One checkpoint, read on by one Spark after the other: each gets exactly what came since."""
    with _scene() as (cluster, topic, folder):
        for number, spark in enumerate(_ORDER):
            wanted = numbered(20, prefix=f"{number}-")
            produce(cluster.bootstrap_servers, topic, *wanted)
            options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "sourceId": topic}
            options |= {"startingOffsets": "earliest", "stateDir": str(folder / "state")}
            given = {"options": options, "checkpoint": str(folder / "checkpoint"), "source": "kafka-discovery"}
            seen, _log = _probe(spark, "stream", given)
            assert seen == sorted(wanted), (spark, seen)
    return f"{len(_ORDER)} runs, each exactly the 20 rows that were new"


def older(cell: Cell) -> str:
    """Below 4.2: a stream is refused at `load()`, a batch that says its end is read."""
    with _scene() as (cluster, topic, _folder):
        wanted = numbered(30)
        produce(cluster.bootstrap_servers, topic, *wanted)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
        seen, _log = _probe(cell.spark, "older", {"options": options})
        assert seen["rows"] == sorted(wanted), seen
        assert len(seen["refused"]) == 2, seen
        for text in seen["refused"]:
            assert f"kafka-discovery needs Spark 4.2 or newer, this is {cell.spark}" in text, text
            assert "Traceback" not in text, text
    return "30 rows; refused in one line"


def native(cell: Cell) -> str:
    """A job on Spark's own source whose listed brokers are dead: protected in three ways."""
    interpreter = python(cell.spark)
    jars = ",".join(map(str, connector(cell.spark)))
    with _scene(brokers=3, replicas=3) as (cluster, topic, folder):
        wanted = numbered(30)
        produce(cluster.bootstrap_servers, topic, *wanted)
        listed = dead_list(cluster, topic, folder / "state")
        report = _submitted(interpreter, jars, folder / "run", listed, topic, run=True)
        assert (report["outcome"], report["failures"]) == ("finished", 0), report
        assert _rows(folder / "run") == sorted(wanted)
        with endpoint_to(listed, state_dir=folder / "state") as running:
            _submitted(interpreter, jars, folder / "endpoint", running.endpoint.address, topic, run=False)
        assert _rows(folder / "endpoint") == sorted(wanted)
        given = {"servers": listed, "topic": topic, "state_dir": str(folder / "state")}
        given["checkpoint"] = str(folder / "checkpoint")
        seen, _log = _probe(cell.spark, "run_query", given, jars=jars)
        assert seen == {"outcome": "finished", "failures": 0, "rows": sorted(wanted)}, seen
    return f"30 rows by each, no failed start; {connector(cell.spark)[-2].stem}"


def plain(cell: Cell) -> str:
    """Without numba the plain engine reads, and the log says so once."""
    with _scene() as (cluster, topic, folder):
        wanted = numbered(30)
        produce(cluster.bootstrap_servers, topic, *wanted)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic}
        options |= {"startingOffsets": "earliest", "stateDir": str(folder / "state")}
        given = {"options": options, "checkpoint": str(folder / "checkpoint"), "source": "kafka-discovery"}
        seen, log = _probe(cell.spark, "stream", given, without=cell.without)
        assert seen == sorted(wanted), seen
        said = [line for line in log.splitlines() if "plain engine" in line]
        assert len(said) == 1, said
    return f"30 rows; {said[0]}"


@contextmanager
def _scene(*, brokers: int = 1, replicas: int = 1) -> Iterator[tuple[LocalKafka, str, Path]]:
    """A cluster with an empty topic of three partitions, and a folder."""
    topic = f"matrix-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder, LocalKafka(ClusterSettings(brokers=brokers)) as cluster:
        cluster.create_topic(topic, 3, replication_factor=replicas)
        yield cluster, topic, Path(folder)


def _probe(
    spark: str, what: str, given: dict[str, Any], *, jars: str = "", without: frozenset[str] = frozenset()
) -> tuple[Any, str]:
    """Run a probe in the environment of a Spark; return what it saw and its log."""
    interpreter = python(spark, without=without)
    variables = environment(interpreter) | ({"PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"} if jars else {})
    command = [str(interpreter), "-m", "tests.matrix.probe", what, json.dumps(given)]
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["spark"] == spark, answer
    return answer["seen"], done.stderr


def _submitted(interpreter: Path, jars: str, folder: Path, servers: str, topic: str, *, run: bool) -> dict[str, Any]:
    """Submit the job, with or without `kafka-discovery run` before it; return the report of `run`."""
    folder.mkdir()
    (folder / "job.py").write_text(_JOB.format(servers=servers, topic=topic, folder=folder))
    report = folder / "report.json"
    submit = [str(interpreter.parent / "spark-submit"), "--master", "local[2]", "--driver-memory", "512m"]
    submit += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1", "--jars", jars]
    before = [str(interpreter), "-c", "from discovery.cli.app import main; main()", "run"]
    before += ["--state-dir", str(folder.parent / "state"), "--report", str(report), "--"]
    done = subprocess.run(
        [*(before if run else []), *submit, str(folder / "job.py")],
        env=environment(interpreter),
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(report.read_text())) if run else {}


def _rows(folder: Path) -> list[str]:
    return sorted("".join(file.read_text() for file in (folder / "rows").glob("*.txt")).split())
