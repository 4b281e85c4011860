"""Reads the job's results, as any user of them would."""

import sqlite3
from contextlib import closing
from pathlib import Path


def read_users(path: Path) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (day, user) to (events, checksum)."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT day, user_id, events, checksum FROM daily_users")
        return {(day, user): (events, checksum) for day, user, events, checksum in rows}


def read_dead_letters(path: Path) -> frozenset[tuple[int, int]]:
    """Return (partition, offset) of every record that was put aside."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT partition, offset FROM dead_letters")
        return frozenset((partition, offset) for partition, offset in rows)


def read_days(path: Path) -> list[tuple[str, int, int]]:
    """Return (day, users, events), oldest first: the figures the whole job is for."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT day, users, events FROM daily_active_users ORDER BY day")
        return [(day, users, events) for day, users, events in rows]
