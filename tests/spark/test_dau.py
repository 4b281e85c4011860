"""The DAU query on real Spark: exact counts, dead letters, replays. Records come from files shaped like Kafka's."""

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic import dataframe as classic
from pyspark.sql.functions import udf
from pyspark.sql.streaming.listener import StreamingQueryProgress

from discovery.core.errors import ConfigError, DiscoveryError, KafkaUnreachableError, StateError
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.jobs.arguments import Job
from discovery.spark.jobs.dau_events import classify
from discovery.spark.jobs.folder import FolderOutput
from discovery.spark.jobs.jdbc import JdbcOutput, JdbcWriter
from discovery.spark.jobs.letters import HEAD_BYTES, Clock
from discovery.spark.jobs.outputs import Output
from discovery.spark.jobs.running import CHECKPOINT_MANAGER, own_error, write_local_files_without_forks
from discovery.spark.jobs.sqlite import SqliteOutput
from discovery.spark.jobs.tables import Table, tables_of
from discovery.spark.progress.listener import SourceProgress
from spark_jobs import ip_visits
from spark_jobs.dau import DauOptions, count, main, results
from tests.support.helpers import eventually, produce
from tests.support.mariadb import running_mariadb
from tests.support.postgres import Postgres, running_postgres
from tests.support.spark.jobs import JOB_SECONDS, NOW, event

pytestmark = pytest.mark.spark

SCHEMA = "value BINARY, topic STRING, partition INT, offset BIGINT"
CLOCK = Clock(allowed_lateness_seconds=60, skew_seconds=300)


class Run:
    """One job over a folder of record files; `count` runs it until all files are read."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.written = 0
        self.database = folder / "dau.db"
        (folder / "in").mkdir()
        self.options = self.into(SqliteOutput(path=self.database))

    def into(self, output: Output, checkpoint: str = "ck", **more: Any) -> DauOptions:
        checkpoint = str(self.folder / checkpoint)
        job = Job(topic="events", output=output, checkpoint=checkpoint, available_now=True)
        return DauOptions(job=job, **more)

    def put(self, values: Iterable[bytes | None]) -> None:
        lines = []
        for value in values:
            encoded = None if value is None else base64.b64encode(value).decode()
            lines.append(json.dumps({"value": encoded, "topic": "events", "partition": 3, "offset": self.written}))
            self.written += 1
        draft = self.folder / "draft"
        draft.write_text("\n".join(lines))
        # Spark reads files in the order of their times; these are written within one millisecond.
        os.utime(draft, (NOW.timestamp() - 1_000 + self.written,) * 2)
        draft.rename(self.folder / "in" / f"{self.written:09}.json")

    def records(self) -> DataFrame:
        reader = self.session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder / "in"))

    def count(
        self, options: DauOptions | None = None, records: DataFrame | None = None
    ) -> list[StreamingQueryProgress]:
        query = count(records or self.records(), options or self.options)
        try:
            query.awaitTermination()
            return list(query.recentProgress)
        finally:
            query.stop()

    def forget_commit(self, batch_id: int) -> None:
        """Leave what Spark finds after dying between our commit and its own: the batch is planned, not committed."""
        for name in (str(batch_id), f".{batch_id}.crc"):
            (self.folder / "ck" / "commits" / name).unlink()

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(query).fetchall()


def dropped(progress: Iterable[StreamingQueryProgress]) -> int:
    return sum(state.numRowsDroppedByWatermark for batch in progress for state in batch.stateOperators)


@pytest.fixture
def run(session: SparkSession, tmp_path: Path) -> Run:
    return Run(session, tmp_path)


@contextmanager
def nothing_collected(*ways: str) -> Iterator[None]:
    """Let a batch fail whose rows come to the driver; `pyspark.sql.DataFrame` itself is no frame's class."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a batch was collected on the driver")

    with pytest.MonkeyPatch.context() as patch:
        for way in ("collect", "toPandas", "toArrow", *ways):
            patch.setattr(classic.DataFrame, way, refuse)
        yield


