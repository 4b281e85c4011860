"""Where the daily active users land: one SQLite file, one transaction per micro-batch.

The number of the batch is written in the same transaction as its rows. What is written are totals: a batch that Spark
replays, because it died between our commit and its own, writes the same ones again. A checkpoint that is further, or
less far, than that belongs to another file.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path

from discovery.core.errors import ConfigError, StateError
from discovery.spark.jobs.tables import Held, refuse_strangers

SQLITE = "sqlite:///"
_BUSY_TIMEOUT_SECONDS = 30.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS daily_users (
  day TEXT NOT NULL, user_id TEXT NOT NULL, events INTEGER NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (day, user_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letters (
  topic TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL, reason TEXT NOT NULL, value BLOB,
  bytes INTEGER, sha256 TEXT, PRIMARY KEY (topic, partition, offset)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sink_state (
  only_row INTEGER PRIMARY KEY CHECK (only_row = 1), query_id TEXT NOT NULL, last_batch_id INTEGER NOT NULL
);
CREATE VIEW IF NOT EXISTS daily_active_users AS
  SELECT day, count(*) AS users, sum(events) AS events FROM daily_users GROUP BY day ORDER BY day;
"""

_UPSERT_USERS = """
INSERT INTO daily_users (day, user_id, events, checksum) VALUES (?, ?, ?, ?)
ON CONFLICT (day, user_id) DO UPDATE SET events = excluded.events, checksum = excluded.checksum
"""
_UPSERT_DEAD = """
INSERT OR REPLACE INTO dead_letters (topic, partition, offset, reason, value, bytes, sha256)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_ADDED = {"bytes": "INTEGER", "sha256": "TEXT"}
"""Columns of `dead_letters` that files of earlier versions lack."""
_AT_ONCE = 5_000
"""Rows that are held here; a batch may have millions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyUser:
    """One user on one day: the totals so far, not a difference."""

    day: str
    """ISO date, UTC."""
    user_id: str
    events: int
    checksum: int
    """Sum of the CRC-32 of the event ids; tells a lost and a doubled event apart from none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A malformed record with its partition and offset."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes | None
    """Its beginning."""
    bytes: int | None
    """All of it."""
    sha256: str | None
    """Of all of it."""


def sqlite_file(text: str, *, option: str = "--output") -> Path:
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
    return path


class DauStore:
    """The SQLite file of one query. The constructor does no I/O; each call opens and closes its own connection."""

    def __init__(self, path: Path, checkpoint: str) -> None:
        """Name the file, and the checkpoint it belongs to."""
        self._path = path
        self._checkpoint = checkpoint

    def create(self) -> None:
        """Make the tables where they are missing, in WAL mode so that readers never block the job.

        Raises:
            StateError: the file cannot be written or is no SQLite file.

        Runs: driver, once at the start; blocks <= 30 s behind another writer.
        """
        with self._connection() as connection:
            connection.execute("PRAGMA journal_mode=WAL").close()
            connection.executescript(_SCHEMA)
            there = {row[1] for row in connection.execute("PRAGMA table_info(dead_letters)")}
            for name, kind in _ADDED.items():
                if name not in there:
                    connection.execute(f"ALTER TABLE dead_letters ADD COLUMN {name} {kind}")

    def apply(self, *, query_id: str, batch_id: int, rows: Iterable[DailyUser | DeadLetter]) -> None:
        """Write one batch and its number, or nothing at all.

        Raises:
            ConfigError: file and checkpoint do not belong together.
            StateError: the file cannot be written; nothing of the batch is in it.

        Runs: driver, once per micro-batch; blocks <= 30 s behind another writer, and for the rows.
        """
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute("SELECT query_id, last_batch_id FROM sink_state").fetchone()
            held = Held(*row) if row else None
            refuse_strangers(str(self._path), self._checkpoint, held, query_id=query_id, batch_id=batch_id)
            left = iter(rows)
            while some := list(islice(left, _AT_ONCE)):
                connection.executemany(_UPSERT_USERS, (astuple(row) for row in some if isinstance(row, DailyUser)))
                connection.executemany(_UPSERT_DEAD, (astuple(row) for row in some if isinstance(row, DeadLetter)))
            connection.execute("INSERT OR REPLACE INTO sink_state VALUES (1, ?, ?)", (query_id, batch_id))
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open the file with explicit transactions; closing without a commit undoes what was begun."""
        try:
            with closing(
                sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA synchronous=FULL").close()
                yield connection
        except sqlite3.Error as error:
            raise StateError(
                f"--output: {self._path} cannot be written: {error}; free space or rights are missing"
            ) from error
