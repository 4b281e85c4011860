"""The driver's decisions over a scripted feed: starts and triggers."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from discovery.core.errors import ConfigError, DataLossError, KafkaUnreachableError
from discovery.core.model import BrokerAddress, LoopState, TopicName, Verdict
from discovery.feed.base import ID_ASKED, AddressReport, FeedView
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.planning.planner import Planner
from tests.support.fakes.clock import FakeClock
from tests.support.fakes.feed import BROKER, COLD, ScriptedFeed, partition_view, tp, view_of
from tests.support.fakes.planner import begin, feed_with, planner

# -- start --------------------------------------------------------------------------------------------------------


def test_given_a_cold_feed_when_a_broker_answers_then_the_query_starts_at_its_end() -> None:
    feed = ScriptedFeed(COLD)
    feed.script.append(view_of({tp(0): partition_view(3, 7)}))
    assert begin(planner(feed)) == {"t": {"0": 7}}


def test_given_spark_asks_twice_when_more_arrived_then_the_first_answer_stands() -> None:
    feed = feed_with({tp(0): partition_view(0, 7)})
    plan = planner(feed)
    first = plan.initial_offsets()
    feed.show_partitions({tp(0): partition_view(0, 70)})
    assert plan.initial_offsets() is first


def test_given_a_start_at_latest_when_it_ends_before_the_first_batch_then_its_replay_reads_nothing_again() -> None:
    feed = feed_with({tp(0): partition_view(0, 7)})
    plan = planner(feed)
    end = begin(plan)
    assert plan.tasks(plan.initial_offsets(), end)[0] == ()
    feed.show_partitions({tp(0): partition_view(0, 70)})
    again = planner(feed)
    assert again.tasks(again.initial_offsets(), end)[0] == ()
    assert again.latest_offsets(end, None) == {"t": {"0": 70}}


def test_given_nobody_lives_when_the_time_is_up_then_the_error_has_a_verdict_per_address() -> None:
    reports = {BROKER: AddressReport(verdict=Verdict.REFUSED, detail="connection refused", configured=True)}
    feed = feed_with({}, state=COLD.state, bootstrap=(), addresses=reports)
    with pytest.raises(KafkaUnreachableError) as error:
        planner(feed, startupTimeout="30s").initial_offsets()
    assert str(error.value) == "startupTimeout: after 30 s no living broker; b1:9092: refused (connection refused)"


def test_given_a_topic_that_does_not_exist_when_the_time_is_up_then_it_is_named() -> None:
    feed = feed_with({}, missing_topics=(TopicName("t"),))
    with pytest.raises(ConfigError, match="after 30 s topic t does not exist; create it or correct the subscription"):
        planner(feed, startupTimeout="30s").initial_offsets()


def test_given_a_pattern_that_matches_nothing_when_starting_then_the_query_waits_and_reads_from_the_first_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = feed_with({})
    plan = planner_of_pattern(feed)
    with caplog.at_level(logging.WARNING):
        start = plan.initial_offsets()
    assert start == {}
    assert "no topic matches 't' yet; the query waits for one" in caplog.text
    assert plan.latest_offsets(start, None) is start
    feed.show_partitions({tp(0): partition_view(0, 7)})
    end = plan.latest_offsets(start, None)
    assert end == {"t": {"0": 7}}
    assert [(r.start_offset, r.end_offset) for task in plan.tasks(start, end)[0] for r in task] == [(0, 7)]


def test_given_a_pattern_whose_topics_were_only_not_known_yet_when_starting_then_they_are_no_new_ones() -> None:
    feed = feed_with({})
    feed.refreshed.append(view_of({tp(0): partition_view(0, 7)}))
    plan = planner_of_pattern(feed)
    start = plan.initial_offsets()
    assert plan.latest_offsets(start, None) == {"t": {"0": 7}}, "where a start at latest begins"


def planner_of_pattern(feed: ScriptedFeed) -> Planner:
    return Planner(feed, parse_options({"kafka.bootstrap.servers": "b1:9092", "subscribePattern": "t"}), feed.clock)


def test_given_waiting_will_not_help_when_starting_then_it_fails_at_once() -> None:
    feed = feed_with({}, fatal="the password of user u was refused; correct kafka.sasl.jaas.config")
    with pytest.raises(KafkaUnreachableError, match="password of user u was refused"):
        planner(feed).initial_offsets()
    assert feed.waits == 0


def foreign_list(verdict: Verdict | None, **more: Any) -> FeedView:
    reports = {BROKER: AddressReport(verdict=verdict, configured=True)}
    return view_of({tp(0): partition_view(0, 5)}, addresses=reports, **more)


def test_given_a_living_broker_of_a_saved_view_when_the_list_is_foreign_then_a_start_waits_to_hear_it() -> None:
    feed = ScriptedFeed(foreign_list(None))
    feed.script.append(foreign_list(Verdict.FOREIGN_CLUSTER, version=2, fatal="all 1 belong to cluster x"))
    with pytest.raises(KafkaUnreachableError, match="belong to cluster x"):
        planner(feed).initial_offsets()


def test_given_a_living_broker_of_a_saved_view_when_the_list_turns_out_foreign_then_a_restart_ends() -> None:
    feed = ScriptedFeed(foreign_list(None))
    plan = planner(feed)
    plan.latest_offsets({"t": {"0": 0}}, None)
    feed.show(foreign_list(Verdict.FOREIGN_CLUSTER, version=2, fatal="all 1 belong to cluster x"))
    with pytest.raises(KafkaUnreachableError, match="belong to cluster x"):
        plan.latest_offsets({"t": {"0": 5}}, None)


def test_given_a_list_that_nobody_judges_when_a_saved_broker_lives_then_a_start_waits_a_second_for_it() -> None:
    unasked = {BROKER: AddressReport(verdict=None, configured=True)}
    feed = feed_with({tp(0): partition_view(0, 5)}, addresses=unasked)
    before = feed.clock.monotonic()
    assert begin(planner(feed)) == {"t": {"0": 5}}
    assert feed.clock.monotonic() - before == pytest.approx(1.0)


def test_given_a_leaderless_partition_when_starting_at_earliest_then_it_is_left_out_and_begins_there_later() -> None:
    feed = feed_with({tp(0): partition_view(2, 5), tp(1): partition_view(None, None, leader=None)})
    plan = planner(feed, startingOffsets="earliest")
    start = plan.initial_offsets()
    assert start == {"t": {"0": 2}}
    feed.show_partitions({tp(0): partition_view(2, 5), tp(1): partition_view(4, 9)})
    end = plan.latest_offsets(start, None)
    assert end == {"t": {"0": 5, "1": 9}}
    tasks, _, _ = plan.tasks(start, end)
    assert {(r.topic_partition.partition, r.start_offset) for task in tasks for r in task} == {(0, 2), (1, 4)}


def test_given_a_leaderless_partition_when_starting_at_latest_then_its_history_is_never_read() -> None:
    feed = feed_with({tp(0): partition_view(2, 5), tp(1): partition_view(None, None, leader=None)})
    plan = planner(feed)
    start = begin(plan)
    assert start == {"t": {"0": 5, "1": -1}}
    feed.show_partitions({tp(0): partition_view(2, 5), tp(1): partition_view(4, 9)})
    end = plan.latest_offsets(start, None)
    assert end == {"t": {"0": 5, "1": 9}}
    assert plan.tasks(start, end)[0] == ()


def test_given_a_slow_leader_when_starting_then_it_is_waited_for_a_second_only() -> None:
    clock = FakeClock()
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 5), tp(1): partition_view(None, None)}), clock=clock)
    before = clock.monotonic()
    assert begin(planner(feed)) == {"t": {"0": 5, "1": -1}}
    assert clock.monotonic() - before == pytest.approx(1.0, abs=0.1)


def test_given_json_offsets_that_miss_a_partition_when_starting_then_both_sides_are_named() -> None:
    feed = feed_with({tp(0): partition_view(), tp(1): partition_view()})
    with pytest.raises(ConfigError) as error:
        planner(feed, startingOffsets='{"t":{"0":1,"7":1}}').initial_offsets()
    assert "not named: t-1; named but not there: t-7" in str(error.value)


def test_given_a_restart_over_an_old_picture_when_nobody_answers_then_it_stands_still_and_fails_in_time() -> None:
    feed = feed_with({tp(0): partition_view(0, None)}, state=LoopState.FAILSAFE)
    plan = planner(feed, startupTimeout="30s")
    start = {"t": {"0": 4}}
    assert plan.latest_offsets(start, None) is start
    feed.clock.advance(seconds=31)
    with pytest.raises(KafkaUnreachableError, match="after 30 s no living broker"):
        plan.latest_offsets(start, None)


def test_given_a_query_that_lived_when_all_brokers_go_then_it_stands_still_for_as_long_as_it_takes() -> None:
    feed = feed_with({tp(0): partition_view(0, 4)})
    plan = planner(feed, startupTimeout="30s")
    start = {"t": {"0": 4}}
    assert plan.latest_offsets(start, None) is start
    feed.show(view_of({tp(0): partition_view(0, 4, parked_reason="its leader is silent")}, state=LoopState.FAILSAFE))
    feed.clock.advance(seconds=3_000)
    assert plan.latest_offsets(start, None) is start


# -- triggers -----------------------------------------------------------------------------------------------------


def test_given_nothing_new_when_asked_a_thousand_times_then_one_plan_is_made_and_start_comes_back() -> None:
    feed = feed_with({tp(i): partition_view(0, 10) for i in range(1_000)})
    plan = planner(feed)
    start = {"t": {str(i): 10 for i in range(1_000)}}
    assert all(plan.latest_offsets(copied, None) is copied for copied in (dict(start) for _ in range(1_000)))
    assert plan.state.plans_made == 1
    assert feed.waits == feed.refreshes == 0


def test_given_a_parked_partition_when_planned_then_the_others_go_on_and_it_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = feed_with({tp(0): partition_view(0, 5), tp(1): partition_view(0, 5, leader=None)})
    plan = planner(feed)
    start = {"t": {"0": 0, "1": 0}}
    with caplog.at_level(logging.WARNING):
        assert plan.latest_offsets(start, None) == {"t": {"0": 5, "1": 0}}
        feed.show_partitions(feed.view().partitions)
        plan.latest_offsets(start, None)
    assert caplog.text.count("partitions parked: t-1 (it has no leader)") == 1


def test_given_partitions_whose_topic_id_is_being_asked_when_planned_then_nobody_is_alarmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = feed_with({tp(0): replace(partition_view(0, 5), parked_reason=ID_ASKED)})
    plan = planner(feed)
    assert plan.latest_offsets({"t": {"0": 0}}, None) == {"t": {"0": 0}}
    feed.show_partitions({tp(0): partition_view(0, 5)})
    assert plan.latest_offsets({"t": {"0": 0}}, None) == {"t": {"0": 5}}
    assert "parked" not in caplog.text


def test_given_a_parked_partition_whose_topic_id_is_being_asked_when_planned_then_it_is_not_called_readable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = feed_with({tp(0): partition_view(0, 5)})
    plan = planner(feed)
    for reason in ("it has no leader", ID_ASKED, "it has no leader"):
        feed.show_partitions({tp(0): replace(partition_view(0, 5), parked_reason=reason)})
        plan.latest_offsets({"t": {"0": 0}}, None)
        feed.clock.advance(60)
    assert caplog.text.count("partitions parked") == 1


def test_given_partitions_parked_one_by_one_when_planned_then_the_log_gets_the_last_state_not_every_step(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = feed_with({tp(i): partition_view(0, 5) for i in range(9)})
    plan = planner(feed)
    start = {"t": {str(i): 0 for i in range(9)}}
    with caplog.at_level(logging.WARNING):
        for parked in range(1, 9):
            leaders = {tp(i): partition_view(0, 5, leader=None if i < parked else 1) for i in range(9)}
            feed.show_partitions(leaders)
            plan.latest_offsets(start, None)
        feed.clock.advance(2.0)
        feed.show_partitions(feed.view().partitions)
        plan.latest_offsets(start, None)
    assert caplog.text.count("partitions parked") == 2
    assert "t-7 (it has no leader)" in caplog.text


def test_given_hold_when_a_partition_is_parked_then_nothing_is_planned() -> None:
    feed = feed_with({tp(0): partition_view(0, 5), tp(1): partition_view(0, 5, leader=None)})
    start = {"t": {"0": 0, "1": 0}}
    assert planner(feed, onParked="hold").latest_offsets(start, None) is start


def test_given_hold_and_a_deleted_topic_when_planned_then_the_others_go_on() -> None:
    feed = feed_with({tp(0): partition_view(0, 5), tp(0, "old"): partition_view(0, 9, gone=True)})
    held = planner(feed, onParked="hold", failOnDataLoss="false")
    assert held.latest_offsets({"t": {"0": 0}}, None) == {"t": {"0": 5}}


def test_given_a_deleted_topic_in_the_feed_when_a_new_query_starts_then_it_is_left_out() -> None:
    feed = feed_with({tp(0): partition_view(0, 5), tp(0, "old"): partition_view(0, 9, gone=True)})
    assert planner(feed, startingOffsets="earliest").initial_offsets() == {"t": {"0": 0}}


def test_given_a_new_empty_partition_when_planned_then_no_batch_is_made_for_it() -> None:
    feed = feed_with({tp(0): partition_view(0, 5), tp(1): partition_view(0, 0)})
    start = {"t": {"0": 5}}
    assert planner(feed).latest_offsets(start, None) is start


def test_given_a_new_generation_when_planned_then_it_is_acknowledged_once() -> None:
    feed = feed_with({tp(0): partition_view(0, 5)})
    plan = planner(feed)
    plan.latest_offsets({"t": {"0": 0}}, None)
    feed.show_partitions({tp(0): partition_view(0, 6)})
    plan.latest_offsets({"t": {"0": 0}}, None)
    assert feed.acked == [1]


def test_given_a_restart_when_the_first_call_replays_a_batch_then_it_waits_for_living_brokers() -> None:
    feed = ScriptedFeed(COLD)
    feed.script.append(view_of({tp(0): partition_view(0, 7)}))
    tasks, brokers, _ = planner(feed).tasks({"t": {"0": 1}}, {"t": {"0": 4}})
    assert brokers == (BROKER,)
    assert [(r.start_offset, r.end_offset) for task in tasks for r in task] == [(1, 4)]


def test_given_a_batch_when_made_into_tasks_then_each_range_names_its_leader_and_where_that_is() -> None:
    plan = planner(feed_with({tp(0): partition_view(0, 7, leader=2), tp(1): partition_view(0, 5)}))
    tasks = plan.tasks({"t": {"0": 0, "1": 0}}, {"t": {"0": 7, "1": 5}})[0]
    led = {r.topic_partition: (r.leader, r.leader_address) for task in tasks for r in task}
    assert led == {tp(0): (2, BrokerAddress("b2", 9092)), tp(1): (1, BrokerAddress("b1", 9092))}


def test_given_a_slow_leader_when_a_batch_is_replayed_then_its_tasks_wait_until_that_is_known_and_no_longer() -> None:
    quick, unknown = partition_view(0, 9), partition_view(None, None, leader=2)
    for later, known_seconds in ((partition_view(None, None, leader=2, answer_seconds=4.0), 4.0), (unknown, 0.0)):
        feed = feed_with({tp(0): quick, tp(1): unknown})
        feed.script.append(view_of({tp(0): quick, tp(1): later}))
        began = feed.clock.monotonic()
        tasks, *_ = planner(feed).tasks({"t": {"0": 0, "1": 0}}, {"t": {"0": 9, "1": 9}})
        assert {r.answer_seconds for task in tasks for r in task if r.topic_partition == tp(1)} == {known_seconds}
        assert feed.clock.monotonic() - began < 10.0


def test_given_a_replay_with_a_new_partition_of_a_dead_leader_when_planned_then_the_task_finds_its_beginning() -> None:
    feed = feed_with({tp(0): partition_view(None, None, leader=None)})
    tasks, _, _ = planner(feed).tasks({}, {"t": {"0": 4}})
    assert [(r.start_offset, r.end_offset) for task in tasks for r in task] == [(-2, 4)]


def test_given_a_least_batch_when_too_few_records_are_there_then_they_wait_for_more_or_long_enough() -> None:
    feed = feed_with({tp(0): partition_view(0, 3)})
    plan = planner(feed, minOffsetsPerTrigger="10", maxTriggerDelay="5m")
    first = plan.latest_offsets({"t": {"0": 0}}, None)
    assert first == {"t": {"0": 3}}, "the first batch never waits"
    feed.show_partitions({tp(0): partition_view(0, 12)})
    feed.clock.advance(seconds=299)
    assert plan.latest_offsets(first, None) is first
    feed.show_partitions({tp(0): partition_view(0, 13)})
    second = plan.latest_offsets(first, 8)
    assert second == {"t": {"0": 11}}
    feed.clock.advance(seconds=299)
    assert plan.latest_offsets(second, 8) is second
    feed.clock.advance(seconds=1)
    assert plan.latest_offsets(second, 8) == {"t": {"0": 13}}, "two records waited long enough"


def test_given_a_least_batch_when_records_are_lost_then_stepping_over_them_does_not_wait() -> None:
    feed = feed_with({tp(0): partition_view(0, 20)})
    plan = planner(feed, minOffsetsPerTrigger="10", failOnDataLoss="false")
    assert plan.latest_offsets({"t": {"0": 0}}, None) == {"t": {"0": 20}}
    feed.show_partitions({tp(0): partition_view(0, 3)})
    assert plan.latest_offsets({"t": {"0": 20}}, None) == {"t": {"0": 3}}


# -- starts by time ---


def test_given_a_time_when_starting_then_each_leader_is_asked_and_its_answer_is_the_start() -> None:
    feed = feed_with({tp(0): partition_view(0, 7), tp(1): partition_view(2, 9)})
    feed.by_time = {tp(0): 5, tp(1): 2}
    assert planner(feed, startingTimestamp="1000").initial_offsets() == {"t": {"0": 5, "1": 2}}
    assert feed.asked == [{tp(0): 1000, tp(1): 1000}]


def test_given_no_record_at_a_time_when_starting_then_the_strategy_decides() -> None:
    feed = feed_with({tp(0): partition_view(0, 7), tp(1): partition_view(2, 9)})
    feed.by_time = {tp(0): 5, tp(1): -1}
    with pytest.raises(ConfigError) as error:
        planner(feed, startingTimestamp="1767225600000").initial_offsets()
    assert str(error.value) == (
        "startingTimestamp: t-1 has no record at or after 1767225600000 (2026-01-01 00:00:00 UTC); "
        "name an earlier time, or set startingOffsetsByTimestampStrategy to latest to begin there with what comes next"
    )
    lenient = planner(feed, startingTimestamp="1000", startingOffsetsByTimestampStrategy="latest")
    start = lenient.initial_offsets()
    assert start == {"t": {"0": 5, "1": -1}}, "the end may be another one when it is asked again"
    assert lenient.latest_offsets(start, None) == {"t": {"0": 5, "1": 9}}


def test_given_a_silent_leader_when_starting_at_a_time_then_it_is_waited_for_and_named_at_last() -> None:
    feed = feed_with({tp(0): partition_view(0, 7), tp(1): partition_view(0, None, leader=None)})
    feed.by_time = {tp(0): 5}
    with pytest.raises(KafkaUnreachableError) as error:
        planner(feed, startingTimestamp="1000", startupTimeout="30s").initial_offsets()
    said = "startingTimestamp: the offset at that time is unknown for t-1 (it has no leader), waited for up to 30 s"
    assert said in str(error.value)
    assert feed.asked[1:] == [{tp(1): 1000}] * (len(feed.asked) - 1), "what was answered is not asked again"


def test_given_times_by_partition_that_miss_one_when_starting_then_both_sides_are_named() -> None:
    feed = feed_with({tp(0): partition_view(), tp(1): partition_view()})
    with pytest.raises(ConfigError, match=r"startingOffsetsByTimestamp: the JSON must name .* not named: t-1"):
        planner(feed, startingOffsetsByTimestamp='{"t":{"0":1}}').initial_offsets()
    assert feed.asked == []


@pytest.mark.parametrize("offset", [1, 10])
def test_given_json_offsets_out_of_range_when_starting_then_the_option_and_what_is_there_are_named(offset: int) -> None:
    feed = feed_with({tp(0): partition_view(2, 9)})
    starting = f'{{"t":{{"0":{offset}}}}}'
    with pytest.raises(DataLossError) as error:
        planner(feed, startingOffsets=starting).initial_offsets()
    assert f"startingOffsets: t-0 has no offset {offset}, it holds 2 to 9; correct the option" in str(error.value)
    accepting = planner(feed, startingOffsets=starting, failOnDataLoss="false")
    assert accepting.latest_offsets(accepting.initial_offsets(), None) == {"t": {"0": 9}}