def test_given_events_over_days_when_counted_then_users_are_exact_per_day_and_no_batch_is_collected(run: Run) -> None:
    yesterday = NOW - timedelta(days=1)
    run.put([event("a", event_id="1"), event("a", event_id="2"), event("b"), event("a", at=yesterday)])
    run.put([event("c", at=yesterday), event("b", event_id="9")])
    with nothing_collected():  # a partition at a time is, by toLocalIterator
        run.count()
    today, before = NOW.date().isoformat(), yesterday.date().isoformat()
    days = "SELECT day, count(*) AS users, sum(events) AS events FROM daily_users GROUP BY day ORDER BY day"
    assert run.rows(days) == [(before, 2, 2), (today, 2, 4)]
    expected = zlib.crc32(b"1") + zlib.crc32(b"2")
    assert run.rows("SELECT checksum FROM daily_users WHERE user_id = 'a' ORDER BY day DESC LIMIT 1") == [(expected,)]


MALFORMED: list[tuple[bytes | None, str]] = [
    (None, "empty record"),
    (b"", "empty record"),
    (b"\xff\xfe{}", "not UTF-8"),
    (b"{oops", "not JSON"),
    (b'{"event_id":"1","event_id":"2"}', "not JSON"),
    (b"[1]", "not a JSON object"),
    (b'"{"', "not a JSON object"),
    (b"{}", "event_id is missing"),
    (b'{"event_id":"1","user_id":null,"ip":"x","ts":1}', "user_id is missing"),
    (event("a", user_id=5), "user_id is not a text"),
    (event("a", ip={"v": 4}), "ip is not a text"),
    (event("  "), "user_id is empty"),
    (event("x" * 600), "user_id is longer than 512 characters"),
    (event("a", at="yesterday"), "ts is not a timestamp"),
    (event("a", at="2026-13-45T00:00:00Z"), "ts is not a timestamp"),
    (event("a", at="12:30"), "ts is not a timestamp"),
    (event("a", at=1.5), "ts is not a timestamp"),
    (event("a", at=2**62), "ts is not a timestamp"),
    (event("a", at=1_700_000_000), "ts lies before the year 2000"),
    (event("a", at="9999-12-31T23:59:59Z"), "ts lies more than 300 s ahead"),
]


def test_given_malformed_records_when_counted_then_each_is_kept_with_reason_and_position(run: Run) -> None:
    run.put([event("good"), *(value for value, _ in MALFORMED), event("fine", at=int(NOW.timestamp() * 1000))])
    run.put([event("good", event_id="later")])
    run.count()
    found = run.rows("SELECT topic, partition, offset, reason, value FROM dead_letters ORDER BY offset")
    assert found == [("events", 3, i + 1, reason, value) for i, (value, reason) in enumerate(MALFORMED)]
    assert run.rows("SELECT user_id, events FROM daily_users ORDER BY user_id") == [("fine", 1), ("good", 2)]


def test_given_a_timestamp_from_the_future_when_counted_then_honest_events_are_not_late(run: Run) -> None:
    run.put([event("a", at="2199-01-01T00:00:00Z"), event("a")])
    run.put([event("a", at=NOW - timedelta(hours=20)), b"{oops", event("b")])
    progress = run.count()
    assert dropped(progress) == 0
    assert run.rows("SELECT sum(events) FROM daily_users") == [(3,)]


def test_given_one_event_a_day_ahead_when_counted_then_it_is_a_dead_letter_and_nobody_is_late(run: Run) -> None:
    run.put([event("a"), event("ahead", at=NOW + timedelta(hours=23))])
    run.put([event("b", at=NOW + timedelta(seconds=60))])
    run.put([event("c"), b"{oops"])
    progress = run.count(replace(run.options, clock=CLOCK))
    assert dropped(progress) == 0
    assert run.rows("SELECT DISTINCT user_id FROM daily_users ORDER BY 1") == [("a",), ("b",), ("c",)]
    assert run.rows("SELECT reason FROM dead_letters ORDER BY offset") == [
        ("ts lies more than 300 s ahead",),
        ("not JSON",),
    ]


def test_given_a_large_malformed_record_when_counted_then_its_beginning_size_and_hash_are_kept(run: Run) -> None:
    large = b"{" + b"x" * 786_000
    run.put([large])
    run.count()
    expected = (large[:HEAD_BYTES], len(large), hashlib.sha256(large).hexdigest())
    assert run.rows("SELECT value, bytes, sha256 FROM dead_letters") == [expected]


