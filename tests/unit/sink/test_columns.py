"""What a task takes from Arrow: record by record, or all at once where no record needs a look of its own."""

from typing import Any

import pyarrow as pa
import pytest

from discovery.spark.sink.columns import LANE, plain, records


def batch(**columns: Any) -> pa.RecordBatch:
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "partition": pa.int32(),
        LANE: pa.int32(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    arrays = [pa.array(values, types[name]) for name, values in columns.items()]
    return pa.record_batch(arrays, names=list(columns))


PLAIN = {
    "key and value": batch(key=[b"k", None], value=[b"v", None]),
    "no key": batch(value=[b"v", b"w"]),
    "all in this lane": batch(value=[b"v", b"w"], **{LANE: [1, 1]}),
    "no record": batch(key=[], value=[]),
    "partitions and headers that are null": batch(value=[b"v"], partition=[None], headers=[None]),
}
NOT_PLAIN = {
    "another lane": batch(value=[b"v", b"w"], **{LANE: [1, 0]}),
    "a null lane": batch(value=[b"v", b"w"], **{LANE: [1, None]}),
    "a partition": batch(value=[b"v", b"w"], partition=[None, 3]),
    "headers": batch(value=[b"v"], headers=[[{"key": "h", "value": b"x"}]]),
    "a record that may be too large": batch(key=[b"k" * 60, b""], value=[b"", b"v" * 50]),
}


@pytest.mark.parametrize("name", PLAIN)
def test_given_a_plain_batch_when_taken_at_once_then_it_is_what_single_records_say(name: str) -> None:
    taken = plain(PLAIN[name], topic="t", lane=1, room_bytes=100)
    assert taken is not None
    assert list(zip(*taken, strict=True)) == [(r.key, r.value) for r in records(PLAIN[name], "t")]


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_given_records_that_need_a_look_when_asked_then_they_are_taken_one_by_one(name: str) -> None:
    assert plain(NOT_PLAIN[name], topic="t", lane=1, room_bytes=100) is None


def test_given_topics_by_record_when_asked_then_they_are_taken_one_by_one() -> None:
    assert plain(PLAIN["no key"], topic=None, lane=1, room_bytes=100) is None
