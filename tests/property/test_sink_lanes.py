"""The decision of the sink, case by case and for any input."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.core.errors import SinkRefusedError, TransactionError
from discovery.spark.sink.lanes import (
    RETENTION_SECONDS,
    Attempt,
    Compare,
    Decision,
    OnMismatch,
    Refusal,
    Refuse,
    Skip,
    Write,
    judge,
    may_have_run,
    refused,
    settle,
)
from discovery.spark.sink.marker import CLOSED, Control, Fingerprint, Marker, beginning, renewed

NOW = 1_700_000_000
ATTEMPT = Attempt(query_id="q", batch_id=8, lane=1, lanes=2, attempt="a", wall_seconds=NOW)
MARKER = Marker(
    query_id="q", batch_id=7, lanes=2, rows=3, fingerprint="aa", attempt="a", wall_seconds=NOW - 9, generation=1
)
CONTROL = Control(query_id="q", batch_id=7, lanes=2, generation=1, wall_seconds=NOW - 9, lane_walls=(NOW - 9, NOW - 9))
NEW = Control(query_id="", batch_id=-1, lanes=2, generation=1, wall_seconds=NOW)
OLD = NOW - RETENTION_SECONDS - 9


def refusal(decision: Decision) -> Refusal | None:
    return decision.refusal if isinstance(decision, Refuse) else None


def test_given_a_new_sink_when_judged_then_it_writes() -> None:
    assert judge(None, NEW, replace(ATTEMPT, batch_id=0)) == Write(generation=1)


def test_given_a_new_sink_on_an_old_checkpoint_when_judged_then_somebody_must_say_that_it_is_new() -> None:
    """To the sink it looks as if control record and markers had expired or been deleted with half a batch written."""
    later = replace(ATTEMPT, batch_id=500)
    assert refusal(judge(None, NEW, later)) is Refusal.LEDGER_LOST
    assert judge(None, replace(NEW, generation=2), later) == Write(generation=2)


def test_given_a_lane_that_never_wrote_when_the_control_record_is_as_old_as_markers_get_then_it_is_refused() -> None:
    """Found by the model: its marker of this very batch may have been there and expired."""
    idle = replace(CONTROL, lane_walls=(NOW - 9, 0))
    assert judge(None, idle, ATTEMPT) == Write(generation=1)
    assert refusal(judge(None, replace(idle, wall_seconds=OLD), ATTEMPT)) is Refusal.LEDGER_LOST


def test_given_the_batch_before_when_judged_then_it_writes() -> None:
    assert judge(MARKER, CONTROL, ATTEMPT) == Write(generation=1)


def test_given_this_batch_is_committed_when_judged_then_it_is_compared() -> None:
    committed = replace(MARKER, batch_id=8)
    assert judge(committed, CONTROL, ATTEMPT) == Compare(marker=committed)
    assert judge(committed, replace(CONTROL, batch_id=8), ATTEMPT) == Compare(marker=committed)


@pytest.mark.parametrize("marker", [None, MARKER])
def test_given_a_confirmed_batch_in_which_the_lane_was_empty_when_judged_then_it_is_compared_with_nothing(
    marker: Marker | None,
) -> None:
    decision = judge(marker, replace(CONTROL, batch_id=8, lane_walls=(NOW - 9, 0)), ATTEMPT)
    assert isinstance(decision, Compare)
    empty, nothing = decision.marker, Fingerprint().text()
    assert (empty.rows, empty.fingerprint, empty.batch_id, empty.generation) == (0, nothing, 8, 1)
    assert not empty.is_boundary
    with pytest.raises(SinkRefusedError, match="batch 8 is committed with 0 records, its replay has 1:"):
        settle(empty, rows=1, fingerprint="aa", policy=OnMismatch.FAIL, sink_id="s", lane=1)


def test_given_a_new_number_of_lanes_when_a_lane_has_no_marker_then_the_batch_before_is_skipped() -> None:
    opened = replace(CONTROL, batch_id=8, generation=2, lane_walls=())
    assert judge(None, opened, ATTEMPT) == Skip()
    assert judge(None, renewed(opened, {0: beginning(opened)}, wall=NOW), ATTEMPT) == Skip()


@pytest.mark.parametrize(
    ("marker", "control"),
    [
        (replace(MARKER, batch_id=9), CONTROL),
        (MARKER, replace(CONTROL, batch_id=9)),
        (None, replace(CONTROL, batch_id=9)),
    ],
)
def test_given_a_later_batch_when_judged_then_an_attempt_out_of_the_past_is_refused(
    marker: Marker | None, control: Control
) -> None:
    assert refusal(judge(marker, control, ATTEMPT)) is Refusal.STALE_BATCH


@pytest.mark.parametrize(
    ("marker", "control"),
    [
        (replace(MARKER, query_id="x"), CONTROL),
        (replace(MARKER, query_id="x"), NEW),
        (None, replace(CONTROL, query_id="x")),
        (replace(MARKER, query_id="x", batch_id=8), replace(CONTROL, query_id="x")),
    ],
)
def test_given_another_querys_sink_when_judged_then_it_is_refused(marker: Marker | None, control: Control) -> None:
    assert refusal(judge(marker, control, ATTEMPT)) is Refusal.SINK_ID_IN_USE


@pytest.mark.parametrize(
    ("marker", "control"),
    [
        (replace(MARKER, batch_id=8, target="orders"), CONTROL),
        (replace(MARKER, target="orders"), replace(CONTROL, batch_id=8, target="orders")),
        (None, replace(CONTROL, batch_id=8, target="", lane_walls=())),
    ],
)
def test_given_another_output_of_the_batch_when_judged_then_it_is_refused(
    marker: Marker | None, control: Control
) -> None:
    second = replace(ATTEMPT, target="visits")
    assert refusal(judge(marker, control, second)) is Refusal.SINK_ID_IN_USE


def test_given_another_target_from_the_next_batch_on_when_judged_then_it_writes() -> None:
    before = replace(MARKER, target="orders")
    assert judge(before, replace(CONTROL, target="orders"), replace(ATTEMPT, target="visits")) == Write(generation=1)


@pytest.mark.parametrize(
    ("change", "control", "expected"),
    [
        ({}, replace(CONTROL, run="r"), False),
        ({"is_first": False}, replace(CONTROL, run="r"), True),
        ({"run": "s"}, replace(CONTROL, run="r"), True),
        ({}, replace(CONTROL, run="r", batch_id=6), True),
        ({"run": ""}, CONTROL, True),
        ({}, None, True),
    ],
)
def test_given_a_batch_that_this_run_began_when_asked_then_nobody_else_has_executed_it(
    change: dict[str, Any], control: Control | None, *, expected: bool
) -> None:
    attempt = replace(ATTEMPT, **{"run": "r", "is_first": True, **change})
    assert may_have_run(control, attempt) is expected


@pytest.mark.parametrize("marker", [None, MARKER, replace(MARKER, batch_id=8)])
def test_given_another_number_of_lanes_when_judged_then_it_is_refused(marker: Marker | None) -> None:
    assert refusal(judge(marker, CONTROL, replace(ATTEMPT, lanes=4))) is Refusal.LANE_COUNT_CHANGED


def test_given_an_attempt_that_slept_beyond_the_retention_when_judged_then_it_is_out_of_the_past() -> None:
    """Found by the model: a worker that was stopped for longer than brokers keep markers, and woke to none."""
    sleeper = replace(ATTEMPT, batch_id=0, wall_seconds=OLD)
    assert refusal(judge(None, replace(NEW, wall_seconds=OLD), sleeper, now_seconds=NOW)) is Refusal.STALE_BATCH
    assert refusal(judge(None, NEW, sleeper, now_seconds=NOW)) is Refusal.STALE_BATCH


def test_given_a_closed_record_when_judged_then_nobody_is_let_in() -> None:
    """Found by the model: an attempt let in between the fence and the new number could commit later."""
    closed = replace(CONTROL, lanes=CLOSED + 2)
    assert (closed.known_lanes, closed.is_closed) == (2, True)
    decision = judge(MARKER, closed, ATTEMPT)
    assert isinstance(decision, Refuse)
    assert isinstance(refused(decision, "orders", 1), TransactionError), "another start may cure it"


def test_given_a_later_generation_when_judged_then_older_markers_do_not_count() -> None:
    taken_over = replace(NEW, generation=2)
    foreign = replace(MARKER, query_id="x", batch_id=900, lanes=7)
    assert judge(foreign, taken_over, ATTEMPT) == Write(generation=2)


@pytest.mark.parametrize(
    ("marker", "control"),
    [
        (MARKER, None),
        (None, None),
        (replace(MARKER, generation=2), CONTROL),
        (None, CONTROL),
        (None, replace(CONTROL, lane_walls=(OLD, OLD), wall_seconds=OLD)),
        (None, replace(CONTROL, lane_walls=(OLD, OLD), batch_id=6)),
    ],
)
def test_given_lost_markers_when_judged_then_it_is_refused(marker: Marker | None, control: Control | None) -> None:
    assert refusal(judge(marker, control, ATTEMPT)) is Refusal.LEDGER_LOST


def test_given_a_lane_idle_beyond_the_retention_when_the_batch_before_is_complete_then_it_writes() -> None:
    assert judge(None, replace(CONTROL, lane_walls=(NOW, OLD)), ATTEMPT) == Write(generation=1)


def test_given_how_long_brokers_keep_markers_when_judged_then_a_missing_one_is_believed_for_less_than_that() -> None:
    aged = replace(CONTROL, lane_walls=(), wall_seconds=NOW - 1_000)
    assert judge(None, aged, ATTEMPT, retention_seconds=3_600) == Write(generation=1)
    assert refusal(judge(None, aged, ATTEMPT, retention_seconds=1_200)) is Refusal.LEDGER_LOST
    long = replace(CONTROL, lane_walls=(), wall_seconds=OLD)
    assert judge(None, long, ATTEMPT, retention_seconds=30 * 86_400) == Write(generation=1)


QUERIES = st.sampled_from(["q", "x"])
MARKERS = st.none() | st.builds(
    Marker,
    query_id=QUERIES,
    batch_id=st.integers(6, 10),
    lanes=st.integers(1, 3),
    rows=st.integers(0, 3),
    fingerprint=st.just("aa"),
    attempt=st.just("a"),
    wall_seconds=st.sampled_from([OLD, NOW]),
    generation=st.integers(1, 3),
)
CONTROLS = st.none() | st.builds(
    Control,
    query_id=st.sampled_from(["", "q", "x"]),
    batch_id=st.integers(-1, 10),
    lanes=st.integers(1, 3),
    generation=st.integers(1, 3),
    wall_seconds=st.sampled_from([OLD, NOW]),
    lane_walls=st.lists(st.sampled_from([0, OLD, NOW]), max_size=3).map(tuple),
)


@given(MARKERS, CONTROLS)
def test_given_anything_when_judged_then_it_never_writes_what_may_be_written(
    marker: Marker | None, control: Control | None
) -> None:
    decision = judge(marker, control, ATTEMPT)
    if not isinstance(decision, Write):
        return
    assert control is not None
    assert control.query_id in {"", "q"}
    assert control.lanes == ATTEMPT.lanes
    assert control.batch_id < ATTEMPT.batch_id
    if marker is not None and marker.generation >= control.generation:
        assert (marker.query_id, marker.lanes) == ("q", ATTEMPT.lanes)
        assert marker.batch_id < ATTEMPT.batch_id


@given(MARKERS, CONTROLS)
def test_given_anything_when_refused_then_it_is_one_line_with_a_remedy(
    marker: Marker | None, control: Control | None
) -> None:
    decision = judge(marker, control, ATTEMPT)
    if isinstance(decision, Refuse):
        said = str(refused(decision, "orders", 1))
        assert said.startswith("sinkId 'orders', lane 1: ")
        assert ";" in said
        assert "\n" not in said


def test_given_equal_records_when_settled_then_no_policy_is_needed() -> None:
    assert settle(MARKER, rows=3, fingerprint="aa", policy=OnMismatch.FAIL, sink_id="s", lane=0) is None


@pytest.mark.parametrize(("rows", "said"), [(4, "its replay has 4:"), (3, "its replay has 3 others")])
def test_given_other_records_when_the_policy_is_fail_then_both_counts_are_named(rows: int, said: str) -> None:
    with pytest.raises(SinkRefusedError, match=said):
        settle(MARKER, rows=rows, fingerprint="bb", policy=OnMismatch.FAIL, sink_id="s", lane=0)


@pytest.mark.parametrize("policy", [OnMismatch.KEEP_COMMITTED, OnMismatch.REWRITE])
def test_given_other_records_when_a_policy_was_chosen_then_it_holds(policy: OnMismatch) -> None:
    assert settle(MARKER, rows=1, fingerprint="bb", policy=policy, sink_id="s", lane=0) is policy


def test_given_a_generation_that_began_after_a_batch_when_judged_then_that_one_is_skipped_and_the_next_written() -> (
    None
):
    opened = replace(CONTROL, generation=2, lane_walls=())
    start = beginning(opened)
    assert judge(start, opened, replace(ATTEMPT, batch_id=7)) == Skip()
    assert judge(start, opened, ATTEMPT) == Write(generation=2)
    assert refusal(judge(start, CONTROL, ATTEMPT)) is Refusal.LEDGER_LOST, "the old record is of an earlier driver"
    assert renewed(replace(opened, batch_id=-1), {0: start}, wall=NOW).batch_id == 7
