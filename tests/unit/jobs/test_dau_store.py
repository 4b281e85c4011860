"""The SQLite sink: a batch lands whole and once."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from discovery.core.errors import ConfigError, StateError
from discovery.spark.jobs.dau_store import DailyUser, DauStore, DeadLetter


@pytest.fixture
def store(tmp_path: Path) -> DauStore:
    made = DauStore(tmp_path / "dau.db", "/ck")
    made.create()
    return made


def user(user_id: str, events: int, day: str = "2026-01-01") -> DailyUser:
    return DailyUser(day=day, user_id=user_id, events=events, checksum=events * 7)


def letter(offset: int) -> DeadLetter:
    return DeadLetter(
        topic="events", partition=0, offset=offset, reason="not JSON", value=b"\xff\x00", bytes=2, sha256="h"
    )


def rows(tmp_path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(tmp_path / "dau.db")) as connection:
        return connection.execute(query).fetchall()


def test_given_two_batches_when_applied_then_totals_are_replaced_and_days_counted(
    store: DauStore, tmp_path: Path
) -> None:
    store.apply(query_id="q", batch_id=0, rows=[user("a", 1), letter(5), user("b", 2)])
    store.apply(query_id="q", batch_id=1, rows=[user("a", 4), user("a", 1, "2026-01-02")])
    assert rows(tmp_path, "SELECT * FROM daily_active_users") == [("2026-01-01", 2, 6), ("2026-01-02", 1, 1)]
    assert rows(tmp_path, "SELECT * FROM dead_letters") == [("events", 0, 5, "not JSON", b"\xff\x00", 2, "h")]


def test_given_an_applied_batch_when_planned_again_then_its_totals_are_there_once(
    store: DauStore, tmp_path: Path
) -> None:
    store.apply(query_id="q", batch_id=0, rows=[user("a", 5), letter(1)])
    store.apply(query_id="q", batch_id=0, rows=[user("a", 6), user("b", 1), letter(1)])
    assert rows(tmp_path, "SELECT user_id, events FROM daily_users") == [("a", 6), ("b", 1)]
    assert rows(tmp_path, "SELECT count(*) FROM dead_letters") == [(1,)]


def test_given_a_failure_in_mid_batch_when_applied_again_then_it_lands_whole(store: DauStore, tmp_path: Path) -> None:
    def broken() -> Iterator[DailyUser | DeadLetter]:
        yield user("a", 1)
        raise RuntimeError("the driver dies here")

    with pytest.raises(RuntimeError):
        store.apply(query_id="q", batch_id=0, rows=broken())
    assert rows(tmp_path, "SELECT count(*) FROM daily_users") == [(0,)]
    store.apply(query_id="q", batch_id=0, rows=[user("a", 1), letter(1)])


def test_given_results_of_another_checkpoint_when_applied_then_it_is_refused(store: DauStore, tmp_path: Path) -> None:
    store.apply(query_id="old", batch_id=0, rows=[user("a", 5)])
    with pytest.raises(ConfigError, match="another checkpoint"):
        store.apply(query_id="new", batch_id=0, rows=[user("a", 1)])
    assert rows(tmp_path, "SELECT user_id, events FROM daily_users") == [("a", 5)]


@pytest.mark.parametrize(
    ("batches", "next_batch", "said"),
    [(0, 7, "is empty"), (3, 1, "ends with batch 2"), (3, 4, "ends with batch 2")],
)
def test_given_file_and_checkpoint_that_do_not_belong_together_when_applied_then_both_are_named(
    store: DauStore, tmp_path: Path, batches: int, next_batch: int, said: str
) -> None:
    for number in range(batches):
        store.apply(query_id="q", batch_id=number, rows=[user("a", number)])
    before = rows(tmp_path, "SELECT * FROM daily_users")
    with pytest.raises(ConfigError) as raised:
        store.apply(query_id="q", batch_id=next_batch, rows=[user("a", 99)])
    assert f"--output: {tmp_path}/dau.db {said}, and checkpoint /ck goes on with batch {next_batch}" in str(
        raised.value
    )
    assert rows(tmp_path, "SELECT * FROM daily_users") == before


def test_given_a_file_of_an_earlier_version_when_opened_then_dead_letters_get_size_and_hash(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "dau.db")) as connection:
        connection.execute("CREATE TABLE dead_letters (topic, partition, offset, reason, value)")
    store = DauStore(tmp_path / "dau.db", "/ck")
    store.create()
    store.apply(query_id="q", batch_id=0, rows=[letter(1)])
    assert rows(tmp_path, "SELECT bytes, sha256 FROM dead_letters") == [(2, "h")]


def test_given_a_file_that_is_no_database_when_created_then_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "dau.db").write_bytes(b"certainly not a database" * 100)
    with pytest.raises(StateError, match="cannot be written"):
        DauStore(tmp_path / "dau.db", "/ck").create()
