"""Messages behind pointers to one Arrow batch: buffers are made here, the kernel fills them."""

from typing import Any

import numpy as np
import pyarrow as pa

from discovery.spark.fetch.native import layout as k
from discovery.spark.fetch.native.code import code
from discovery.spark.fetch.native.library import Library
from discovery.spark.fetch.schema import schema

_SCRATCH_WORDS = 4
_MOST_BYTES = 2**31 - 1
"""Arrow counts the bytes of a binary column with 32 bits."""


class Rows:
    """The pointers of one poll and what is made of them. One thread; reused from poll to poll."""

    def __init__(self, library: Library, most_rows: int, *, headers: bool) -> None:
        """Make room for the pointers of one poll."""
        self.pointers = np.zeros(most_rows, np.int64)
        self._runs = np.zeros((most_rows + 1, k.RUN_WORDS), np.int64)
        self._table = np.zeros(k.TABLE_WORDS, np.int64)
        self._scratch = np.zeros(_SCRATCH_WORDS, np.int64)
        self._schema = schema(headers)
        self._headers = headers
        self._code = code()
        self._destroy = library.message_destroy
        self._is_held = False
        # numpy makes an object for every address that is asked for.
        self.pointers_at, self._runs_at = self.pointers.ctypes.data, self._runs.ctypes.data
        self._table_at = self._table.ctypes.data
        self._table[k.SCRATCH] = self._scratch.ctypes.data
        for word, name in (
            (k.TIMESTAMP_OF, "message_timestamp"), (k.DESTROY, "message_destroy"),
            (k.HEADERS_OF, "message_headers"), (k.HEADER_COUNT, "header_cnt"), (k.HEADER_AT, "header_get_all"),
        ):  # fmt: skip
            self._table[word] = library.address(name)

    def scan(self, count: int) -> Any:
        """Find the runs of the first `count` pointers: rows of words, see `layout`; LIMIT and NAME are to be filled in.

        Runs: worker; some nanoseconds per message.
        """
        self._is_held = True
        found = self._code.scan(self.pointers_at, count, self._runs_at, self._table_at)
        return self._runs[: found + 1]

    def take(self, found: int, rows: int, topic_bytes: int) -> pa.RecordBatch | None:
        """Make a batch of the wanted rows of the scanned runs, and give all messages back.

        Args:
            found: How many runs there are.
            rows: Not fewer than the wanted rows; 0: none is wanted.
            topic_bytes: Not fewer than the bytes of their topics' names.

        Runs: worker; some tens of nanoseconds per message.
        """
        table = self._table
        if max(table[k.KEY_BYTES], table[k.VALUE_BYTES], topic_bytes) > _MOST_BYTES:
            raise OverflowError("the records of one poll hold more than 2 GiB")
        buffers = _Buffers(table)
        self._make_room(buffers, rows, topic_bytes)
        lists = self._take_headers(found, rows) if self._headers and rows else None
        self._is_held = False
        wanted = self._code.fill(self.pointers_at, self._runs_at, found, self._table_at)
        if wanted == 0:
            return None
        return pa.RecordBatch.from_arrays(self._columns(buffers, wanted, lists), schema=self._schema)

    def give_back(self, count: int) -> None:
        """Give the messages of a poll back that could not be made into a batch; does nothing after `take` has.

        Runs: worker; some tens of nanoseconds per message.
        """
        if self._is_held:
            self._is_held = False
            for pointer in self.pointers[:count].tolist():
                self._destroy(pointer)

    def _make_room(self, buffers: "_Buffers", rows: int, topic_bytes: int) -> None:
        key_bytes, value_bytes = int(self._table[k.KEY_BYTES]), int(self._table[k.VALUE_BYTES])
        buffers.add(k.KEY_OFFSETS, 4 * (rows + 1))
        buffers.add(k.KEY_DATA, key_bytes)
        buffers.add(k.KEY_BITS, (rows >> 3) + 1, zero=True)
        buffers.add(k.VALUE_OFFSETS, 4 * (rows + 1))
        buffers.add(k.VALUE_DATA, value_bytes)
        buffers.add(k.VALUE_BITS, (rows >> 3) + 1, zero=True)
        buffers.add(k.TOPIC_OFFSETS, 4 * (rows + 1))
        buffers.add(k.TOPIC_DATA, topic_bytes)
        buffers.add(k.PARTITIONS, 4 * rows)
        buffers.add(k.OFFSETS, 8 * rows)
        buffers.add(k.TIMESTAMPS, 8 * rows)
        buffers.add(k.KINDS, 4 * rows)

    def _columns(self, buffers: "_Buffers", rows: int, lists: pa.Array | None) -> list[pa.Array]:
        b, table = buffers, self._table
        key_nulls, value_nulls = int(table[k.KEY_NULLS]), int(table[k.VALUE_NULLS])
        key = [b[k.KEY_BITS] if key_nulls else None, b[k.KEY_OFFSETS], b.part(k.KEY_DATA, k.KEY_BYTES)]
        value = [b[k.VALUE_BITS] if value_nulls else None, b[k.VALUE_OFFSETS], b.part(k.VALUE_DATA, k.VALUE_BYTES)]
        topic = [None, b[k.TOPIC_OFFSETS], b.part(k.TOPIC_DATA, k.TOPIC_BYTES)]
        columns = [
            pa.Array.from_buffers(pa.binary(), rows, key, key_nulls),
            pa.Array.from_buffers(pa.binary(), rows, value, value_nulls),
            pa.Array.from_buffers(pa.string(), rows, topic, 0),
            pa.Array.from_buffers(pa.int32(), rows, [None, b[k.PARTITIONS]], 0),
            pa.Array.from_buffers(pa.int64(), rows, [None, b[k.OFFSETS]], 0),
            pa.Array.from_buffers(self._schema.field("timestamp").type, rows, [None, b[k.TIMESTAMPS]], 0),
            pa.Array.from_buffers(pa.int32(), rows, [None, b[k.KINDS]], 0),
        ]
        if lists is not None:
            columns.append(lists.slice(0, rows))
        return columns

    def _take_headers(self, found: int, rows: int) -> pa.Array:
        """Make the column of headers; must happen before `fill`, which gives the messages back."""
        table, at = self._table, (self.pointers_at, self._runs_at, found, self._table_at)
        self._code.measure_headers(*at)
        count = int(table[k.HEADERS])
        if max(table[k.NAME_BYTES], table[k.CONTENT_BYTES]) > _MOST_BYTES:
            raise OverflowError("the headers of one poll hold more than 2 GiB")
        b = _Buffers(table)
        b.add(k.HEADER_OFFSETS, 4 * (rows + 1))
        b.add(k.HEADER_BITS, (rows >> 3) + 1, zero=True)
        b.add(k.NAME_OFFSETS, 4 * (count + 1))
        b.add(k.NAME_DATA, int(table[k.NAME_BYTES]))
        b.add(k.CONTENT_OFFSETS, 4 * (count + 1))
        b.add(k.CONTENT_DATA, int(table[k.CONTENT_BYTES]))
        b.add(k.CONTENT_BITS, (count >> 3) + 1, zero=True)
        self._code.fill_headers(*at)
        nulls = int(table[k.CONTENT_NULLS])
        names = pa.Array.from_buffers(pa.string(), count, [None, b[k.NAME_OFFSETS], b[k.NAME_DATA]], 0)
        content = [b[k.CONTENT_BITS] if nulls else None, b[k.CONTENT_OFFSETS], b[k.CONTENT_DATA]]
        contents = pa.Array.from_buffers(pa.binary(), count, content, nulls)
        kind = self._schema.field("headers").type
        pairs = pa.StructArray.from_arrays([names, contents], fields=list(kind.value_type))
        # The table says how many rows are null among those that are wanted.
        lists = [b[k.HEADER_BITS], b[k.HEADER_OFFSETS]]
        return pa.Array.from_buffers(kind, int(table[k.HEADER_ROWS]), lists, children=[pairs])


class _Buffers:
    """Arrow's memory by the word of the table that holds its address."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._buffers: dict[int, pa.Buffer] = {}

    def add(self, word: int, size: int, *, zero: bool = False) -> None:
        buffer = pa.allocate_buffer(size)
        if zero:
            np.frombuffer(buffer, np.uint8)[:] = 0
        self._buffers[word], self._table[word] = buffer, buffer.address

    def __getitem__(self, word: int) -> pa.Buffer:
        return self._buffers[word]

    def part(self, word: int, length_word: int) -> pa.Buffer:
        return self._buffers[word].slice(0, int(self._table[length_word]))
