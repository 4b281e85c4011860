"""The driver's decisions over a scripted feed."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from discovery.core.errors import ConfigError, DataLossError, KafkaUnreachableError
from discovery.core.model import Generation, LoopState, TopicId, TopicName, TopicPartition, Verdict
from discovery.feed.base import AddressReport, FeedView, PartitionView
from discovery.store.topic_ids import TopicIdStore
from spark_jobs.source.options import parse_options
from spark_jobs.source.planner import Planner
from tests.fakes.clock import FakeClock
from tests.fakes.feed import BROKER, COLD, ScriptedFeed, partition_view, tp, view_of


def planner(feed: ScriptedFeed, **options: str) -> Planner:
    return named_planner(feed, None, **options)


def named_planner(feed: ScriptedFeed, ids: TopicIdStore | None, **options: str) -> Planner:
    given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", **options}
    return Planner(feed, parse_options(given), feed.clock, ids=ids)


def feed_with(partitions: Mapping[TopicPartition, PartitionView], **more: Any) -> ScriptedFeed:
    return ScriptedFeed(view_of(partitions, **more))


def begin(plan: Planner) -> dict[str, Any]:
    """Return what stands in Spark's log after the first batch, which is empty where the start moves on."""
    return dict(plan.latest_offsets(plan.initial_offsets(), None))


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
    assert plan.plans_made == 1
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
    assert "startingTimestamp: after 30 s the offset at that time is unknown for t-1 (it has no leader)" in str(
        error.value
    )
    assert feed.asked[1:] == [{tp(1): 1000}] * (len(feed.asked) - 1), "what was told is not asked again"


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


# -- data loss ----------------------------------------------------------------------------------------------------


def losing(partition: PartitionView, **options: str) -> tuple[ScriptedFeed, Planner]:
    feed = feed_with({tp(0): partition_view(0, 20)})
    plan = planner(feed, **options)
    plan.latest_offsets({"t": {"0": 10}}, None)
    feed.show(view_of({tp(0): partition}, generation=Generation(2 if partition.topic_id != "id-1" else 1)))
    return feed, plan


LOSSES = [
    (partition_view(15, 20), "t-0 begins at offset 15 but the query stands at 10: 5 offsets were deleted by retention"),
    (partition_view(0, 3), "t-0 ends at offset 3 but the query stands at 10: the topic was truncated or recreated"),
    (
        partition_view(0, 50, topic_id=TopicId("id-2")),
        "topic t was recreated (id id-1 became id-2); t-0 stood at offset 10",
    ),
]


@pytest.mark.parametrize(("partition", "text"), LOSSES)
def test_given_lost_records_when_a_fresh_answer_confirms_then_the_query_fails_with_the_remedy(
    partition: PartitionView, text: str
) -> None:
    feed, plan = losing(partition)
    with pytest.raises(DataLossError) as error:
        plan.latest_offsets({"t": {"0": 10}}, None)
    assert str(error.value).startswith(f"data loss: {text}; set ")
    assert 'set failOnDataLoss to "false"' in str(error.value)
    assert feed.refreshes == 1


@pytest.mark.parametrize(("partition", "text"), LOSSES)
def test_given_lost_records_when_nobody_confirms_then_the_query_goes_on_and_asks_again_later(
    partition: PartitionView, text: str
) -> None:
    feed, plan = losing(partition)
    feed.reachable = False
    plan.latest_offsets({"t": {"0": 10}}, None)
    feed.show_partitions({tp(0): partition})
    plan.latest_offsets({"t": {"0": 10}}, None)
    assert feed.refreshes == 1
    feed.clock.advance(seconds=20)
    feed.reachable = True
    feed.show_partitions({tp(0): partition})
    with pytest.raises(DataLossError):
        plan.latest_offsets({"t": {"0": 10}}, None)


def test_given_a_topic_that_seems_recreated_when_nobody_confirms_then_no_record_of_it_is_read_yet() -> None:
    again = partition_view(0, 50, topic_id=TopicId("id-2"))
    feed, plan = losing(again, onTopicRecreated="restart")
    feed.reachable = False
    start = {"t": {"0": 10}}
    assert plan.latest_offsets(start, None) is start
    feed.reachable = True
    feed.clock.advance(seconds=20)
    feed.show(view_of({tp(0): again}, generation=Generation(3)))
    assert plan.latest_offsets(start, None) == {"t": {"0": 0}}


def test_given_a_loss_that_nobody_confirms_when_the_cluster_stands_still_then_it_is_asked_about_again() -> None:
    feed, plan = losing(partition_view(0, 50, topic_id=TopicId("id-2")))
    feed.reachable = False
    start = {"t": {"0": 10}}
    assert plan.latest_offsets(start, None) is start
    feed.reachable = True
    feed.clock.advance(seconds=20)
    with pytest.raises(DataLossError, match="was recreated"):
        plan.latest_offsets(start, None)


