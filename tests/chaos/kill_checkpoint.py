"""A driver killed while it writes its local checkpoint, again and again: `make kill-job`. No Kafka."""

import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.checkpoint import committed
from tests.support.helpers import eventually

pytestmark = pytest.mark.spark
FILES, EVENTS, USERS = 60, 5, 7
ROUNDS = ("offsets", "state", "commits", "state", "offsets")
"""In which folder a file is half-written when the driver dies."""
START_SECONDS = 300.0


def put_events(folder: Path) -> None:
    """One file per batch, in the order of their times."""
    (folder / "in").mkdir()
    now = datetime.now(UTC).isoformat()
    for number in range(FILES):
        lines = []
        for offset in range(number * EVENTS, (number + 1) * EVENTS):
            said = {"event_id": str(offset), "user_id": f"u{offset % USERS}", "ip": "10.0.0.1", "ts": now}
            value = base64.b64encode(json.dumps(said).encode()).decode()
            lines.append(json.dumps({"value": value, "topic": "events", "partition": 0, "offset": offset}))
        file = folder / "in" / f"{number:05}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (1_700_000_000 + number,) * 2)


def driver(folder: Path) -> "subprocess.Popen[bytes]":
    with (folder / "driver.log").open("ab") as log:
        command = [sys.executable, "-m", "tests.support.spark.counting_driver", str(folder)]
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def halves(checkpoint: Path, place: str) -> set[Path]:
    """What was written in a folder and not renamed."""
    return set(checkpoint.glob(f"{place}/**/.*.tmp"))


def kill_while_writing(job: "subprocess.Popen[bytes]", checkpoint: Path, place: str) -> bool:
    """Kill all of it when a file of this folder is being written; whether that file stayed half-written."""
    before, deadline = halves(checkpoint, place), time.monotonic() + START_SECONDS
    while job.poll() is None and time.monotonic() < deadline and halves(checkpoint, place) <= before:
        pass
    os.killpg(job.pid, signal.SIGKILL)
    assert job.wait(60) == -signal.SIGKILL, "it ended before it could be killed"
    return not halves(checkpoint, place) <= before


def await_batches(job: "subprocess.Popen[bytes]", checkpoint: Path, enough: int) -> None:
    eventually(lambda: committed(checkpoint) >= enough or job.poll() is not None, START_SECONDS, "batches")


@pytest.mark.timeout(1800)
def test_given_a_driver_killed_between_write_and_rename_when_it_starts_again_then_the_count_is_exact(
    tmp_path: Path,
) -> None:
    put_events(tmp_path)
    checkpoint, cut = tmp_path / "checkpoint", 0
    for place in ROUNDS:
        enough = committed(checkpoint) + 2
        with driver(tmp_path) as job:
            await_batches(job, checkpoint, enough)
            cut += kill_while_writing(job, checkpoint, place)
    assert cut >= 2, "hardly a kill fell between write and rename"
    assert committed(checkpoint) < FILES, "the last driver had nothing left to do"
    with driver(tmp_path) as last:
        assert last.wait(START_SECONDS) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    with closing(sqlite3.connect(tmp_path / "dau.db")) as connection:
        counted = dict(connection.execute("SELECT user_id, events FROM daily_users").fetchall())
    assert counted == {f"u{user}": len(range(user, FILES * EVENTS, USERS)) for user in range(USERS)}
