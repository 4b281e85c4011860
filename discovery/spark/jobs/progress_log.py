"""One JSON line per finished micro-batch, and a warning when the watermark dropped something."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from discovery.core.plural import counted


class ProgressLog(StreamingQueryListener):
    """Follows one query. Late data is never dropped in silence: it is counted and said on stderr."""

    def __init__(self, job: str, path: Path | None) -> None:
        """Name the job, and where its lines go; None: nowhere."""
        self._job = job
        self._path = path
        self.dropped_groups = 0
        """Groups of late rows that came after the watermark; Spark counts them after a partial aggregation."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note the run, so that a restart is visible to whoever reads the file.

        Runs: the thread that starts the query; must not block.
        """
        self._append({"event": "started", "run_id": str(event.runId), "query_id": str(event.id)})

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Note a finished batch.

        Runs: Spark's listener thread, after each finished batch.
        """
        progress = json.loads(event.progress.json)
        dropped = sum(state["numRowsDroppedByWatermark"] for state in progress.get("stateOperators", ()))
        self.dropped_groups += dropped
        if dropped:
            print(  # noqa: T201 - a job's own output
                f"{self._job}: batch {progress['batchId']} dropped {counted(dropped, 'group')} of rows later than the"
                f" watermark {progress['eventTime'].get('watermark')}; raise --allowed-lateness if they matter",
                file=sys.stderr,
                flush=True,
            )
        self._append({"event": "progress", "dropped_by_watermark": self.dropped_groups, **progress})

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to note."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Note the end and its cause.

        Runs: Spark's listener thread.
        """
        self._append({"event": "terminated", "exception": event.exception})

    def _append(self, line: dict[str, object]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"wall": time.time(), **line}) + "\n")
