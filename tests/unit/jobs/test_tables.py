"""Whether a batch follows on what an output holds, and where a SQLite file may be."""

from pathlib import Path

import pytest

from discovery.core.errors import ConfigError, StateError
from discovery.spark.jobs.sqlite import SqliteOutput, connected, make_file, make_table
from discovery.spark.jobs.tables import Held, refuse_strangers


@pytest.mark.parametrize(
    ("held", "next_batch", "said"),
    [
        (None, 7, "is empty, and checkpoint /ck goes on with batch 7"),
        (Held("q", 2), 1, "ends with batch 2, and checkpoint /ck goes on with batch 1"),
        (Held("q", 2), 4, "ends with batch 2, and checkpoint /ck goes on with batch 4"),
        (Held("old", 2), 3, "holds the results of another checkpoint (query old, /ck is q)"),
    ],
)
def test_given_output_and_checkpoint_that_do_not_belong_together_when_a_batch_comes_then_both_are_named(
    held: Held | None, next_batch: int, said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        refuse_strangers("/out", "/ck", held, query_id="q", batch_id=next_batch)
    assert str(raised.value).startswith(f"--output: /out {said}")


@pytest.mark.parametrize(("held", "next_batch"), [(None, 0), (Held("q", 2), 2), (Held("q", 2), 3)])
def test_given_the_next_or_the_last_batch_when_it_comes_then_it_may_be_written(
    held: Held | None, next_batch: int
) -> None:
    refuse_strangers("/out", "/ck", held, query_id="q", batch_id=next_batch)


def test_given_a_file_that_is_no_database_when_made_ready_then_one_line_says_so(tmp_path: Path) -> None:
    (tmp_path / "dau.db").write_bytes(b"certainly not a database" * 100)
    with pytest.raises(StateError, match="cannot be written"):
        make_file(SqliteOutput(path=tmp_path / "dau.db"))


def test_given_a_file_of_an_earlier_version_when_written_then_it_gets_the_columns_it_lacks(tmp_path: Path) -> None:
    columns = {"topic": "TEXT", "reason": "TEXT", "bytes": "INTEGER", "sha256": "TEXT"}
    with connected(tmp_path / "dau.db") as connection:
        connection.execute("CREATE TABLE dead_letters (topic TEXT PRIMARY KEY, reason TEXT) WITHOUT ROWID")
        for _ in range(2):
            make_table(connection, "dead_letters", columns, ("topic",))
        connection.execute("INSERT INTO dead_letters VALUES ('t', 'r', 3, 'x')")