def test_given_a_false_alarm_when_a_fresh_answer_denies_it_then_the_query_goes_on() -> None:
    feed, plan = losing(partition_view(0, 3))
    feed.refreshed.append(view_of({tp(0): partition_view(0, 25)}))
    assert plan.latest_offsets({"t": {"0": 10}}, None) == {"t": {"0": 25}}


@pytest.mark.parametrize(
    ("partition", "expected"),
    [(partition_view(15, 20), 20), (partition_view(0, 3), 3), (partition_view(2, 50, topic_id=TopicId("id-2")), 2)],
)
def test_given_losses_are_accepted_when_planned_then_it_goes_on_behind_them(
    partition: PartitionView, expected: int
) -> None:
    feed, plan = losing(partition, failOnDataLoss="false")
    end = plan.latest_offsets({"t": {"0": 10}}, None)
    assert end == {"t": {"0": expected}}
    feed.show_partitions({tp(0): partition})
    assert plan.latest_offsets(end, None) == {"t": {"0": partition.high_watermark}}
    assert feed.refreshes == 1


@pytest.mark.parametrize(
    ("options", "fails"),
    [
        ({}, True),
        ({"failOnDataLoss": "false"}, False),
        ({"onTopicRecreated": "restart"}, False),
        ({"failOnDataLoss": "false", "onTopicRecreated": "fail"}, True),
    ],
)
@pytest.mark.parametrize("seen", [True, False], ids=["while it ran", "while it was down"])
def test_given_a_recreated_topic_when_the_policy_says_so_then_it_fails_or_restarts(
    options: dict[str, str], *, fails: bool, seen: bool
) -> None:
    again = partition_view(2, 50, topic_id=TopicId("id-2"))
    if seen:
        feed, plan = losing(again, **options)
    else:
        feed = feed_with({tp(0): again}, last_run_topic_ids={TopicName("t"): TopicId("id-1")})
        plan = planner(feed, **options)
    start = {"t": {"0": 10}}
    if fails:
        with pytest.raises(DataLossError, match='set onTopicRecreated to "restart" to read the new topic from its'):
            plan.latest_offsets(start, None)
        return
    end = plan.latest_offsets(start, None)
    assert end == {"t": {"0": 2}}
    assert plan.tasks(start, end)[0] == ()
    assert plan.latest_offsets(end, None) == {"t": {"0": 50}}


def test_given_a_recreated_topic_when_the_failed_query_is_restarted_then_it_fails_until_somebody_decides(
    tmp_path: Path,
) -> None:
    def run(topic_id: str, end: int, **options: str) -> Planner:
        # A saved view moves on with the cluster: it knows the newest id alone.
        ids = {TopicName("t"): TopicId(topic_id)}
        feed = feed_with({tp(0): partition_view(0, end, topic_id=TopicId(topic_id))}, last_run_topic_ids=ids)
        return named_planner(feed, TopicIdStore(tmp_path, "s"), **{"startingOffsets": "earliest", **options})

    first = run("id-1", 10)
    start = first.initial_offsets()
    end = first.latest_offsets(start, None)
    for _ in range(3):
        with pytest.raises(DataLossError, match="topic t was recreated"):
            run("id-2", 50).latest_offsets(end, None)
        with pytest.raises(DataLossError, match="topic t was recreated"):
            run("id-2", 50).tasks(start, end)
        first_again = run("id-2", 50)
        with pytest.raises(DataLossError, match="topic t was recreated"):
            first_again.tasks(first_again.initial_offsets(), end)
    accepting = run("id-2", 50, onTopicRecreated="restart")
    back = accepting.latest_offsets(end, None)
    assert back == {"t": {"0": 0}}
    with pytest.raises(DataLossError, match="topic t was recreated"):
        run("id-2", 50).latest_offsets(end, None)
    assert run("id-2", 50, onTopicRecreated="restart").latest_offsets(end, None) == back, "it died before it was logged"
    on = accepting.latest_offsets(back, None)
    assert on == {"t": {"0": 50}}
    assert run("id-2", 60).latest_offsets(on, None) == {"t": {"0": 60}}
    anew = run("id-3", 5)
    assert anew.latest_offsets(anew.initial_offsets(), None) == {"t": {"0": 5}}
    assert run("id-3", 6).latest_offsets({"t": {"0": 5}}, None) == {"t": {"0": 6}}
    latest = run("id-4", 5, startingOffsets="latest")
    begins = latest.latest_offsets(latest.initial_offsets(), None)
    assert latest.tasks(latest.initial_offsets(), begins)[0] == (), "a new query under an old name"


