"""Results in one SQLite file, one transaction per micro-batch.

The number of the batch is written in the same transaction as its rows. What is written are totals: a batch that Spark
replays, because it died between our commit and its own, writes the same ones again. A checkpoint that is further, or
less far, than that belongs to another file.
"""
# ruff: noqa: S608 - names of tables and columns are this program's own

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pyspark.sql import DataFrame

from discovery.core.errors import ConfigError, StateError
from discovery.spark.jobs.tables import Held, Shape, Table, refuse_strangers

SQLITE = "sqlite:///"
_BUSY_TIMEOUT_SECONDS = 30.0
_STATE = """CREATE TABLE IF NOT EXISTS sink_state (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1), query_id TEXT NOT NULL, last_batch_id INTEGER NOT NULL)"""
_TYPES: Mapping[str, str] = {"int": "INTEGER", "bigint": "INTEGER", "binary": "BLOB"}
_AT_ONCE = 5_000
"""Rows that are held here; a batch may have millions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteOutput:
    """A file of this machine."""

    path: Path


def sqlite_file(text: str, *, option: str = "--output") -> SqliteOutput:
    """Read `sqlite:///relative.db` or `sqlite:////absolute.db`.

    Raises:
        ConfigError: no file name, or a folder that does not exist.

    Runs: anywhere; looks at the file system.
    """
    if not text.removeprefix(SQLITE):
        raise ConfigError(f"{option}: {text!r} names no file; write {SQLITE}FILE (four slashes for an absolute path)")
    path = Path(text.removeprefix(SQLITE)).absolute()
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ConfigError(f"{option}: the folder {path.parent} does not exist; make it first")
    return SqliteOutput(path=path)


class SqliteWriter:
    """Spark's `foreachBatch` function. The constructor does no I/O; each call opens and closes its own connection."""

    def __init__(self, output: SqliteOutput, shape: Shape, *, checkpoint: str) -> None:
        """Name the file, and the checkpoint it belongs to."""
        self._path = output.path
        self._shape = shape
        self._checkpoint = checkpoint

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write the tables of this batch and its number, or nothing; a partition at a time comes to the driver.

        Raises:
            ConfigError: file and checkpoint do not belong together.
            StateError: the file cannot be written; nothing of the batch is in it.

        Runs: driver, once per micro-batch, on Spark's callback thread; blocks <= 30 s behind another writer, and for
        the batch.
        """
        query_id = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        batch.persist()
        try:
            with connected(self._path) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_STATE)
                row = connection.execute("SELECT query_id, last_batch_id FROM sink_state").fetchone()
                held = Held(*row) if row else None
                refuse_strangers(str(self._path), self._checkpoint, held, query_id=query_id, batch_id=batch_id)
                for table in self._shape(batch):
                    _write(connection, table)
                connection.execute("INSERT OR REPLACE INTO sink_state VALUES (1, ?, ?)", (query_id, batch_id))
                connection.execute("COMMIT")
        finally:
            batch.unpersist()


def _write(connection: sqlite3.Connection, table: Table) -> None:
    columns = {name: _TYPES.get(kind, "TEXT") for name, kind in table.rows.dtypes}
    make_table(connection, table.name, columns, table.key)
    names, values = ", ".join(f'"{name}"' for name in columns), ", ".join("?" * len(columns))
    rows = table.rows.toLocalIterator(prefetchPartitions=True)
    while some := list(islice(rows, _AT_ONCE)):
        connection.executemany(f"INSERT OR REPLACE INTO {table.name} ({names}) VALUES ({values})", some)


def make_table(connection: sqlite3.Connection, name: str, columns: Mapping[str, str], key: Iterable[str]) -> None:
    """Make a table where it is missing, and the columns that one of an earlier version lacks."""
    defined = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
    primary = ", ".join(f'"{column}"' for column in key)
    connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({defined}, PRIMARY KEY ({primary})) WITHOUT ROWID")
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
    for column in [one for one in columns if one not in there]:
        connection.execute(f'ALTER TABLE {name} ADD COLUMN "{column}" {columns[column]}')


def make_file(output: SqliteOutput) -> None:
    """Make the file where it is missing, in WAL mode so that readers never block the job. A batch makes its tables.

    Raises:
        StateError: the file cannot be written or is no SQLite file.

    Runs: driver, once before Spark starts; blocks <= 30 s behind another writer.
    """
    with connected(output.path) as connection:
        connection.execute("PRAGMA journal_mode=WAL").close()


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file with explicit transactions; closing without a commit undoes what was begun."""
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=FULL").close()
            yield connection
    except sqlite3.Error as error:
        raise StateError(f"--output: {path} cannot be written: {error}; free space or rights are missing") from error
