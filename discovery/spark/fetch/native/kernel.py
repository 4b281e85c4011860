"""The loops over librdkafka's messages, to be compiled. Everything is an address or a number.

Messages lie behind an array of pointers. A *run* is a stretch of messages of one partition, or one event; `scan` finds
the runs, Python says how much of each is wanted, `fill` copies the wanted rows into Arrow's buffers and gives the
messages back to librdkafka. Imported only where machine code is made; see `code`.
"""

from discovery.spark.fetch.native.layout import (
    CONTENT_BITS,
    CONTENT_BYTES,
    CONTENT_DATA,
    CONTENT_NULLS,
    CONTENT_OFFSETS,
    DELIVERED,
    DESTROY,
    ERR,
    ERROR,
    FIRST,
    HEADER_AT,
    HEADER_BITS,
    HEADER_COUNT,
    HEADER_OFFSETS,
    HEADER_ROWS,
    HEADERS,
    HEADERS_OF,
    INDEX,
    KEY,
    KEY_BITS,
    KEY_BYTES,
    KEY_DATA,
    KEY_LEN,
    KEY_NULLS,
    KEY_OFFSETS,
    KINDS,
    LAST,
    LEN,
    LIMIT,
    NAME,
    NAME_BYTES,
    NAME_DATA,
    NAME_LEN,
    NAME_OFFSETS,
    OFFSET,
    OFFSETS,
    PARTITION,
    PARTITIONS,
    PAYLOAD,
    RKT,
    RUN_WORDS,
    SCRATCH,
    TIMESTAMP_OF,
    TIMESTAMPS,
    TOPIC,
    TOPIC_BYTES,
    TOPIC_DATA,
    TOPIC_OFFSETS,
    VALUE_BITS,
    VALUE_BYTES,
    VALUE_DATA,
    VALUE_NULLS,
    VALUE_OFFSETS,
)
from discovery.spark.fetch.native.memory import (
    ask1,
    ask2,
    ask5,
    call1,
    copy,
    load8,
    load32,
    load64,
    prefetch,
    store8,
    store32,
    store64,
)  # fmt: skip

AHEAD = 8
"""Messages whose memory is asked for in advance; they were written by another core."""


def scan(messages: int, count: int, runs: int, table: int) -> int:
    """Find the runs; note how many bytes of keys and values there are. Returns the number of runs."""
    found, topic, index = -1, -1, -1
    key_bytes, value_bytes, run = 0, 0, 0
    for i in range(count):
        if i + AHEAD < count:
            prefetch(load64(messages + 8 * (i + AHEAD)))
        message = load64(messages + 8 * i)
        error = load32(message + ERR)
        if error != 0 or load64(message + RKT) != topic or load32(message + PARTITION) != index:
            found += 1
            run = runs + 8 * RUN_WORDS * found
            topic, index = load64(message + RKT), load32(message + PARTITION)
            store64(run + 8 * FIRST, i)
            store64(run + 8 * TOPIC, topic)
            store64(run + 8 * INDEX, index)
            store64(run + 8 * ERROR, error)
        store64(run + 8 * LAST, load64(message + OFFSET))
        if error != 0:
            topic = -1
        else:
            key_bytes += load64(message + KEY_LEN)
            value_bytes += load64(message + LEN)
    store64(runs + 8 * RUN_WORDS * (found + 1) + 8 * FIRST, count)
    store64(table + 8 * KEY_BYTES, key_bytes)
    store64(table + 8 * VALUE_BYTES, value_bytes)
    return found + 1


def measure_headers(messages: int, runs: int, found: int, table: int) -> int:
    """Add up the headers of wanted rows: how many, and how many bytes of names and contents."""
    headers_of, count_of = load64(table + 8 * HEADERS_OF), load64(table + 8 * HEADER_COUNT)
    at, scratch = load64(table + 8 * HEADER_AT), load64(table + 8 * SCRATCH)
    headers, name_bytes, content_bytes = 0, 0, 0
    for r in range(found):
        run = runs + 8 * RUN_WORDS * r
        limit = load64(run + 8 * LIMIT)
        for i in range(load64(run + 8 * FIRST), load64(run + 8 * (RUN_WORDS + FIRST))):
            message = load64(messages + 8 * i)
            if load64(message + OFFSET) >= limit or ask2(headers_of, message, scratch) & 0xFFFFFFFF != 0:
                continue
            list_ = load64(scratch)
            for h in range(ask1(count_of, list_)):
                ask5(at, list_, h, scratch + 8, scratch + 16, scratch + 24)
                headers += 1
                name = load64(scratch + 8)
                while load8(name) != 0:
                    name, name_bytes = name + 1, name_bytes + 1
                if load64(scratch + 16) != 0:
                    content_bytes += load64(scratch + 24)
    store64(table + 8 * HEADERS, headers)
    store64(table + 8 * NAME_BYTES, name_bytes)
    store64(table + 8 * CONTENT_BYTES, content_bytes)
    return headers


