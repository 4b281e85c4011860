"""Reads what a job tells about itself: one JSON line per finished micro-batch. Pure but for reading the file."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from discovery.spark.launch.queries import TOO_SLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A finished micro-batch: its rows are in the output and Spark has committed it."""

    batch_id: int
    finished_wall: float
    """Trigger start plus the duration of the whole trigger, by Spark's own account."""
    seconds: float = 0.0
    """How long the whole trigger took."""
    rows: int
    end_offsets: dict[str, int] = field(default_factory=dict)
    """Partition to offset after the batch, as the source reported it."""
    dropped_by_watermark: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHistory:
    """Everything a job has reported, over all its runs."""

    batches: tuple[Batch, ...] = ()
    """In order; only those that read something."""
    starts: int = 0
    """How often a query was started, without `slow_starts`."""
    slow_starts: int = 0
    """How often the job started a query again since Spark gave its Python process up before the first batch."""
    failures: tuple[str, ...] = ()
    """Why a query ended, where it ended by an error."""

    @property
    def rows(self) -> int:
        """Rows of all finished batches."""
        return sum(batch.rows for batch in self.batches)

    @property
    def end_offsets(self) -> dict[str, int]:
        """Partition to offset after the last batch."""
        return self.batches[-1].end_offsets if self.batches else {}


class Follower:
    """Reads a growing progress file piece by piece. Not thread-safe."""

    def __init__(self, path: Path, topic: str) -> None:
        self._path, self._topic = path, topic
        self._position = 0
        self._batches: dict[int, Batch] = {}
        self._starts = self._slow_starts = 0
        self._slow: list[str] = []
        """Why the last start ended, where a start after it makes it a slow one; else that is a failure."""
        self._has_begun = False
        """The last start has had a batch."""
        self._failures: list[str] = []

    def read(self) -> JobHistory:
        """Take in what is new and return the whole history."""
        for line in self._new_lines():
            self._take(json.loads(line))
        return JobHistory(
            batches=tuple(self._batches.values()),
            starts=self._starts,
            slow_starts=self._slow_starts,
            failures=(*self._failures, *self._slow),
        )

    def _new_lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                fresh = file.read()
        except FileNotFoundError:
            return []
        whole = fresh.rpartition(b"\n")[0]  # a line in the making is left for the next time
        self._position += len(whole) + 1 if whole else 0
        return whole.splitlines()

    def _take(self, line: dict[str, Any]) -> None:
        match line["event"]:
            case "started":
                self._starts += not self._slow
                self._slow_starts += len(self._slow)
                self._slow, self._has_begun = [], False
            case "terminated" if line["exception"]:
                slow = not self._has_begun and TOO_SLOW in line["exception"]
                (self._slow if slow else self._failures).append(str(line["exception"]).strip().splitlines()[0])
            case "progress":
                self._has_begun = True
                self._take_progress(line)

    def _take_progress(self, line: dict[str, Any]) -> None:
        if not line["numInputRows"]:
            return
        batch = read_batch(line, self._topic)
        # A replayed batch comes again under its old number; its first commit is the one that counted.
        self._batches.setdefault(batch.batch_id, batch)


def read_batch(progress: dict[str, Any], topic: str) -> Batch:
    """Turn Spark's progress into a batch."""
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    seconds = progress["durationMs"]["triggerExecution"] / 1000
    end = progress["sources"][0]["endOffset"] or {}
    offsets = json.loads(end) if isinstance(end, str) else end
    return Batch(
        batch_id=progress["batchId"],
        finished_wall=began + seconds,
        seconds=seconds,
        rows=progress["numInputRows"],
        end_offsets={partition: int(offset) for partition, offset in offsets.get(topic, {}).items()},
        dropped_by_watermark=progress.get("dropped_by_watermark", 0),
    )
