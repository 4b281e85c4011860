"""Trigger.AvailableNow and Trigger.Once over a scripted feed."""

import logging

import pytest

from discovery.core.errors import KafkaUnreachableError
from tests.support.fakes.feed import partition_view, tp, view_of
from tests.support.fakes.planner import feed_with, planner


def test_given_a_bounded_run_when_more_is_written_then_it_ends_exactly_at_its_target() -> None:
    feed = feed_with({tp(0): partition_view(0, 10)})
    plan = planner(feed)
    plan.fix_target()
    feed.show_partitions({tp(0): partition_view(0, 99), tp(1): partition_view(0, 5)})
    first = plan.latest_offsets({"t": {"0": 0}}, 7)
    assert first == {"t": {"0": 7}}
    second = plan.latest_offsets(first, 7)
    assert second == {"t": {"0": 10}}
    assert plan.latest_offsets(second, 7) is second


def test_given_a_bounded_run_when_a_partition_stays_parked_then_the_others_are_read_and_it_fails() -> None:
    feed = feed_with({tp(0): partition_view(0, 10), tp(1): partition_view(0, None, leader=None)})
    plan = planner(feed, startingOffsets="earliest")
    plan.fix_target()
    end = plan.latest_offsets({"t": {"0": 0}}, None)
    assert end == {"t": {"0": 10}}
    with pytest.raises(KafkaUnreachableError) as error:
        plan.latest_offsets(end, None)
    assert "waited 60 s for t-1 (it has no leader); everything else is read" in str(error.value)


def test_given_a_slow_leader_in_the_options_when_a_bounded_run_waits_then_it_waits_for_two_of_its_answers() -> None:
    feed = feed_with({tp(0): partition_view(0, 10), tp(1): partition_view(0, None, leader=None)})
    plan = planner(feed, **{"startingOffsets": "earliest", "kafka.default.api.timeout.ms": "90000"})
    plan.fix_target()
    end = plan.latest_offsets({"t": {"0": 0}}, None)
    with pytest.raises(KafkaUnreachableError, match="waited 180 s for t-1"):
        plan.latest_offsets(end, None)


def test_given_a_bounded_run_that_holds_when_a_partition_stays_parked_then_nothing_is_read() -> None:
    feed = feed_with({tp(0): partition_view(0, 10), tp(1): partition_view(0, None, leader=None)})
    plan = planner(feed, startingOffsets="earliest", onParked="hold")
    plan.fix_target()
    with pytest.raises(KafkaUnreachableError) as error:
        plan.latest_offsets({"t": {"0": 0}}, None)
    assert "t-1 (it has no leader); nothing else is read meanwhile (onParked=hold)" in str(error.value)


def test_given_a_bounded_run_when_an_unresolved_partition_has_grown_then_it_begins_at_its_target() -> None:
    feed = feed_with({tp(0): partition_view(0, 10), tp(1): partition_view(0, 4)})
    plan = planner(feed)
    plan.fix_target()
    feed.show_partitions({tp(0): partition_view(0, 99), tp(1): partition_view(0, 4)})
    end = plan.latest_offsets({"t": {"0": -1, "1": 1}}, None)
    assert end == {"t": {"0": 10, "1": 4}}
    assert plan.latest_offsets(end, None) is end


def test_given_a_bounded_run_when_the_parked_partition_returns_then_it_is_read_to_its_end() -> None:
    feed = feed_with({tp(0): partition_view(0, 10), tp(1): partition_view(0, None, leader=None)})
    plan = planner(feed)
    plan.fix_target()
    end = plan.latest_offsets({"t": {"0": 0, "1": 0}}, None)
    feed.script.append(view_of({tp(0): partition_view(0, 30), tp(1): partition_view(0, 4)}))
    last = plan.latest_offsets(end, None)
    assert last == {"t": {"0": 10, "1": 4}}
    assert plan.latest_offsets(last, None) is last


def test_given_a_bounded_run_when_nobody_answers_then_it_raises_after_its_budget() -> None:
    feed = feed_with({tp(0): partition_view(0, 10)})
    feed.reachable = False
    before = feed.clock.monotonic()
    with pytest.raises(KafkaUnreachableError):
        planner(feed).fix_target()
    assert 59 < feed.clock.monotonic() - before < 80


def test_given_a_bounded_run_when_a_partition_is_empty_and_new_then_it_does_not_wait_for_it() -> None:
    feed = feed_with({tp(0): partition_view(0, 10), tp(1): partition_view(0, 0)})
    plan = planner(feed)
    plan.fix_target()
    start = {"t": {"0": 10}}
    assert plan.latest_offsets(start, None) is start


def test_given_trigger_once_when_a_partition_stays_parked_then_the_others_are_read_and_the_log_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = feed_with({tp(0): partition_view(0, 7), tp(1): partition_view(0, None, leader=None)})
    plan = planner(feed)
    with caplog.at_level(logging.WARNING):
        plan.fix_target(one_batch=True)
    assert plan.latest_offsets({"t": {"0": 0, "1": 3}}, None) == {"t": {"0": 7, "1": 3}}
    assert "Trigger.Once reads without t-1 (it has no leader)" in caplog.text


def test_given_trigger_once_when_the_parked_partition_returns_in_time_then_it_is_in_the_batch() -> None:
    feed = feed_with({tp(0): partition_view(0, 7), tp(1): partition_view(0, None, leader=None)})
    feed.script.append(view_of({tp(0): partition_view(0, 8), tp(1): partition_view(0, 4)}))
    plan = planner(feed)
    plan.fix_target(one_batch=True)
    assert plan.latest_offsets({"t": {"0": 0, "1": 3}}, None) == {"t": {"0": 7, "1": 4}}


def test_given_trigger_once_at_a_new_start_when_one_partition_begins_at_its_end_then_the_others_are_read() -> None:
    feed = feed_with({tp(0): partition_view(0, 7), tp(1): partition_view(2, 9)})
    plan = planner(feed, startingOffsets='{"t":{"0":3,"1":-1}}')
    start = plan.initial_offsets()
    plan.fix_target(one_batch=True)
    end = plan.latest_offsets(start, None)
    assert (start, end) == ({"t": {"0": 3, "1": -1}}, {"t": {"0": 7, "1": 9}})
    assert [(r.start_offset, r.end_offset) for task in plan.tasks(start, end)[0] for r in task] == [(3, 7)]
