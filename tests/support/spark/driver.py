"""A handle on a Spark driver that runs as a process of its own, and on the queries in it."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from discovery.spark.jobs.running import CHECKPOINT_MANAGER, LOCAL_CHECKPOINT_MANAGER
from discovery.spark.launch.python import worker_python
from tests.support.helpers import eventually
from tests.support.spark.oracle import Load, Row

_ANSWER_SECONDS = 180.0
ROW_SECONDS = 180.0
BUG_PHRASE = "BUG in kafka-discovery"


class SparkDriver:
    """A Spark session in a child process; it and all its children end with `stop`."""

    def __init__(
        self,
        folder: Path,
        *,
        master: str = "local[4]",
        settings: Mapping[str, str] | None = None,
        python: Path | None = None,
    ) -> None:
        self.folder = folder
        self._python = worker_python() if python is None else str(python)
        self._settings = {
            "spark.master": master,
            "spark.driver.memory": "768m",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            CHECKPOINT_MANAGER: LOCAL_CHECKPOINT_MANAGER,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            **(settings or {}),
        }
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()
        self._started = 0

    def start(self) -> Self:
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": self._python,
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYTHONUNBUFFERED": "1",
        }
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.spark.driver_main", json.dumps(self._settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        self._answer("start")
        return self

    @property
    def _log_file(self) -> Path:
        return self.folder / "driver.log"

    def log(self) -> str:
        """Everything the driver, its JVM and its Python processes wrote so far."""
        return self._log_file.read_text(errors="replace")

    def query(
        self,
        options: Mapping[str, str],
        *,
        checkpoint: Path | None = None,
        source: str = "kafka-discovery",
        trigger: str | None = "100 milliseconds",
        shape: str = "rows",
    ) -> "Query":
        """Start a query; `trigger=None` reads what is there and ends. For `shape` see the driver's main module."""
        self._started += 1
        name = f"query-{self._started}"
        checkpoint = checkpoint or self.folder / name
        query = Query(self, name, self.folder / f"{name}.rows", checkpoint)
        self.ask(
            "start",
            name=name,
            source=source,
            options={"startingOffsets": "earliest", **options},
            checkpoint=str(checkpoint),
            rows=str(query.file),
            trigger=trigger,
            shape=shape,
        )
        return query

    def kill_workers(self) -> int:
        """SIGKILL the Python workers that run tasks now, as a host short of memory would; returns how many."""
        assert self._process is not None
        daemons = [pid for pid, _ in _session(self._process.pid) if _is_daemon(pid)]
        workers = [pid for pid, parent in _session(self._process.pid) if parent in daemons]
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(workers)

    def tasks(self) -> int:
        """Count the tasks that occupy slots now."""
        return int(self.ask("tasks"))

    def ask(self, what: str, **details: Any) -> Any:
        """Send one command and return its value; an error of the driver's fails the test."""
        assert self._process is not None
        assert self._process.stdin is not None
        print(json.dumps({"do": what, **details}), file=self._process.stdin, flush=True)
        return self._answer(what)

    def kill(self) -> None:
        """SIGKILL the driver with its JVM, as a machine that goes away would; `start` brings up another."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._release()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Hold the driver and its JVM by SIGSTOP for the block; the Python workers go on."""
        assert self._process is not None
        os.killpg(group := self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)

    @contextlib.contextmanager
    def replaced(self, *, alive_seconds: float = 10.0) -> Iterator[None]:
        """Stop the driver and start another for the block; the first one then goes on beside it, and is killed."""
        assert self._process is not None
        former = self._process
        os.killpg(former.pid, signal.SIGSTOP)
        self._process = None
        try:
            self.start()
            yield
            os.killpg(former.pid, signal.SIGCONT)
            time.sleep(alive_seconds)
        finally:
            with former:  # closes its streams
                os.killpg(former.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the session and everything it started; a second call does nothing."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _release(self) -> None:
        assert self._process is not None
        self._process.wait(10)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process = None

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in process.stdout:
                self._answers.put(line)

    def _answer(self, what: str) -> Any:
        try:
            answer = json.loads(self._answers.get(timeout=_ANSWER_SECONDS))
        except queue.Empty:
            raise AssertionError(
                f"the driver did not answer {what!r} in time; its last words: {self.log()[-2000:]}"
            ) from None
        if "error" in answer:
            raise AssertionError(f"{what}: {answer['error']}")
        return answer["value"]


def _session(session: int) -> list[tuple[int, int]]:
    """Return the processes of one session with their parents."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                found.append((int(stat.parent.name), int(fields[1])))
    return found


def _is_daemon(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


class Query:
    """A running query and the rows it delivered, batch by batch."""

    def __init__(self, driver: SparkDriver, name: str, file: Path, checkpoint: Path) -> None:
        self._driver = driver
        self._name = name
        self.file = file
        self._checkpoint = checkpoint
        self._read = 0
        self._rest = ""
        self._begun = -1
        self._batches: dict[int, list[Row]] = {}

    def rows(self) -> list[Row]:
        """Return all rows so far. A batch that ran again counts once, and must have delivered the same."""
        self._catch_up()
        return [row for rows in self._batches.values() for row in rows]

    def count(self) -> int:
        """Return how many rows came so far."""
        return len(self.rows())

    def values(self) -> set[str | None]:
        """Return the values that came so far."""
        return {row.value for row in self.rows()}

    def in_flight(self) -> bool:
        """Tell whether a batch was planned and is not delivered."""
        self._catch_up()
        return self._begun not in self._batches and self._begun >= 0

    def hold(self) -> None:
        """Make the next batch wait between its plan and its tasks."""
        self.file.with_suffix(".hold").touch()

    def linger(self) -> None:
        """Make the next batch wait after its rows were delivered."""
        self.file.with_suffix(".linger").touch()

    def release(self) -> None:
        """Let the waiting batch go on."""
        for what in (".hold", ".linger"):
            self.file.with_suffix(what).unlink(missing_ok=True)

    def status(self) -> dict[str, Any]:
        """Return `active`, `failure` and `planned`."""
        found: dict[str, Any] = self._driver.ask("status", name=self._name)
        return found

    def stop(self) -> None:
        """Stop it; does nothing to a query that ended."""
        self.release()
        self._driver.ask("stop", name=self._name)

    def wait_until(self, condition: object, message: str, deadline_seconds: float = ROW_SECONDS) -> None:
        """Wait for a condition on the rows; fail at once when the query ended."""
        assert callable(condition)

        def reached() -> bool:
            if condition():
                return True
            self.assert_alive()
            return bool(condition())

        eventually(reached, deadline_seconds, lambda: f"{message} (now {self.count()} rows)")

    def wait_rows(self, count: int, deadline_seconds: float = ROW_SECONDS) -> None:
        """Wait until so many rows came."""
        self.wait_until(lambda: self.count() >= count, f"row {count}", deadline_seconds)

    def wait_committed(self) -> None:
        """Wait until Spark has noted its last delivered batch as done: else a restart delivers it again."""
        newest = self._checkpoint / "commits" / str(max(self.batches()))
        self.wait_until(newest.exists, f"the commit of batch {newest.name}")

    def assert_alive(self) -> None:
        """Fail unless it is still active."""
        status = self.status()
        assert status["active"], f"the query ended: {status['failure']}"

    def assert_exact(self, load: Load, *earlier: "Query") -> None:
        """End the load, wait for all of it, and fail unless this query lives and each record was delivered once.

        Rows of queries that went before it on the same checkpoint count with its own.
        """
        load.stop()

        def rows() -> list[Row]:
            return joined(*earlier, self)

        def said() -> str:
            lost = load.lacking(rows())
            which = f"{len(lost)} of {len(load.acknowledged)} acknowledged records, such as {lost[:3]}"
            return f"after {self._driver.log()[-4000:]}\nthe delivery of {which}"

        def reached() -> bool:
            self.assert_alive()
            return not load.lacking(rows())

        eventually(reached, ROW_SECONDS, said)
        self.assert_alive()
        load.assert_exact(rows())

    def wait_failure(self, deadline_seconds: float = ROW_SECONDS) -> str:
        """Wait for the end of the query and return why it failed."""
        eventually(lambda: not self.status()["active"], deadline_seconds, "the end of the query")
        failure = self.status()["failure"]
        assert failure is not None, "the query ended without a failure"
        return str(failure)

    def batches(self) -> Mapping[int, list[Row]]:
        """Return the delivered rows by batch."""
        self._catch_up()
        return self._batches

    def _catch_up(self) -> None:
        if not self.file.exists():
            return
        with self.file.open() as file:
            file.seek(self._read)
            text = file.read()
            self._read = file.tell()
        lines = (self._rest + text).split("\n")
        self._rest = lines.pop()
        for line in lines:
            self._take_in(json.loads(line))

    def _take_in(self, line: dict[str, Any]) -> None:
        if "begun" in line:
            self._begun = line["begun"]
            return
        rows = [Row(*row) for row in line["rows"]]
        before = self._batches.setdefault(line["batch"], rows)
        assert sorted(before) == sorted(rows), f"batch {line['batch']} delivered other rows when it ran again"


def joined(*runs: Query) -> list[Row]:
    """Return the rows of several runs on one checkpoint; a batch that ran again must have delivered the same."""
    batches: dict[int, list[Row]] = {}
    for run in runs:
        for batch, rows in run.batches().items():
            before = batches.setdefault(batch, rows)
            assert sorted(before) == sorted(rows), f"batch {batch} delivered other rows when it ran again"
    return [row for rows in batches.values() for row in rows]
