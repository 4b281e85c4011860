"""A Python source that does nothing: one row, no Kafka. How long Spark takes to start any Python source."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

NAME = "bench-empty"


class EmptySource(DataSource):
    """One column, one row."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return NAME

    def schema(self) -> str:
        """Return the one column."""
        return "n bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        """Make the reader."""
        return EmptyReader()


class EmptyReader(DataSourceStreamReader):
    """Knows one offset after the first."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the beginning."""
        return {"n": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802
        """Return the end."""
        return {"n": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one task."""
        return [] if start == end else [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield the one row."""
        yield pa.record_batch({"n": pa.array([1], pa.int64())})
