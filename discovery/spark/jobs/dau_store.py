"""Where the daily active users land: one SQLite file, one transaction per micro-batch.

The number of the batch is written in the same transaction as its rows. A batch that Spark replays, because it
died between our commit and its own, finds its number there and changes nothing.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from discovery.core.errors import ConfigError, StateError

_SCHEME = "sqlite:///"
_BUSY_TIMEOUT_SECONDS = 30.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS daily_users (
  day TEXT NOT NULL, user_id TEXT NOT NULL, events INTEGER NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (day, user_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letters (
  topic TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL, reason TEXT NOT NULL, value BLOB,
  PRIMARY KEY (topic, partition, offset)
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
INSERT INTO dead_letters (topic, partition, offset, reason, value) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (topic, partition, offset) DO UPDATE SET reason = excluded.reason, value = excluded.value
"""


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


def parse_output(text: str, *, option: str = "--output") -> Path:
    """Read `sqlite:///relative.db` or `sqlite:////absolute.db`.

    Raises:
        ConfigError: another scheme, no file name, or a folder that does not exist.

    Runs: anywhere; looks at the file system.
    """
    if not text.startswith(_SCHEME) or not text.removeprefix(_SCHEME):
        raise ConfigError(
            f"{option}: {text!r} is not supported; write {_SCHEME}FILE (four slashes for an absolute path)"
        )
    path = Path(text.removeprefix(_SCHEME)).absolute()
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise ConfigError(f"{option}: the folder {path.parent} does not exist; make it first")
    return path


class DauStore:
    """The SQLite file of one query. The constructor does no I/O; each call opens and closes its own connection."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        """Make the tables where they are missing, in WAL mode so that readers never block the job.

        Raises:
            StateError: the file cannot be written or is no SQLite file.

        Runs: driver, once at the start; blocks <= 30 s behind another writer.
        """
        with self._connection() as connection:
            connection.execute("PRAGMA journal_mode=WAL").close()
            connection.executescript(_SCHEMA)

    def apply(
        self, *, query_id: str, batch_id: int, users: Iterable[DailyUser], dead_letters: Iterable[DeadLetter]
    ) -> bool:
        """Write one batch and its number, or nothing at all.

        Returns:
            False where this batch was applied before; then nothing has changed.

        Raises:
            ConfigError: the file holds the results of another checkpoint.
            StateError: the file cannot be written; nothing of the batch is in it.

        Runs: driver, once per micro-batch; blocks <= 30 s behind another writer.
        """
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if batch_id <= self._last_batch(connection, query_id):
                connection.execute("ROLLBACK")
                return False
            connection.executemany(_UPSERT_USERS, ((u.day, u.user_id, u.events, u.checksum) for u in users))
            connection.executemany(
                _UPSERT_DEAD, ((d.topic, d.partition, d.offset, d.reason, d.value) for d in dead_letters)
            )
            connection.execute("INSERT OR REPLACE INTO sink_state VALUES (1, ?, ?)", (query_id, batch_id))
            connection.execute("COMMIT")
            return True

    def _last_batch(self, connection: sqlite3.Connection, query_id: str) -> int:
        row = connection.execute("SELECT query_id, last_batch_id FROM sink_state").fetchone()
        if row is None:
            return -1
        if row[0] != query_id:
            # Totals restart with a new checkpoint: they would overwrite complete ones, or be taken for replays.
            raise ConfigError(
                f"--output: {self._path} holds the results of another checkpoint (query {row[0]}, this one is"
                f" {query_id}); name the checkpoint it belongs to, or another file"
            )
        return int(row[1])

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
