"""What a sink leaves in Kafka: read back as written, and nothing else is ever taken for it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.core.errors import StateError
from discovery.spark.sink.marker import (
    CLOSED,
    MAX_BYTES,
    MAX_LANES,
    Control,
    Fingerprint,
    Marker,
    advanced,
    newest,
    renewed,
)

MARKER = Marker(
    query_id="q", batch_id=7, lanes=2, rows=3, fingerprint="00ff", attempt="1.0.9", wall_seconds=1_700_000_000,
    generation=1,
)  # fmt: skip
CONTROL = Control(query_id="q", batch_id=7, lanes=2, generation=1, wall_seconds=1_700_000_000, lane_walls=(5, 0))
WHERE = "group g, ledger-0"
TEXTS = st.text(max_size=40)
COUNTS = st.integers(0, 2**53)
OPTIONAL_BYTES = st.none() | st.binary(max_size=12)
RECORDS = st.tuples(
    st.none() | TEXTS,
    st.none() | st.integers(0, 99),
    OPTIONAL_BYTES,
    OPTIONAL_BYTES,
    st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=2),
)


@given(
    st.builds(
        Marker, query_id=TEXTS, batch_id=COUNTS, lanes=COUNTS, rows=COUNTS, fingerprint=TEXTS, attempt=TEXTS,
        wall_seconds=COUNTS, generation=COUNTS, unlaned=st.booleans(), target=st.none() | TEXTS,
    )
)  # fmt: skip
def test_given_any_marker_when_written_and_read_then_it_is_the_same(marker: Marker) -> None:
    assert Marker.decode(marker.encode(), where=WHERE) == marker


@given(TEXTS, st.integers(-1, 2**53), COUNTS, st.lists(COUNTS, max_size=MAX_LANES), st.none() | TEXTS)
def test_given_any_control_record_when_written_and_read_then_it_is_the_same(
    query: str, batch: int, lanes: int, walls: list[int], target: str | None
) -> None:
    control = Control(
        query_id=query, batch_id=batch, lanes=lanes, generation=3, wall_seconds=9, lane_walls=tuple(walls),
        run=query, kept=lanes, source=target, target=target, is_recorded=target is None,
    )  # fmt: skip
    assert Control.decode(control.encode(), where=WHERE) == control


def test_given_the_most_lanes_when_written_then_the_control_record_fits_a_broker() -> None:
    control = replace(
        CONTROL, query_id="q" * 200, lanes=MAX_LANES, lane_walls=(9_999_999_999,) * MAX_LANES, run="r" * 36,
        kept=9_999_999, source="s" * 249, target="t" * 249,
    )  # fmt: skip
    assert len(control.encode()) < MAX_BYTES


def test_given_what_an_earlier_program_wrote_when_read_then_what_it_does_not_say_is_not_known() -> None:
    marker = json.loads(replace(MARKER, target="orders").encode())
    control = json.loads(replace(CONTROL, run="r", kept=2, target="orders").encode())
    for later in ("o", "x", "k", "d"):
        marker.pop(later, None)
        control.pop(later)
    assert Marker.decode(json.dumps(marker), where=WHERE) == MARKER
    assert Control.decode(json.dumps(control), where=WHERE) == CONTROL


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda raw: raw.decode(errors="replace")))
def test_given_any_text_when_read_then_it_is_refused_in_one_line(text: str) -> None:
    for kind in (Marker, Control):
        with pytest.raises(StateError) as caught:
            kind.decode(text, where=WHERE)
        assert str(caught.value).startswith(WHERE)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"v": 2}, "version 2, this program knows 1; use the one that wrote it"),
        ({"b": "7"}, "field 'b' is '7'"),
        ({"b": -2}, "field 'b' is -2"),
        ({"n": True}, "field 'n' is True"),
        ({"q": None}, "field 'q' is None"),
        ({"o": 7}, "field 'o' is 7"),
    ],
)
def test_given_a_marker_with_a_wrong_field_when_read_then_the_field_is_named(
    change: dict[str, object], said: str
) -> None:
    text = json.dumps(json.loads(MARKER.encode()) | change)
    with pytest.raises(StateError, match=said):
        Marker.decode(text, where=WHERE)


def test_given_a_control_record_with_a_wrong_list_when_read_then_it_is_named() -> None:
    text = json.dumps(json.loads(CONTROL.encode()) | {"l": [1, -1]})
    with pytest.raises(StateError, match="field 'l'"):
        Control.decode(text, where=WHERE)


@given(st.lists(RECORDS, max_size=6), st.randoms())
def test_given_the_same_records_in_any_order_when_summed_then_the_fingerprints_are_equal(
    records: list[tuple[str | None, int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    chance: object,
) -> None:
    shuffled = list(records)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _sum(records) == _sum(shuffled)


@given(RECORDS, RECORDS)
def test_given_two_different_records_when_summed_then_the_fingerprints_differ(
    one: tuple[str | None, int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]]],
    other: tuple[str | None, int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]]],
) -> None:
    assert (_sum([one]) == _sum([other])) == (one == other)


def _sum(
    records: list[tuple[str | None, int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> str:
    found = Fingerprint()
    for record in records:
        found.add(*record)
    return found.text()


def test_given_null_and_empty_fields_when_summed_then_they_are_distinguished() -> None:
    assert len({_sum([("t", None, key, value, [])]) for key in (None, b"") for value in (None, b"", b"a")}) == 6


def test_given_a_confirmed_batch_when_advanced_then_only_lanes_with_markers_have_new_times() -> None:
    after = advanced(CONTROL, query_id="q", batch_id=8, markers={1: replace(MARKER, wall_seconds=90)}, wall=100)
    assert (after.batch_id, after.lane_walls, after.wall_seconds) == (8, (5, 90), 100)
    assert advanced(CONTROL, query_id="q", batch_id=3, markers={}, wall=100).batch_id == 7


def test_given_offsets_and_records_of_markers_when_compared_then_the_later_batch_of_the_later_generation_counts() -> (
    None
):
    older, later = MARKER, replace(MARKER, batch_id=8)
    assert newest({0: older, 1: later}, {0: later, 1: older, 2: older}) == {0: later, 1: later, 2: older}
    assert newest({0: later}, {0: replace(older, generation=2)}) == {0: replace(older, generation=2)}


def test_given_a_control_record_when_renewed_then_it_says_when_and_which_lanes_have_markers() -> None:
    found = {0: replace(MARKER, batch_id=8), 1: replace(MARKER, generation=0)}
    after = renewed(CONTROL, found, wall=100)
    assert after == replace(CONTROL, wall_seconds=100, lane_walls=(100, 0), is_recorded=True)


def test_given_a_closed_control_record_when_renewed_then_it_stays_closed() -> None:
    after = renewed(replace(CONTROL, lanes=CLOSED + 2), {0: replace(MARKER, generation=2), 1: MARKER}, wall=100)
    assert (after.is_closed, after.known_lanes, after.lane_walls) == (True, 2, (5, 100))


def test_given_no_control_record_when_renewed_then_the_last_markers_say_all_of_it() -> None:
    unknown = Control(query_id="", batch_id=-1, lanes=1, generation=0, wall_seconds=0)
    found = {
        0: replace(MARKER, batch_id=8, generation=3),
        1: replace(MARKER, generation=3),
        2: replace(MARKER, lanes=4),
    }
    after = renewed(unknown, found, wall=100)
    assert (after.query_id, after.batch_id, after.lanes, after.generation) == ("q", 7, 2, 3)
    assert (after.wall_seconds, after.lane_walls, after.is_recorded) == (100, (100, 100), True)


def test_given_neither_control_record_nor_markers_when_renewed_then_the_sink_is_new() -> None:
    unknown = Control(query_id="", batch_id=-1, lanes=2, generation=0, wall_seconds=0)
    after = renewed(unknown, {}, wall=100)
    assert after == replace(unknown, generation=1, wall_seconds=100, is_recorded=True)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=20))
def test_given_records_with_nothing_but_key_and_value_when_summed_at_once_then_it_is_the_same_sum(
    rows: list[tuple[bytes | None, bytes | None]],
) -> None:
    one, other = Fingerprint(), Fingerprint()
    for key, value in rows:
        one.add("orders", None, key, value)
    other.add_plain("orders", [key for key, _ in rows], [value for _, value in rows])
    assert (one.rows, one.text()) == (other.rows, other.text())