def test_given_a_time_zone_when_counted_then_days_begin_at_its_midnight(run: Run) -> None:
    run.put([event("a", at=text) for text in ("2024-03-30T22:59:00Z", "2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z")])
    run.count(replace(run.options, time_zone="Europe/Berlin"))
    # The clocks went forward on the 31st: that day had 23 hours.
    assert run.rows("SELECT day FROM daily_users ORDER BY 1") == [("2024-03-30",), ("2024-03-31",), ("2024-04-01",)]


def test_given_old_data_when_read_back_then_malformed_records_are_not_dropped_as_late(run: Run) -> None:
    old = NOW - timedelta(days=30)
    run.put([event("a", at=old), b"{one"])
    run.put([event("a", at=NOW), b"{two"])
    run.put([event("a", at=NOW, event_id="3"), b"{three"])
    progress = run.count()
    assert dropped(progress) == 0
    assert run.rows("SELECT count(*) FROM dead_letters") == [(3,)]


def test_given_an_event_beyond_the_lateness_when_counted_then_the_drop_is_reported(run: Run) -> None:
    run.put([event("a", at=NOW)])
    run.put([event("b", at=NOW)])
    run.put([event("late", at=NOW - timedelta(days=5))])
    registry = CollectorRegistry()
    progress = SourceProgress(run.session, state_dir=run.folder, registry=registry).start()
    try:
        assert dropped(run.count()) == 1
        late, labels = "kafka_discovery_query_late_rows_dropped_total", {"query": "dau-events"}
        eventually(lambda: registry.get_sample_value(late, labels) == 1, JOB_SECONDS, "the metric")
    finally:
        progress.stop()
    assert run.rows("SELECT user_id FROM daily_users ORDER BY 1") == [("a",), ("b",)]


def test_given_a_crash_after_our_commit_when_the_batch_is_replayed_then_nothing_changes(run: Run) -> None:
    run.put([event("a", event_id="1"), b"{oops"])
    run.put([event("a", event_id="2"), event("b")])
    run.count()
    before = run.rows("SELECT * FROM daily_users"), run.rows("SELECT * FROM dead_letters")
    run.forget_commit(1)
    run.put([event("a", event_id="3")])
    run.count()
    assert run.rows("SELECT sum(events) FROM daily_users") == [(4,)]
    assert run.rows("SELECT events FROM daily_users WHERE user_id = 'b'") == [(1,)]
    assert run.rows("SELECT * FROM dead_letters") == before[1]


def test_given_a_small_lateness_when_days_pass_then_the_state_lets_go_of_users_and_dead_letters(run: Run) -> None:
    run.put([event(f"u{i}", at=NOW - timedelta(days=9)) for i in range(50)])
    run.put([event("a", at=NOW)])
    run.put([event("b", at=NOW)])
    last = run.count(replace(run.options, clock=CLOCK))[-1]
    assert sum(state.numRowsTotal for state in last.stateOperators) == 2
    assert run.rows("SELECT count(*) FROM daily_users") == [(52,)]


def test_given_file_and_checkpoint_that_do_not_belong_together_when_counted_then_both_are_named_and_nothing_changes(
    run: Run,
) -> None:
    run.put([event("a")])
    run.count()
    before = run.rows("SELECT * FROM daily_users")
    run.put([event("b")])
    new = replace(run.options, job=replace(run.options.job, checkpoint=str(run.folder / "new")))
    assert f"--output: {run.database} holds the results of another checkpoint" in refused(run, new, ConfigError)
    assert run.rows("SELECT * FROM daily_users") == before