def test_given_a_partition_that_was_never_read_when_its_topic_is_made_anew_then_nothing_is_lost(
    tmp_path: Path,
) -> None:
    store = TopicIdStore(tmp_path, "s")
    store.save({tp(0): TopicId("id-1")})
    plan = named_planner(feed_with({tp(0): partition_view(0, 9, topic_id=TopicId("id-2"))}), store)
    assert plan.latest_offsets({"t": {}}, None) == {"t": {"0": 9}}
    assert store.load() == {tp(0): TopicId("id-2")}


def test_given_an_id_that_only_the_saved_view_has_when_a_start_fails_by_it_then_the_next_start_fails_too(
    tmp_path: Path,
) -> None:
    for last in ("id-1", "id-2"):
        ids = {TopicName("t"): TopicId(last)}
        feed = feed_with({tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}, last_run_topic_ids=ids)
        with pytest.raises(DataLossError, match="topic t was recreated"):
            named_planner(feed, TopicIdStore(tmp_path, "s")).tasks({"t": {"0": 0}}, {"t": {"0": 10}})


def test_given_topic_ids_that_cannot_be_read_or_written_when_used_then_it_is_told_and_the_query_goes_on(
    tmp_path: Path,
) -> None:
    store = TopicIdStore(tmp_path, "s")
    store.path.parent.mkdir()
    store.path.write_text('{"schema": 1')
    assert store.load() == {}
    store.path.unlink()
    store.path.parent.rmdir()
    (tmp_path / "ids").write_text("a file in the way")
    assert not store.save({tp(0): TopicId("id-1")})


def test_given_a_topic_read_before_its_id_was_told_when_it_is_made_anew_then_it_is_found() -> None:
    feed = feed_with({tp(0): partition_view(0, 10, topic_id=None)})
    plan = planner(feed, startingOffsets="earliest")
    end = plan.latest_offsets(plan.initial_offsets(), None)
    again = {tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}
    feed.show(view_of(again, version=2, generation=Generation(2), first_topic_ids={TopicName("t"): TopicId("id-1")}))
    with pytest.raises(DataLossError, match="was recreated"):
        plan.latest_offsets(end, None)


def test_given_a_topic_in_doubt_when_its_new_id_is_told_later_than_its_generation_then_it_is_found_recreated() -> None:
    doubted = partition_view(None, None, topic_id=None)
    feed = feed_with({tp(0): doubted}, last_run_topic_ids={TopicName("t"): TopicId("id-1")})
    plan = planner(feed)
    start = {"t": {"0": 10}}
    assert plan.latest_offsets(start, None) is start
    feed.show_partitions({tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))})
    with pytest.raises(DataLossError, match="was recreated"):
        plan.latest_offsets(start, None)


def test_given_a_batch_planned_over_a_topic_recreated_since_when_replayed_then_its_old_range_is_not_read() -> None:
    ids = {TopicName("t"): TopicId("id-1")}
    feed = feed_with({tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}, last_run_topic_ids=ids)
    with pytest.raises(DataLossError, match="was recreated"):
        planner(feed).tasks({"t": {"0": 5}}, {"t": {"0": 10}})
    first = planner(feed, startingOffsets="earliest")
    first.initial_offsets()
    with pytest.raises(DataLossError, match="was recreated"):
        first.tasks({"t": {"0": 0}}, {"t": {"0": 10}})
    accepting = planner(feed, onTopicRecreated="restart")
    assert accepting.tasks({"t": {"0": 5}}, {"t": {"0": 10}})[0] == ()
    assert accepting.latest_offsets({"t": {"0": 10}}, None) == {"t": {"0": 0}}


def test_given_a_batch_over_a_topic_recreated_with_fewer_partitions_when_replayed_then_none_is_read() -> None:
    ids = {TopicName("t"): TopicId("id-1")}
    feed = feed_with({tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}, last_run_topic_ids=ids)
    plan = planner(feed, onTopicRecreated="restart")
    assert plan.tasks({"t": {"0": 5, "1": 5}}, {"t": {"0": 10, "1": 10}})[0] == ()
    assert plan.latest_offsets({"t": {"0": 10, "1": 10}}, None) == {"t": {"0": 0, "1": 10}}


def test_given_a_replay_that_failed_over_a_recreated_topic_when_tried_again_then_it_fails_again(tmp_path: Path) -> None:
    now_id, store = {tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}, TopicIdStore(tmp_path, "s")
    for saved in ("id-1", "id-2"):
        plan = named_planner(feed_with(now_id, last_run_topic_ids={TopicName("t"): TopicId(saved)}), store)
        with pytest.raises(DataLossError, match="was recreated"):
            plan.tasks({"t": {"0": 5}}, {"t": {"0": 10}})


