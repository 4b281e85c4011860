"""Results as a folder of Parquet or ORC files, by Spark's own writers: a folder per table and batch.

A row is the total of its key as of its batch: the one with the largest `batch_id` counts. A batch that Spark replays
replaces its folder.
"""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from discovery.core.errors import ConfigError, StateError
from discovery.spark.jobs.tables import Held, Shape, refuse_strangers

FORMATS = ("parquet", "orc")
_STATE = "_kafka_discovery.json"
"""Spark's readers pass over what begins with an underscore."""
_DRAFT = ".new"
_BATCH = "batch_id="


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOutput:
    """A folder of any file system that Spark knows."""

    format: str
    path: str


class FolderWriter:
    """Spark's `foreachBatch` function. The constructor does no I/O."""

    def __init__(self, output: FolderOutput, shape: Shape, *, checkpoint: str) -> None:
        """Name the folder, and the checkpoint it belongs to."""
        self._output = output
        self._shape = shape
        self._checkpoint = checkpoint

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write the tables of this batch, then its number.

        Raises:
            ConfigError: folder and checkpoint do not belong together.
            StateError: the number in it is not what this job writes.

        Runs: driver, once per micro-batch, on Spark's callback thread; blocks for the batch.
        """
        session, path = batch.sparkSession, self._output.path
        query_id = str(session.sparkContext.getLocalProperty("sql.streaming.queryId"))
        held = self._held(session)
        refuse_strangers(path, self._checkpoint, held, query_id=query_id, batch_id=batch_id)
        if held is None and (last := self._last_batch(session)) > batch_id:
            raise ConfigError(
                f"--output: {path} has batches up to {last} and no {_STATE}, so whose they are is not known; restore "
                "that file, or name a new output and a new checkpoint"
            )
        batch.persist()
        try:
            for table in self._shape(batch):
                target = f"{path}/{table.name}/{_BATCH}{batch_id}"
                table.rows.write.format(self._output.format).mode("overwrite").save(target)
        finally:
            batch.unpersist()
        self._note(session, Held(query_id, batch_id))

    def _last_batch(self, session: SparkSession) -> int:
        """Return the last batch of which a table has a folder; -1: there is none."""
        system, state, _ = self._state(session)
        folder = state.getParent()
        tables = [found.getPath() for found in system.listStatus(folder)] if system.exists(folder) else []
        names = [found.getPath().getName() for table in tables for found in system.listStatus(table)]
        numbers = [name.removeprefix(_BATCH) for name in names if name.startswith(_BATCH)]
        return max((int(number) for number in numbers if number.isdigit()), default=-1)

    def _held(self, session: SparkSession) -> Held | None:
        system, path, jvm = self._state(session)
        is_draft = not system.exists(path)
        path = path.suffix(_DRAFT) if is_draft else path
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        try:
            return Held(**json.loads(text))
        except (ValueError, TypeError):
            if is_draft:
                return None  # a driver died while it noted its first batch
            raise StateError(f"--output: {path.toString()} holds {text[:80]!r}, which no job wrote") from None

    def _note(self, session: SparkSession, held: Held) -> None:
        """Beside it first: a driver that dies before the rename leaves the new one there."""
        system, path, jvm = self._state(session)
        draft = path.suffix(_DRAFT)
        stream = system.create(draft, True)
        try:
            jvm.org.apache.commons.io.IOUtils.write(json.dumps(held._asdict()), stream, "UTF-8")
        finally:
            stream.close()
        system.delete(path, False)
        if not system.rename(draft, path):
            raise StateError(f"--output: {path.toString()} cannot be replaced; look at the rights of the folder")

    def _state(self, session: SparkSession) -> tuple[Any, Any, Any]:
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - no public way
        path = jvm.org.apache.hadoop.fs.Path(f"{self._output.path}/{_STATE}")
        return path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()), path, jvm  # noqa: SLF001
