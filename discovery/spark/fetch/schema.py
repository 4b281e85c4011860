"""The columns of Spark's own Kafka source as an Arrow schema, exact to the flag: Spark compares it by equality."""

import pyarrow as pa

_COLUMNS = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
)
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_PLAIN = pa.schema(_COLUMNS)
_WITH_HEADERS = pa.schema((*_COLUMNS, pa.field("headers", pa.list_(pa.field("element", _HEADER)))))


def schema(include_headers: bool) -> pa.Schema:  # noqa: FBT001 - the one thing it is asked
    """Return the schema of every batch that `fetch` yields.

    Runs: anywhere (pure).
    """
    return _WITH_HEADERS if include_headers else _PLAIN
