"""Where ranges end: the rules one by one. All interleavings of them: tests/property/test_cut_model.py."""

import pytest

from discovery.core.errors import StateError
from discovery.core.model import TopicId
from discovery.spark.source.cuts.rules import CutRecord, Plan, PlannedRange, advance, effective_end, open_plan, settle
from tests.support.fakes.feed import tp

RANGE = PlannedRange(start=5, end=20, topic_id=TopicId("id"))
CUT = CutRecord(topic_partition=tp(0), topic_id=TopicId("id"), start=5, end=20, cut=8, plan=3, incarnation=1)


def a_plan(**more: object) -> Plan:
    return open_plan(3, {tp(0): RANGE, tp(1): PlannedRange(start=0, end=4)}, {}, **more)  # type: ignore[arg-type]


def test_given_an_undecided_range_when_all_was_read_then_it_is_full_and_nothing_is_recorded() -> None:
    settlement = settle(a_plan(), {tp(0): 20})
    assert settlement.ends == {tp(0): 20}
    assert settlement.cuts == ()
    assert settlement.plan.settled == {tp(0): 20}


def test_given_an_undecided_range_when_a_reader_gives_up_then_it_is_cut_and_recorded() -> None:
    settlement = settle(a_plan(), {tp(0): 8, tp(1): 4})
    assert settlement.ends == {tp(0): 8, tp(1): 4}
    assert settlement.cuts == (CUT,)


@pytest.mark.parametrize(("first", "second"), [(8, 20), (20, 8), (8, 12), (5, 20)])
def test_given_a_settled_range_when_another_end_is_proposed_then_the_first_one_wins(first: int, second: int) -> None:
    once = settle(a_plan(), {tp(0): first})
    again = settle(once.plan, {tp(0): second})
    assert again.ends == {tp(0): first}
    assert again.cuts == ()


@pytest.mark.parametrize("end", [4, 21])
def test_given_a_proposal_outside_of_the_range_then_it_is_refused(end: int) -> None:
    with pytest.raises(StateError, match=rf"t-0 cannot end at offset {end}: plan 3 has \[5, 20\)"):
        settle(a_plan(), {tp(0): end})


def test_given_a_partition_that_was_not_planned_then_it_is_refused() -> None:
    with pytest.raises(StateError, match="plan 3 has no such range"):
        settle(a_plan(), {tp(7): 1})


def test_given_a_replay_when_opened_then_what_was_cut_stays_cut_and_all_else_is_full() -> None:
    plan = open_plan(9, {tp(0): RANGE, tp(1): PlannedRange(start=0, end=4)}, {tp(0): CUT}, replayed=True)
    assert plan.settled == {tp(0): 8, tp(1): 4}


def test_given_whole_partitions_or_an_unknown_beginning_when_opened_then_they_are_never_cut() -> None:
    ranges = {tp(0): RANGE, tp(1): PlannedRange(start=-2, end=4)}
    assert open_plan(1, ranges, {}, whole=[tp(0)]).settled == {tp(0): 20, tp(1): 4}


def in_pieces(*read: int) -> Plan:
    """A range of three pieces, of which some are read."""
    plan = a_plan(pieces={tp(0): (5, 10, 15)})
    for start in read:
        plan = settle(plan, {tp(0): start + 5}, starts={tp(0): start}).plan
    return plan


@pytest.mark.parametrize(
    ("read", "start", "at", "cut"),
    [
        ((), 5, 8, 8),
        ((), 10, 12, 5),
        ((5,), 10, 12, 12),
        ((5,), 15, 18, 10),
        ((5, 10), 15, 18, 18),
        ((5, 10), 15, 15, 15),
    ],
)
def test_given_pieces_when_what_was_read_is_a_beginning_then_the_cut_lies_in_the_first_unread_one(
    read: tuple[int, ...], start: int, at: int, cut: int
) -> None:
    found = settle(in_pieces(*read), {tp(0): at}, starts={tp(0): start})
    assert [record.cut for record in found.cuts] == [cut]
    assert found.plan.settled == {tp(0): cut}
    assert found.plan.end_of(tp(0), 5) == min(cut, 10)
    assert found.plan.end_of(tp(0), 15) == max(cut, 15)


@pytest.mark.parametrize(("read", "start"), [((10,), 5), ((15,), 5), ((5, 15), 10), ((10,), 15)])
def test_given_pieces_when_one_behind_the_first_unread_is_read_then_nothing_is_cut(
    read: tuple[int, ...], start: int
) -> None:
    found = settle(in_pieces(*read), {tp(0): start + 1}, starts={tp(0): start})
    assert (found.cuts, found.ends, found.plan.settled) == ((), {tp(0): start + 5}, {tp(0): 20})


def test_given_pieces_when_all_are_read_then_the_range_is_full_and_each_answer_stays() -> None:
    assert in_pieces(15, 5).settled == {}
    assert in_pieces(15, 5).end_of(tp(0), 15) == 20
    assert settle(in_pieces(15), {tp(0): 16}, starts={tp(0): 15}).ends == {tp(0): 20}, "it was read before"
    assert in_pieces(15, 5, 10).settled == {tp(0): 20}


@pytest.mark.parametrize(("start", "at"), [(10, 9), (10, 16), (7, 8)])
def test_given_pieces_when_a_proposal_lies_outside_of_its_own_then_it_is_refused(start: int, at: int) -> None:
    with pytest.raises(StateError, match="t-0 "):
        settle(in_pieces(), {tp(0): at}, starts={tp(0): start})


def test_given_a_record_that_contradicts_the_plan_when_opened_then_it_is_an_error() -> None:
    with pytest.raises(StateError, match=r"t-0 was cut at offset 8 of \[5, 20\), but the checkpoint plans \[6, 20\)"):
        open_plan(9, {tp(0): PlannedRange(start=6, end=20)}, {tp(0): CUT}, replayed=True)


def test_given_a_cut_when_the_batch_is_over_then_the_partition_goes_back() -> None:
    found = advance({tp(0): 20, tp(1): 4}, {tp(0): CUT})
    assert found.rewinds == {tp(0): 8}
    assert found.applied == ()


def test_given_a_rewind_that_is_logged_when_planning_goes_on_then_the_record_is_applied() -> None:
    found = advance({tp(0): 8}, {tp(0): CUT})
    assert found.rewinds == {}
    assert [record.applied for record in found.applied] == [True]


@pytest.mark.parametrize("start", [{}, {tp(0): 7}, {tp(0): 25}])
def test_given_a_checkpoint_that_stands_elsewhere_when_planning_then_it_fails_closed(start: dict[object, int]) -> None:
    with pytest.raises(StateError, match="the checkpoint was rolled back or edited"):
        advance(start, {tp(0): CUT})  # type: ignore[arg-type]


def test_given_a_cut_when_asked_what_was_delivered_then_the_end_is_the_cut_until_it_is_rewound() -> None:
    assert effective_end({tp(0): 20, tp(1): 4}, {tp(0): CUT}) == {tp(0): 8, tp(1): 4}
    assert effective_end({tp(0): 8}, {tp(0): CUT}) == {tp(0): 8}
