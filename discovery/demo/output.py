"""Reads the job's results, as any user of them would."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def read_users(path: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (day, user) to (events, checksum)."""
    rows = _rows(path, "SELECT day, user_id, events, checksum FROM daily_users")
    return {(day, user): (events, checksum) for day, user, events, checksum in rows}


def read_dead_letters(path: Path) -> frozenset[tuple[int, int]]:
    """Return (partition, offset) of every dead letter."""
    return frozenset(_rows(path, "SELECT partition, offset FROM dead_letters"))


def read_days(path: Path) -> list[tuple[str, int, int]]:
    """Return (day, users, events), oldest first: the figures the whole job is for."""
    return _rows(path, "SELECT day, count(*), sum(events) FROM daily_users GROUP BY day ORDER BY day")


def _rows(path: Path, query: str) -> list[Any]:
    """Ask; the tables come with the first batch."""
    with closing(sqlite3.connect(path)) as connection:
        is_begun = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sink_state'").fetchone()
        return connection.execute(query).fetchall() if is_begun else []
