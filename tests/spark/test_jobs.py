"""The ready jobs as users start them: by the line of README.md under spark-submit, and by Python; into any output."""

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.jobs.files import JOBS, job_file
from spark_jobs import copy_topic, ip_visits
from tests.support.helpers import produce
from tests.support.postgres import running_postgres
from tests.support.spark.jobs import JOB_SECONDS, event, finish, visit

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
README = Path(__file__).parents[2] / "README.md"
GIVEN: dict[str, Sequence[str | bytes]] = {
    "dau": [event("ann", event_id="1"), event("ann", event_id="2"), b"{oops"],
    "ip_visits": [visit("10.0.0.1"), visit("10.0.0.1"), "no visit"],
    "copy_topic": ["a", "b"],
}
RESULTS = {
    "dau": "SELECT user_id, events FROM daily_users",
    "ip_visits": "SELECT ip, visits FROM visits",
    "copy_topic": "SELECT cast(value AS TEXT), 1 FROM records",
}
DEAD = {"dau": "dead_letters", "ip_visits": "visits_dead_letters"}


def line_of_readme() -> list[str]:
    (line,) = re.findall(r"^spark-submit \$\(kafka-discovery jobs dau\) (.*)$", README.read_text(), re.MULTILINE)
    return shlex.split(line)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [job if job == "dau" else pytest.param(job, marks=pytest.mark.long) for job in JOBS])
def test_given_the_line_of_the_readme_when_a_job_runs_under_spark_submit_and_again_by_python_then_it_goes_on_exactly(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path, name: str
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=1)
    words = " ".join(line_of_readme()).replace("b1:9092", kafka_cluster.bootstrap_servers)
    arguments = [*words.replace("events", topic_name).split(), "--available-now", "--state-dir", "state"]
    expected: Counter[object] = Counter()
    for program in (["spark-submit", str(job_file(name))], [sys.executable, str(job_file(name))]):
        produce(kafka_cluster.bootstrap_servers, topic_name, *GIVEN[name])
        expected += Counter(GIVEN[name])
        said = run([*program, *arguments], tmp_path)
        assert "Traceback" not in said
    with closing(sqlite3.connect(tmp_path / "dau.db")) as connection:
        found = connection.execute(RESULTS[name]).fetchall()
        dead = connection.execute(f"SELECT count(*) FROM {DEAD[name]}").fetchone()[0] if name in DEAD else 0  # noqa: S608
    assert sum(count for _, count in found) + dead == expected.total()
    assert dead == (0 if name == "copy_topic" else 2)
    if name == "dau":  # not Spark's 200 on one machine
        assert [store.name for store in sorted((tmp_path / "ck/state/0").glob("[0-9]*"))] == ["0", "1"]


def run(command: Sequence[str], folder: Path) -> str:
    bin_, root = Path(sys.executable).parent, README.parent
    environment = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment["PYTHONPATH"] = f"{root}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=JOB_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stderr


Ask = Callable[[str, str], Iterable[Sequence[object]]]


@pytest.fixture(params=["parquet", "orc", "jdbc"])
def tables(request: pytest.FixtureRequest, session: SparkSession, tmp_path: Path) -> Iterator[tuple[list[str], Ask]]:
    """The words that name an output of tables, and how to ask it for columns of a table."""
    if request.param == "jdbc":
        with running_postgres() as server:
            words = ["--output", server.url, "--output-option", "driver=org.postgresql.Driver"]
            yield words, lambda table, columns: server.rows(f"SELECT {columns} FROM {table} ORDER BY 1, 2")  # noqa: S608
        return
    folder = tmp_path / "out"
    reader = session.read.format(request.param)
    yield (
        ["--output", f"{request.param}:{folder}"],
        lambda table, columns: sorted(
            tuple(map(str, row)) for row in reader.load(str(folder / table)).select(*columns.split(", ")).collect()
        ),
    )


def test_given_tables_when_visits_are_counted_and_a_topic_is_copied_then_each_result_is_there_once(
    session: SparkSession, kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path, tables: tuple[list[str], Ask]
) -> None:
    words, ask = tables
    kafka_cluster.create_topic(topic_name, partitions=1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *GIVEN["ip_visits"])
    common = ["--bootstrap-servers", kafka_cluster.bootstrap_servers, "--topic", topic_name, *words]
    common += ["--available-now", "--state-dir", str(tmp_path / "state")]
    counting = ip_visits.parse_arguments([*common, "--checkpoint", str(tmp_path / "visits")])
    finish(ip_visits.start_query(session, counting))
    assert list(ask("visits", "ip, visits")) == [("10.0.0.1", "2")]
    assert list(ask("visits_dead_letters", "reason, bytes")) == [("neither JSON nor a line of a log", "8")]
    if words[1].startswith("jdbc"):
        more = ["--header", "length=length(text)", "--where", "text = 'no visit'"]
        copying = copy_topic.parse_arguments([*common, *more, "--checkpoint", str(tmp_path / "copy")])
        finish(copy_topic.start_query(session, copying))
        ((offset, headers),) = ask("records", '"offset", headers')
        assert (offset, [header["key"] for header in json.loads(str(headers))]) == ("2", ["length"])
