"""The pure half of a trigger: state in, state and plan out."""

import pytest

from discovery.core.errors import DataLossError
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.planning.guard import LossGuard, judge
from discovery.spark.source.planning.pace import Pace
from discovery.spark.source.planning.trigger import PlanState, plan
from tests.support.fakes.feed import partition_view, tp, view_of

OPTIONS = parse_options({"kafka.bootstrap.servers": "b1:9092", "subscribe": "t"})
STATE = PlanState(pace=Pace(least=None, delay_seconds=0.0))


def test_given_one_state_when_planned_twice_then_the_answers_agree_and_it_is_unchanged() -> None:
    view, before = view_of({tp(0): partition_view(0, 10), tp(1): partition_view(0, None)}), repr(STATE)
    first, second = (plan(STATE, {tp(0): 4}, view, OPTIONS, now=1.0) for _ in range(2))
    assert first == second
    assert first[1].end == {tp(0): 10}
    assert first[0].parked.keys() == {tp(1)}
    assert repr(STATE) == before


def test_given_a_seeming_loss_when_judged_then_a_fresh_answer_is_asked_for_and_only_that_fails() -> None:
    start, view = {tp(0): 20}, view_of({tp(0): partition_view(0, 10)})
    guard, judged = judge(LossGuard(), start, view, OPTIONS, now=0.0, cut_ends={})
    assert judged.ask_seconds is not None
    assert judged.unsure == {tp(0)}
    assert judge(guard, start, view, OPTIONS, now=1.0, cut_ends={})[1].ask_seconds is None
    with pytest.raises(DataLossError, match="ends at offset 10"):
        judge(guard, start, view, OPTIONS, now=1.0, cut_ends={}, is_fresh=True)


@pytest.mark.parametrize(("answer_seconds", "ask_seconds"), [(0.0, 1.0), (5.0, 20.0), (20.0, 60.0)])
def test_given_a_cut_at_a_slow_leader_when_it_is_to_be_read_on_then_its_answer_is_waited_for(
    answer_seconds: float, ask_seconds: float
) -> None:
    view = view_of({tp(0): partition_view(0, 10, answer_seconds=answer_seconds)})
    assert judge(LossGuard(), {tp(0): 4}, view, OPTIONS, now=0.0, cut_ends={tp(0): 9})[1].ask_seconds == ask_seconds


def test_given_a_least_batch_when_few_records_wait_then_it_is_planned_after_the_longest_delay() -> None:
    pace = Pace(least=100, delay_seconds=60.0).after(5, now=0.0)
    assert pace is not None
    assert pace.after(5, now=59.0) is None
    assert pace.after(0, now=61.0) == pace
    assert pace.after(5, now=60.0) == Pace(least=100, delay_seconds=60.0, planned_at=60.0)
