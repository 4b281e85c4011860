"""Where things lie that the compiled loops and Python share: fields, and the words of runs and of the table."""

# Fields of `rd_kafka_message_t`, checked when the library is loaded.
ERR, RKT, PARTITION, PAYLOAD, LEN, KEY, KEY_LEN, OFFSET = 0, 8, 16, 24, 32, 40, 48, 56

# Words of one run.
FIRST, TOPIC, INDEX, ERROR, LAST, LIMIT, NAME, NAME_LEN, DELIVERED = range(9)
RUN_WORDS = 9

# Words of the table that `fill` works from: where to write, whom to call, and what came of it.
(
    KEY_OFFSETS, KEY_DATA, KEY_BITS,
    VALUE_OFFSETS, VALUE_DATA, VALUE_BITS,
    TOPIC_OFFSETS, TOPIC_DATA,
    PARTITIONS, OFFSETS, TIMESTAMPS, KINDS,
    HEADER_OFFSETS, HEADER_BITS, NAME_OFFSETS, NAME_DATA, CONTENT_OFFSETS, CONTENT_DATA, CONTENT_BITS,
    TIMESTAMP_OF, DESTROY, HEADERS_OF, HEADER_COUNT, HEADER_AT, SCRATCH,
    KEY_BYTES, VALUE_BYTES, TOPIC_BYTES, KEY_NULLS, VALUE_NULLS,
    HEADERS, HEADER_ROWS, NAME_BYTES, CONTENT_BYTES, CONTENT_NULLS,
) = range(35)  # fmt: skip
TABLE_WORDS = 35
