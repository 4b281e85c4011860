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
    made = DauStore(tmp_path / "dau.db")
    made.create()
    return made


def user(user_id: str, events: int, day: str = "2026-01-01") -> DailyUser:
    return DailyUser(day=day, user_id=user_id, events=events, checksum=events * 7)


def letter(offset: int) -> DeadLetter:
    return DeadLetter(topic="events", partition=0, offset=offset, reason="not JSON", value=b"\xff\x00")


def rows(tmp_path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(tmp_path / "dau.db")) as connection:
        return connection.execute(query).fetchall()


def test_given_two_batches_when_applied_then_totals_are_replaced_and_days_counted(
    store: DauStore, tmp_path: Path
) -> None:
    assert store.apply(query_id="q", batch_id=0, users=[user("a", 1), user("b", 2)], dead_letters=[letter(5)])
    assert store.apply(query_id="q", batch_id=1, users=[user("a", 4), user("a", 1, "2026-01-02")], dead_letters=[])
    assert rows(tmp_path, "SELECT * FROM daily_active_users") == [("2026-01-01", 2, 6), ("2026-01-02", 1, 1)]
    assert rows(tmp_path, "SELECT * FROM dead_letters") == [("events", 0, 5, "not JSON", b"\xff\x00")]


def test_given_an_applied_batch_when_replayed_then_nothing_changes(store: DauStore, tmp_path: Path) -> None:
    store.apply(query_id="q", batch_id=3, users=[user("a", 5)], dead_letters=[])
    assert not store.apply(query_id="q", batch_id=3, users=[user("a", 99)], dead_letters=[letter(1)])
    assert rows(tmp_path, "SELECT user_id, events FROM daily_users") == [("a", 5)]
    assert rows(tmp_path, "SELECT count(*) FROM dead_letters") == [(0,)]


def test_given_a_failure_in_mid_batch_when_applied_again_then_it_lands_whole(store: DauStore, tmp_path: Path) -> None:
    def broken() -> Iterator[DeadLetter]:
        yield letter(1)
        raise RuntimeError("the driver dies here")

    with pytest.raises(RuntimeError):
        store.apply(query_id="q", batch_id=0, users=[user("a", 1)], dead_letters=broken())
    assert rows(tmp_path, "SELECT count(*) FROM daily_users") == [(0,)]
    assert store.apply(query_id="q", batch_id=0, users=[user("a", 1)], dead_letters=[letter(1)])


def test_given_results_of_another_checkpoint_when_applied_then_it_is_refused(store: DauStore, tmp_path: Path) -> None:
    store.apply(query_id="old", batch_id=7, users=[user("a", 5)], dead_letters=[])
    with pytest.raises(ConfigError, match="another checkpoint"):
        store.apply(query_id="new", batch_id=0, users=[user("a", 1)], dead_letters=[])
    assert rows(tmp_path, "SELECT user_id, events FROM daily_users") == [("a", 5)]


def test_given_a_file_that_is_no_database_when_created_then_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "dau.db").write_bytes(b"certainly not a database" * 100)
    with pytest.raises(StateError, match="cannot be written"):
        DauStore(tmp_path / "dau.db").create()