def test_given_a_file_and_a_checkpoint_of_other_times_when_counted_then_both_are_named_and_nothing_changes(
    run: Run,
) -> None:
    older = run.folder / "older"
    for number in range(3):
        run.put([event("a", event_id=str(number))])
        run.count()
        if number == 0:
            shutil.copytree(run.folder / "ck", older)
    before = run.rows("SELECT * FROM daily_users")
    run.put([event("b")])
    said = refused(run, run.into(run.options.job.output, older.name), ConfigError)
    assert said.startswith(f"--output: {run.database} ends with batch 2, and checkpoint {older} goes on with batch 1")
    assert run.rows("SELECT * FROM daily_users") == before
    empty = run.folder / "empty.db"
    said = refused(run, run.into(SqliteOutput(path=empty)), ConfigError)
    assert said.startswith(f"--output: {empty} is empty, and checkpoint {run.folder / 'ck'} goes on with batch 3")
    with closing(sqlite3.connect(empty)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


def test_given_a_table_that_refuses_when_counted_then_one_line_names_the_file_and_nothing_of_the_batch_is_in_it(
    run: Run,
) -> None:
    with closing(sqlite3.connect(run.database)) as connection:
        connection.execute("CREATE VIEW dead_letters AS SELECT 1 AS topic")
    run.put([event("a"), b"{oops"])
    said = refused(run, run.options, StateError)
    assert said.startswith(f"--output: {run.database} cannot be written: Cannot add a column to a view")
    assert run.rows("SELECT name FROM sqlite_master") == [("dead_letters",)]


def refused(run: Run, options: DauOptions, kind: type[DiscoveryError]) -> str:
    with pytest.raises(StreamingQueryException) as raised:
        run.count(options)
    known = own_error(str(raised.value))
    assert known is not None
    assert known.exit_code == kind.exit_code
    return str(known)


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> Postgres:
    return postgres_server.with_new_database()


def database(postgres: Postgres) -> JdbcOutput:
    return JdbcOutput(url=postgres.url, options={"driver": "org.postgresql.Driver"})


def folder_output(run: Run) -> tuple[Path, DauOptions]:
    folder = run.folder / "results"
    return folder, run.into(FolderOutput(format="parquet", path=str(folder)))


def test_given_a_database_when_a_batch_is_replayed_then_totals_and_dead_letters_are_there_once(
    run: Run, postgres: Postgres
) -> None:
    options = run.into(database(postgres))
    run.put([event("a", event_id="1"), event("a", event_id="2"), event("b"), b"{oops"])
    with nothing_collected("toLocalIterator"):
        run.count(options)
    for batch_id in (0, 1):
        run.forget_commit(batch_id)
        run.put([event("a", event_id="3"), event("c")])
        run.count(options)
    counted = postgres.rows("SELECT user_id, events FROM daily_users ORDER BY 1")
    assert counted == [("a", "4"), ("b", "1"), ("c", "2")]
    dead = postgres.rows('SELECT topic, partition, "offset", reason, value, bytes FROM dead_letters')
    assert dead == [("events", "3", "3", "not JSON", "\\x7b6f6f7073", "5")]
    assert postgres.rows("SELECT job, last_batch_id FROM kafka_discovery_batches") == [("dau", "2")]
    assert postgres.rows("SELECT count(*) FROM daily_users_staging") == [("0",)]


class Interrupted(JdbcWriter):
    """Other jobs write between its staging and its transaction."""

    meanwhile: Callable[[], None]

    def _stage(self, table: Table, attempt: str) -> None:
        super()._stage(table, attempt)
        self.meanwhile()


def test_given_two_jobs_in_a_database_when_their_batches_interleave_then_each_has_its_letters(
    run: Run, postgres: Postgres
) -> None:
    def letter(reason: str, columns: str) -> DataFrame:
        row = ("events", 3, 7, reason, b"x", 1, "hash", None, None, None, None)
        letters = "topic STRING, partition INT, offset BIGINT, reason STRING, value BINARY, bytes INT, sha256 STRING"
        return run.session.createDataFrame([row], f"{letters}, {columns}")

    output = database(postgres)
    of_dau, of_visits = partial(tables_of, results=results("UTC")), partial(tables_of, results=ip_visits.results())
    daily = JdbcWriter(output, of_dau, job="dau", checkpoint="/ck/dau")
    no_event = letter("no event", "until TIMESTAMP, user_id STRING, events BIGINT, checksum BIGINT")
    visits = Interrupted(output, of_visits, job="ip_visits", checkpoint="/ck/visits")
    visits.meanwhile = partial(daily, no_event, 0)
    visits(letter("no visit", "window_start TIMESTAMP, window_end TIMESTAMP, ip STRING, visits BIGINT"), 0)
    assert postgres.rows("SELECT reason FROM dead_letters") == [("no event",)]
    assert postgres.rows("SELECT reason FROM visits_dead_letters") == [("no visit",)]


def test_given_a_database_of_another_checkpoint_when_counted_then_both_are_named_and_nothing_changes(
    run: Run, postgres: Postgres
) -> None:
    run.put([event("another")])
    run.count(run.into(database(postgres)))
    before = postgres.rows("SELECT * FROM daily_users ORDER BY 2")
    run.put([event("again")])
    said = refused(run, run.into(database(postgres), "new"), ConfigError)
    assert f"--output: {postgres.url.partition('?')[0]} holds the results of another checkpoint" in said
    assert str(run.folder / "new") in said
    assert postgres.rows("SELECT * FROM daily_users ORDER BY 2") == before


def test_given_a_database_when_a_task_fails_by_what_it_reads_then_that_error_ends_the_query_and_nothing_is_written(
    run: Run, postgres: Postgres
) -> None:
    @udf(returnType="boolean", useArrow=False)
    def unreachable(_topic: str) -> bool:
        raise KafkaUnreachableError("no living broker")

    run.put([event("a")])
    with pytest.raises(StreamingQueryException) as raised:
        run.count(run.into(database(postgres)), run.records().where(unreachable("topic")))
    known = own_error(str(raised.value))
    assert (str(known), known and known.exit_code) == ("no living broker", KafkaUnreachableError.exit_code)
    assert postgres.rows("SELECT * FROM daily_users") == []


def test_given_a_database_that_refuses_when_counted_then_one_line_names_it(run: Run, postgres: Postgres) -> None:
    postgres.rows("CREATE TABLE kafka_discovery_batches (a INT)")
    run.put([event("a")])
    refusal = f'--output: {database(postgres)} cannot be written: ERROR: column "query_id" does not exist'
    assert refused(run, run.into(database(postgres)), StateError) == refusal


KEYED = {
    "daily_users": "day TEXT, user_id TEXT COLLATE same, events BIGINT, checksum BIGINT, PRIMARY KEY (day, user_id)",
    "daily_users_staging": "day TEXT, user_id TEXT COLLATE same, events BIGINT, checksum BIGINT, attempt TEXT",
    "dead_letters": 'topic TEXT COLLATE same, partition INT, "offset" BIGINT, PRIMARY KEY (topic, partition, "offset")',
}


@pytest.mark.parametrize("table", KEYED)
def test_given_a_key_without_regard_to_case_when_counted_then_its_table_is_named_and_nothing_is_staged(
    run: Run, postgres: Postgres, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    postgres.rows("CREATE COLLATION same (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    postgres.rows(f"CREATE TABLE {table} ({KEYED[table]})")
    staged: list[str] = []
    monkeypatch.setattr(JdbcWriter, "_stage", lambda _, table, attempt: staged.append(f"{table.name} {attempt}"))
    run.put([event("Alice"), event("alice"), b"{oops"])
    said = refused(run, run.into(database(postgres)), ConfigError)
    column = "topic" if table == "dead_letters" else "user_id"
    assert f"for the same in {column} of {table}, so" in said
    assert staged == []


def test_given_mariadb_when_counted_then_it_is_refused_until_made_as_the_page_says_and_keys_stay_apart(
    run: Run,
) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/sink.md").read_text(encoding="utf-8")
    (made,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    collation = "COLLATE utf8mb4_nopad_bin"
    people = ["Alice", "alice", "alice ", "al\u00efce"]
    run.put([*map(event, people), b"{oops"])
    with running_mariadb() as server:
        options = {"driver": "org.mariadb.jdbc.Driver"}
        server.rows(made.replace(f" {collation}", "").replace("results", "plain"))
        said = refused(run, run.into(JdbcOutput(url=server.url("plain"), options=options), "plain"), ConfigError)
        assert "for the same in day of daily_users, so" in said
        server.rows(made.replace("day VARCHAR(10)", "day DATE").replace("results", "dated"))
        run.count(run.into(JdbcOutput(url=server.url("dated"), options=options), "dated"))
        assert len(server.rows("SELECT * FROM dated.daily_users")) == len(people)
        server.rows(made)
        into = run.into(JdbcOutput(url=server.url("results"), options=options))
        run.count(into)
        run.forget_commit(0)
        run.put([event("alice", event_id="2")])
        run.count(into)
        counted = server.rows("SELECT user_id, events FROM results.daily_users ORDER BY 1")
        assert server.rows("SELECT `offset`, reason FROM results.dead_letters") == [("4", "not JSON")]
    assert counted == [("Alice", "1"), ("alice", "2"), ("alice ", "1"), ("al\u00efce", "1")]


LIKE_NAMES = "CREATE SCHEMA other; CREATE TABLE other.daily_users (a INT); CREATE TABLE dead1letters (a INT)"
NO_ALTER = """
CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$refused$$; END';
CREATE EVENT TRIGGER no_alter ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION refuse()
"""
"""As a driver leaves it that dies after it made a table and before it altered it."""


@pytest.mark.parametrize("before", [LIKE_NAMES, NO_ALTER], ids=["like names", "no alter"])
def test_given_like_names_or_no_second_statement_when_tables_are_made_then_each_has_its_key(
    run: Run, postgres: Postgres, before: str
) -> None:
    postgres.rows(before)
    run.put([event("a"), b"{oops"])
    run.count(run.into(database(postgres)))
    keys = """SELECT table_name, string_agg(column_name, ',' ORDER BY ordinal_position)
        FROM information_schema.key_column_usage WHERE table_schema = 'public' GROUP BY 1 ORDER BY 1"""
    assert postgres.rows(keys) == [
        ("daily_users", "day,user_id"),
        ("dead_letters", "topic,partition,offset"),
        ("kafka_discovery_batches", "job"),
    ]
    assert postgres.rows("SELECT user_id, events FROM daily_users") == [("a", "1")]


def test_given_a_folder_when_a_batch_is_replayed_then_each_batch_is_there_once_and_an_older_checkpoint_is_refused(
    run: Run,
) -> None:
    folder, options = folder_output(run)
    run.put([event("a", event_id="1"), event("b"), b"{oops"])
    with nothing_collected("toLocalIterator"):
        run.count(options)
    older = shutil.copytree(run.folder / "ck", run.folder / "older")
    run.forget_commit(0)
    for number in range(2):
        run.put([event("a", event_id=f"later {number}")])
        run.count(options)
    users = run.session.read.parquet(str(folder / "daily_users")).select("batch_id", "user_id", "events")
    assert sorted(map(tuple, users.collect())) == [(0, "a", 1), (0, "b", 1), (1, "a", 2), (2, "a", 3)]
    dead = run.session.read.parquet(str(folder / "dead_letters")).select("batch_id", "reason", "bytes")
    assert [tuple(row) for row in dead.collect()] == [(0, "not JSON", 5)]
    said = refused(run, run.into(options.job.output, older.name), ConfigError)
    assert said.startswith(f"--output: {folder} ends with batch 2, and checkpoint {older}")


@pytest.mark.parametrize("draft", ["", '{"query_id": "5'], ids=["empty", "torn"])
def test_given_a_driver_that_died_in_its_first_note_when_it_starts_again_then_it_goes_on(run: Run, draft: str) -> None:
    folder, options = folder_output(run)
    folder.mkdir()
    (folder / "_kafka_discovery.json.new").write_text(draft)
    run.put([event("a")])
    run.count(options)
    users = run.session.read.parquet(str(folder / "daily_users")).select("batch_id", "user_id")
    assert [tuple(row) for row in users.collect()] == [(0, "a")]
    assert json.loads((folder / "_kafka_discovery.json").read_text())["last_batch_id"] == 0


def test_given_batches_without_their_note_when_a_new_checkpoint_begins_then_it_is_refused(run: Run) -> None:
    folder, options = folder_output(run)
    for number in range(2):
        run.put([event(f"user {number}")])
        run.count(options)
    (folder / "_kafka_discovery.json").unlink()
    said = refused(run, run.into(options.job.output, "other"), ConfigError)
    assert said.startswith(f"--output: {folder} has batches up to 1 and no _kafka_discovery.json")


def test_given_a_note_that_no_job_wrote_when_counted_then_it_is_named_and_refused(run: Run) -> None:
    folder, options = folder_output(run)
    folder.mkdir()
    (folder / "_kafka_discovery.json").write_text("")
    run.put([event("a")])
    assert "_kafka_discovery.json holds '', which no job wrote" in refused(run, options, StateError)
    assert [path.name for path in folder.iterdir()] == ["_kafka_discovery.json"]


def test_given_a_static_frame_when_classified_then_a_good_event_has_no_reason(session: SparkSession) -> None:
    rows = [(event("a", at="2026-01-02 03:04:05"), "t", 0, 1)]
    found = classify(session.createDataFrame(rows, SCHEMA), CLOCK).select("reason", "user_id").collect()
    assert [tuple(row) for row in found] == [(None, "a")]


HADOOP_SAYS = {
    "s3a://bucket/ck": "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class "
    "org.apache.hadoop.fs.s3a.S3AFileSystem not found; name Hadoop's client for that scheme with --conf "
    "spark.jars.packages=…",
    "hdfs:///ck": "java.io.IOException: Incomplete HDFS URI, no host: hdfs:///ck; correct it, or start again where its "
    "file system can be reached",
}


@pytest.mark.parametrize(("checkpoint", "said"), HADOOP_SAYS.items())
def test_given_a_checkpoint_that_hadoop_cannot_use_when_the_session_is_made_then_one_line_says_why(
    session: SparkSession, checkpoint: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        write_local_files_without_forks(session, checkpoint)
    assert str(caught.value) == f"--checkpoint: {checkpoint}: {said}"


@pytest.mark.parametrize(
    ("checkpoint", "chosen", "expected"),
    [
        ("file:///srv/checkpoint", None, "FileSystemBasedCheckpointFileManager"),
        ("/srv/checkpoint", None, "FileSystemBasedCheckpointFileManager"),
        ("hdfs://127.0.0.1:1/checkpoint", None, "None"),
        ("/srv/checkpoint", "a.Manager", "a.Manager"),
    ],
)
def test_given_a_checkpoint_when_the_session_is_made_then_only_a_local_one_gets_the_manager_that_forks_nothing(
    session: SparkSession, checkpoint: str, chosen: str | None, expected: str
) -> None:
    before = session.conf.get(CHECKPOINT_MANAGER, None)
    session.conf.unset(CHECKPOINT_MANAGER)
    try:
        if chosen:
            session.conf.set(CHECKPOINT_MANAGER, chosen)
        write_local_files_without_forks(session, checkpoint)
        assert str(session.conf.get(CHECKPOINT_MANAGER, None)).endswith(expected)
    finally:
        session.conf.unset(CHECKPOINT_MANAGER)
        if before:
            session.conf.set(CHECKPOINT_MANAGER, before)


class Process:
    """The job as a user runs it."""

    def __init__(self, folder: Path, bootstrap_servers: str, topic: str) -> None:
        self.database = folder / "dau.db"
        self._log = folder / "job.log"
        self._command = [sys.executable, "spark_jobs/dau.py", "--bootstrap-servers", bootstrap_servers]
        self._command += [
            "--topic",
            topic,
            "--output",
            f"sqlite:///{self.database}",
            "--checkpoint",
            str(folder / "ck"),
        ]
        self._command += ["--state-dir", str(folder / "state"), "--source-id", topic]

    @contextmanager
    def running(self, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
        with self._log.open("ab") as log:
            process = subprocess.Popen([*self._command, *options], stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, *options: str) -> int:
        with self.running(*options) as process:
            return process.wait(JOB_SECONDS)

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def events(self) -> int:
        with closing(sqlite3.connect(self.database)) as connection:
            return int(connection.execute("SELECT coalesce(sum(events), 0) FROM daily_users").fetchone()[0])


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_given_a_topic_when_the_job_runs_stops_and_runs_again_then_each_event_counts_once(
    kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path
) -> None:
    kafka_cluster.create_topic(topic_name, partitions=2)
    job = Process(tmp_path, kafka_cluster.bootstrap_servers, topic_name)
    values = [event(f"u{i % 7}", event_id=str(i)) for i in range(100)]
    produce(kafka_cluster.bootstrap_servers, topic_name, *values, b"{oops")
    assert job.run("--available-now") == 0, job.said()
    assert job.events() == 100
    with job.running("--trigger-interval", "100ms") as process:
        produce(kafka_cluster.bootstrap_servers, topic_name, *values[:50])
        eventually(lambda: job.events() == 150, JOB_SECONDS, "the count of the later events")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, job.said()
    assert "Traceback" not in job.said()


@pytest.mark.timeout(300)
def test_given_no_living_broker_when_the_job_starts_then_it_ends_with_one_line_of_verdicts(tmp_path: Path) -> None:
    job = Process(tmp_path, "127.0.0.1:1", "t")
    assert job.run("--source-option", "startupTimeout=2s") == 3
    last = job.said().splitlines()[-1]
    assert last.startswith("dau: the query failed: startupTimeout: after 2 s no living broker; 127.0.0.1:1: refused")
    assert "\tat org.apache" not in job.said()


def test_given_a_wrong_option_when_the_job_starts_then_it_ends_at_once_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--topic", "t"]) == 2
    assert capsys.readouterr().err.strip() == (
        "dau: the following arguments are required: --bootstrap-servers, --checkpoint; see --help"
    )
