"""A Python sink that does nothing: it reads its rows and forgets them. What Spark itself takes for any Python sink."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

NAME = "bench-empty-sink"


class EmptySink(DataSource):
    """Takes any columns and options."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return NAME

    def schema(self) -> str:
        """Return some column."""
        return "value binary"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, FBT001, N802
        """Make the writer."""
        return EmptyWriter()


class EmptyWriter(DataSourceStreamArrowWriter):
    """Forgets."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read all rows."""
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing."""