def fill_headers(messages: int, runs: int, found: int, table: int) -> int:
    """Copy the headers of wanted rows; a row without any is null."""
    headers_of, count_of = load64(table + 8 * HEADERS_OF), load64(table + 8 * HEADER_COUNT)
    at, scratch = load64(table + 8 * HEADER_AT), load64(table + 8 * SCRATCH)
    offsets, bits = load64(table + 8 * HEADER_OFFSETS), load64(table + 8 * HEADER_BITS)
    name_offsets, name_data = load64(table + 8 * NAME_OFFSETS), load64(table + 8 * NAME_DATA)
    content_offsets, content_data = load64(table + 8 * CONTENT_OFFSETS), load64(table + 8 * CONTENT_DATA)
    content_bits = load64(table + 8 * CONTENT_BITS)
    row, header, name_at, content_at, content_nulls = 0, 0, 0, 0, 0
    for r in range(found):
        run = runs + 8 * RUN_WORDS * r
        limit = load64(run + 8 * LIMIT)
        for i in range(load64(run + 8 * FIRST), load64(run + 8 * (RUN_WORDS + FIRST))):
            message = load64(messages + 8 * i)
            if load64(message + OFFSET) >= limit:
                continue
            store32(offsets + 4 * row, header)
            count = 0
            if ask2(headers_of, message, scratch) & 0xFFFFFFFF == 0:
                count = ask1(count_of, load64(scratch))
            if count != 0:
                store8(bits + (row >> 3), load8(bits + (row >> 3)) | (1 << (row & 7)))
            for h in range(count):
                ask5(at, load64(scratch), h, scratch + 8, scratch + 16, scratch + 24)
                name, length = load64(scratch + 8), 0
                while load8(name + length) != 0:
                    length += 1
                store32(name_offsets + 4 * header, name_at)
                copy(name_data + name_at, name, length)
                name_at += length
                store32(content_offsets + 4 * header, content_at)
                if load64(scratch + 16) != 0:
                    store8(content_bits + (header >> 3), load8(content_bits + (header >> 3)) | (1 << (header & 7)))
                    copy(content_data + content_at, load64(scratch + 16), load64(scratch + 24))
                    content_at += load64(scratch + 24)
                else:
                    content_nulls += 1
                header += 1
            row += 1
    store32(offsets + 4 * row, header)
    store32(name_offsets + 4 * header, name_at)
    store32(content_offsets + 4 * header, content_at)
    store64(table + 8 * HEADER_ROWS, row)
    store64(table + 8 * CONTENT_NULLS, content_nulls)
    return header


def fill(messages: int, runs: int, found: int, table: int) -> int:
    """Copy the wanted rows and give all messages back. Returns the number of rows."""
    key_offsets, key_data, key_bits = (
        load64(table + 8 * KEY_OFFSETS), load64(table + 8 * KEY_DATA), load64(table + 8 * KEY_BITS)
    )  # fmt: skip
    value_offsets, value_data, value_bits = (
        load64(table + 8 * VALUE_OFFSETS), load64(table + 8 * VALUE_DATA), load64(table + 8 * VALUE_BITS)
    )  # fmt: skip
    topic_offsets, topic_data = load64(table + 8 * TOPIC_OFFSETS), load64(table + 8 * TOPIC_DATA)
    partitions, offsets = load64(table + 8 * PARTITIONS), load64(table + 8 * OFFSETS)
    timestamps, kinds = load64(table + 8 * TIMESTAMPS), load64(table + 8 * KINDS)
    timestamp_of, destroy = load64(table + 8 * TIMESTAMP_OF), load64(table + 8 * DESTROY)
    scratch = load64(table + 8 * SCRATCH)
    store64(scratch, 0)
    row, key_at, value_at, topic_at, key_nulls, value_nulls = 0, 0, 0, 0, 0, 0
    for r in range(found):
        run = runs + 8 * RUN_WORDS * r
        limit, index = load64(run + 8 * LIMIT), load64(run + 8 * INDEX)
        name, name_length = load64(run + 8 * NAME), load64(run + 8 * NAME_LEN)
        delivered = -1
        for i in range(load64(run + 8 * FIRST), load64(run + 8 * (RUN_WORDS + FIRST))):
            message = load64(messages + 8 * i)
            offset = load64(message + OFFSET)
            if offset < limit:
                store32(key_offsets + 4 * row, key_at)
                store32(value_offsets + 4 * row, value_at)
                store32(topic_offsets + 4 * row, topic_at)
                source = load64(message + KEY)
                if source != 0:
                    store8(key_bits + (row >> 3), load8(key_bits + (row >> 3)) | (1 << (row & 7)))
                    length = load64(message + KEY_LEN)
                    copy(key_data + key_at, source, length)
                    key_at += length
                else:
                    key_nulls += 1
                source = load64(message + PAYLOAD)
                if source != 0:
                    store8(value_bits + (row >> 3), load8(value_bits + (row >> 3)) | (1 << (row & 7)))
                    length = load64(message + LEN)
                    copy(value_data + value_at, source, length)
                    value_at += length
                else:
                    value_nulls += 1
                copy(topic_data + topic_at, name, name_length)
                topic_at += name_length
                store32(partitions + 4 * row, index)
                store64(offsets + 8 * row, offset)
                store64(timestamps + 8 * row, 1000 * ask2(timestamp_of, message, scratch))
                # librdkafka counts 0 none, 1 create time, 2 log append time; Spark, as Java, one less.
                store32(kinds + 4 * row, load32(scratch) - 1)
                delivered = offset
                row += 1
            call1(destroy, message)
        store64(run + 8 * DELIVERED, delivered + 1)
    store32(key_offsets + 4 * row, key_at)
    store32(value_offsets + 4 * row, value_at)
    store32(topic_offsets + 4 * row, topic_at)
    store64(table + 8 * KEY_BYTES, key_at)
    store64(table + 8 * VALUE_BYTES, value_at)
    store64(table + 8 * TOPIC_BYTES, topic_at)
    store64(table + 8 * KEY_NULLS, key_nulls)
    store64(table + 8 * VALUE_NULLS, value_nulls)
    return row