def test_given_a_replay_when_the_new_id_of_its_topic_comes_late_then_it_is_waited_for() -> None:
    ids = {TopicName("t"): TopicId("id-1")}
    feed = feed_with({tp(0): partition_view(None, None, topic_id=None)}, last_run_topic_ids=ids)
    later = view_of({tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}, version=2, last_run_topic_ids=ids)
    feed.script += [feed.view()] * 2 + [later]
    with pytest.raises(DataLossError, match="was recreated"):
        planner(feed).tasks({"t": {"0": 5}}, {"t": {"0": 10}})


def test_given_a_new_query_under_an_old_name_when_its_topic_is_another_then_nothing_is_lost() -> None:
    ids = {TopicName("t"): TopicId("id-1")}
    feed = feed_with({tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}, last_run_topic_ids=ids)
    plan = planner(feed, startingOffsets="earliest")
    assert plan.latest_offsets(plan.initial_offsets(), None) == {"t": {"0": 50}}
    plan = planner(feed)
    start = plan.initial_offsets()
    assert plan.tasks(start, plan.latest_offsets(start, None))[0] == ()


def test_given_a_topic_that_is_gone_when_confirmed_then_it_is_data_loss() -> None:
    feed = feed_with({tp(0): partition_view(0, 5)}, missing_topics=(TopicName("x"),))
    with pytest.raises(DataLossError, match="topic x does not exist any more; x-1 stood at offset 4"):
        planner(feed, subscribe="t,x").latest_offsets({"t": {"0": 5}, "x": {"1": 4}}, None)


def test_given_a_gone_topic_is_accepted_when_it_returns_then_it_resumes_where_it_stood() -> None:
    feed = feed_with({tp(0): partition_view(0, 5)}, missing_topics=(TopicName("x"),))
    plan = planner(feed, subscribe="t,x", failOnDataLoss="false")
    start = {"t": {"0": 5}, "x": {"1": 4}}
    assert plan.latest_offsets(start, None) is start
    feed.show(view_of({tp(0): partition_view(0, 5), tp(1, "x"): partition_view(0, 9)}))
    assert plan.latest_offsets(start, None) == {"t": {"0": 5}, "x": {"1": 9}}


def test_given_unknown_offsets_or_ids_when_judged_then_nothing_is_lost() -> None:
    feed, plan = losing(partition_view(None, None, topic_id=None))
    start = {"t": {"0": 10}}
    assert plan.latest_offsets(start, None) is start
    assert feed.refreshes == 0


def test_given_a_topic_the_subscription_no_longer_names_when_restarted_then_it_is_data_loss() -> None:
    feed = feed_with({tp(0): partition_view(0, 5)})
    with pytest.raises(DataLossError, match="the checkpoint has old-0 at offset 3, but the subscription does not name"):
        planner(feed).latest_offsets({"old": {"0": 3}, "t": {"0": 5}}, None)


# -- Trigger.AvailableNow -----------------------------------------------------------------------------------------


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
        plan.fix_once()
    assert plan.latest_offsets({"t": {"0": 0, "1": 3}}, None) == {"t": {"0": 7, "1": 3}}
    assert "Trigger.Once reads without t-1 (it has no leader)" in caplog.text


def test_given_trigger_once_when_the_parked_partition_returns_in_time_then_it_is_in_the_batch() -> None:
    feed = feed_with({tp(0): partition_view(0, 7), tp(1): partition_view(0, None, leader=None)})
    feed.script.append(view_of({tp(0): partition_view(0, 8), tp(1): partition_view(0, 4)}))
    plan = planner(feed)
    plan.fix_once()
    assert plan.latest_offsets({"t": {"0": 0, "1": 3}}, None) == {"t": {"0": 7, "1": 4}}


def test_given_trigger_once_at_a_new_start_when_one_partition_begins_at_its_end_then_the_others_are_read() -> None:
    feed = feed_with({tp(0): partition_view(0, 7), tp(1): partition_view(2, 9)})
    plan = planner(feed, startingOffsets='{"t":{"0":3,"1":-1}}')
    start = plan.initial_offsets()
    plan.fix_once()
    end = plan.latest_offsets(start, None)
    assert (start, end) == ({"t": {"0": 3, "1": -1}}, {"t": {"0": 7, "1": 9}})
    assert [(r.start_offset, r.end_offset) for task in plan.tasks(start, end)[0] for r in task] == [(3, 7)]
