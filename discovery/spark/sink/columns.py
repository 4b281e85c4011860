"""The columns a sink takes, as Spark's own Kafka sink names them, and records out of Arrow batches."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from discovery.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

LANE = "__lane"
_BYTES = ("binary", "string")
_TYPES: Mapping[str, tuple[str, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    LANE: ("int",),
}


class Record(NamedTuple):
    """One record as it is written."""

    topic: str | None
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    lane: int | None


def check_columns(columns: Mapping[str, str], *, has_topic: bool, lanes: int) -> None:
    """Refuse a frame that cannot be written.

    Args:
        columns: Name -> Spark's simple type name; others than the sink's are ignored, as Spark's own sink does.
        has_topic: The option `topic` is given.
        lanes: Number of lanes.

    Raises:
        ConfigError: names the column, and what it must be.

    Runs: driver, before a query starts (pure).
    """
    if "value" not in columns:
        raise ConfigError("value: the column is missing; select what to write as `value`, binary or string")
    for name, types in _TYPES.items():
        if name in columns and columns[name] not in types and columns[name] != "void":
            raise ConfigError(f"{name}: the column is {columns[name]}, it must be {' or '.join(types)}; cast it")
    if not has_topic and "topic" not in columns:
        raise ConfigError("topic: set the option, or select a column `topic`")
    if lanes > 1 and LANE not in columns:
        raise ConfigError(
            f"lanes: {lanes} lanes need with_lanes(df, by=…, lanes={lanes}) from discovery.spark.sink, which says what "
            "goes into which"
        )


def records(batch: "pa.RecordBatch", topic: str | None) -> Iterator[Record]:
    """Yield the rows of a batch.

    Args:
        batch: With the columns that `check_columns` admits.
        topic: Goes before the column `topic`, as in Spark's own sink.

    Runs: workers.
    """
    rows = batch.num_rows
    names = batch.schema.names
    topics: Any = [topic] * rows if topic is not None else _column(batch, names, "topic")
    headers = [_headers(found) for found in _column(batch, names, "headers")] if "headers" in names else [None] * rows
    yield from map(
        Record._make,
        zip(
            topics,
            _column(batch, names, "partition"),
            _binary(batch, names, "key"),
            _binary(batch, names, "value"),
            headers,
            _column(batch, names, LANE),
            strict=True,
        ),
    )


def plain(
    batch: "pa.RecordBatch", *, topic: str | None, lane: int, room_bytes: int
) -> tuple[list[bytes | None], list[bytes | None]] | None:
    """Return keys and values where no record needs a look of its own; None: take `records` one by one.

    That is: one topic, no partitions and headers, every record in this lane, none larger than fits. What is asked here
    for a whole batch costs three times less than the same for each record.

    Args:
        batch: With the columns that `check_columns` admits.
        topic: The option.
        lane: The task's lane.
        room_bytes: The most that key and value may have together.

    Runs: workers, once per Arrow batch.
    """
    names = batch.schema.names
    empty = all(
        batch.column(names.index(n)).null_count == batch.num_rows for n in ("partition", "headers") if n in names
    )
    if topic is None or not empty or not _all_in_lane(batch, names, lane):
        return None
    if sum(_longest(batch, names, name) for name in ("key", "value")) > room_bytes:
        return None
    return _binary(batch, names, "key"), _binary(batch, names, "value")


def _all_in_lane(batch: "pa.RecordBatch", names: list[str], lane: int) -> bool:
    if LANE not in names:
        return True
    import pyarrow.compute as pc  # noqa: PLC0415 - 0.1 s that only workers need

    column = batch.column(names.index(LANE))
    return column.null_count == 0 and bool(pc.all(pc.equal(column, lane)).as_py())


def _longest(batch: "pa.RecordBatch", names: list[str], name: str) -> int:
    import pyarrow as pa  # noqa: PLC0415 - as below
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    if name not in names or pa.types.is_null(batch.column(names.index(name)).type):
        return 0
    return int(pc.max(pc.binary_length(batch.column(names.index(name)))).as_py() or 0)


def _column(batch: "pa.RecordBatch", names: list[str], name: str) -> list[Any]:
    return batch.column(names.index(name)).to_pylist() if name in names else [None] * batch.num_rows


def _binary(batch: "pa.RecordBatch", names: list[str], name: str) -> list[Any]:
    if name not in names:
        return [None] * batch.num_rows
    import pyarrow as pa  # noqa: PLC0415 - the process that confirms a batch reads reports, not records

    column = batch.column(names.index(name))
    found: list[Any] = (column if pa.types.is_null(column.type) else column.cast(pa.large_binary())).to_pylist()
    return found


def _headers(found: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]] | None:
    return [(header["key"], header["value"]) for header in found] if found else None
