"""What the driver decides where records are lost or a topic is another one, over a scripted feed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from discovery.core.errors import DataLossError, StateError
from discovery.core.model import Generation, TopicId, TopicName, TopicPartition
from discovery.feed.base import PartitionView
from discovery.spark.source.planning.guard import LossGuard, judge
from discovery.spark.source.planning.pace import Pace
from discovery.spark.source.planning.planner import Planner
from discovery.spark.source.planning.trigger import PlanState, plan
from discovery.store.topic_ids import TopicIdStore
from tests.support.fakes.feed import ScriptedFeed, partition_view, tp, view_of
from tests.support.fakes.planner import feed_with, named_planner, planner


def losing(partition: PartitionView, **options: str) -> tuple[ScriptedFeed, Planner]:
    feed = feed_with({tp(0): partition_view(0, 20)})
    plan = planner(feed, **options)
    plan.latest_offsets({"t": {"0": 10}}, None)
    feed.show(view_of({tp(0): partition}, generation=Generation(2 if partition.topic_id != "id-1" else 1)))
    return feed, plan


LOSSES = [
    (partition_view(15, 20), "t-0 begins at offset 15 but the query is at offset 10: 5 offsets deleted by retention"),
    (partition_view(0, 3), "t-0 ends at offset 3 but the query is at offset 10: the topic was truncated or recreated"),
    (
        partition_view(0, 50, topic_id=TopicId("id-2")),
        "topic t was recreated (id id-1 became id-2); t-0 was at offset 10",
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
    again = run("id-3", 5)
    assert again.latest_offsets(again.initial_offsets(), None) == {"t": {"0": 5}}
    assert run("id-3", 6).latest_offsets({"t": {"0": 5}}, None) == {"t": {"0": 6}}
    latest = run("id-4", 5, startingOffsets="latest")
    begins = latest.latest_offsets(latest.initial_offsets(), None)
    assert latest.tasks(latest.initial_offsets(), begins)[0] == (), "a new query under an old name"


def test_given_a_partition_that_was_never_read_when_its_topic_is_recreated_then_nothing_is_lost(
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


def test_given_topic_ids_out_of_reach_when_started_then_it_is_refused_and_they_stay(
    tmp_path: Path,
) -> None:
    store, elsewhere = TopicIdStore(tmp_path, "s"), tmp_path / "elsewhere"
    assert store.save({tp(0): TopicId("id-1")})
    store.path.rename(elsewhere)
    store.path.symlink_to(store.path)  # even root cannot read it
    feed = feed_with({tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))})
    with pytest.raises(StateError, match=r"^stateDir: \S+ cannot be read: .*; it tells whether a topic was recreated"):
        named_planner(feed, store).tasks({"t": {"0": 0}}, {"t": {"0": 10}})
    elsewhere.rename(store.path)
    with pytest.raises(DataLossError, match="topic t was recreated"):
        named_planner(feed, store).tasks({"t": {"0": 0}}, {"t": {"0": 10}})


def test_given_topic_ids_that_are_broken_or_cannot_be_written_when_used_then_it_is_reported_and_the_query_goes_on(
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


def test_given_a_topic_read_before_its_id_was_reported_when_it_is_recreated_then_it_is_found() -> None:
    feed = feed_with({tp(0): partition_view(0, 10, topic_id=None)})
    plan = planner(feed, startingOffsets="earliest")
    end = plan.latest_offsets(plan.initial_offsets(), None)
    again = {tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}
    feed.show(view_of(again, version=2, generation=Generation(2), first_topic_ids={TopicName("t"): TopicId("id-1")}))
    with pytest.raises(DataLossError, match="was recreated"):
        plan.latest_offsets(end, None)


def test_given_a_topic_recreated_between_plan_and_tasks_when_made_then_they_name_the_id_that_was_planned_on() -> None:
    feed = feed_with({tp(0): partition_view(0, 10, topic_id=TopicId("id-1"))})
    plan = planner(feed)
    start = {"t": {"0": 5}}
    end = plan.latest_offsets(start, None)
    again = {tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}
    feed.show(view_of(again, version=2, generation=Generation(2)))
    ((range_,),) = plan.tasks(start, end)[0]
    assert (range_.end_offset, range_.topic_id) == (10, TopicId("id-1"))


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_given_a_topic_recreated_after_a_query_began_when_planned_then_it_is_found(starting: str) -> None:
    feed = feed_with({tp(0): partition_view(5, 10, topic_id=TopicId("id-1"))})
    plan = planner(feed, startingOffsets=starting)
    start: Mapping[str, Any] = plan.initial_offsets()
    if starting == "latest":
        start = plan.latest_offsets(start, None)
    again = {tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}
    feed.show(view_of(again, version=2, generation=Generation(2)))
    with pytest.raises(DataLossError, match="was recreated"):
        plan.latest_offsets(start, None)


def test_given_a_topic_recreated_before_anything_of_it_was_there_when_planned_then_the_new_one_is_read() -> None:
    feed = feed_with({tp(0): partition_view(0, 0, topic_id=TopicId("id-1"))})
    plan = planner(feed, startingOffsets="earliest")
    start = plan.initial_offsets()
    again = {tp(0): partition_view(0, 50, topic_id=TopicId("id-2"))}
    feed.show(view_of(again, version=2, generation=Generation(2)))
    assert plan.latest_offsets(start, None) == {"t": {"0": 50}}


def test_given_a_bounded_run_whose_topic_is_recreated_before_its_first_plan_when_planned_then_it_is_found() -> None:
    feed = feed_with({tp(0): partition_view(0, 10, topic_id=TopicId("id-1"))})
    plan = planner(feed, startingOffsets="earliest")
    start = plan.initial_offsets()
    plan.fix_target()
    again = {tp(0): partition_view(0, 5, topic_id=TopicId("id-2"))}
    feed.show(view_of(again, version=9, generation=Generation(2)))
    with pytest.raises(DataLossError, match="was recreated"):
        plan.latest_offsets(start, None)


def test_given_ids_of_an_earlier_query_when_a_new_one_begins_at_the_end_then_they_are_replaced(tmp_path: Path) -> None:
    store = TopicIdStore(tmp_path, "s")
    assert store.save({tp(0): TopicId("id-old")})
    feed = feed_with({tp(0): partition_view(0, 10, topic_id=TopicId("id-new"))})
    first = named_planner(feed, store, startingOffsets="latest")
    end = first.latest_offsets(first.initial_offsets(), None)
    assert named_planner(feed, store).latest_offsets(end, None) == end


def test_given_a_recreated_topic_that_is_held_when_planned_then_its_restart_is_not_forgotten() -> None:
    new = {tp(0): partition_view(0, 100, topic_id=TopicId("id-2"))}
    view = view_of(new, version=2, generation=Generation(2))
    start, options = {tp(0): 50}, planner(feed_with(new), onTopicRecreated="restart").options
    state = PlanState(pace=Pace(least=None, delay_seconds=0), guard=LossGuard(topic_ids={tp(0): TopicId("id-1")}))
    for now, held, end in ((0.0, {tp(0): "its leader is slow"}, 50), (1.0, {}, 0)):
        unsure = judge(state.guard, start, view, options, now=0.9, cut_ends={})[1]
        assert (unsure.ask_seconds is None) is (now > 0), "Kafka is asked once a second"
        guard, judged = judge(state.guard, start, view, options, now=now, cut_ends={}, is_fresh=True)
        state, made = plan(replace(state, guard=guard), start, view, options, now=now, judged=judged, held=held)
        assert made.end == {tp(0): end}


def test_given_a_new_topic_read_before_its_id_was_reported_when_it_is_recreated_then_it_is_found() -> None:
    known = partition_view(0, 10)
    feed = feed_with({tp(0): known})
    plan = planner(feed)
    start = {"t": {"0": 10}}
    plan.latest_offsets(start, None)
    new = TopicPartition(TopicName("u"), 0)
    feed.show(view_of({tp(0): known, new: partition_view(0, 50, topic_id=None)}, version=2, generation=Generation(2)))
    end = plan.latest_offsets(start, None)
    assert end == {"t": {"0": 10}, "u": {"0": 50}}
    again = {tp(0): known, new: partition_view(0, 80, topic_id=TopicId("id-2"))}
    first = {new.topic: TopicId("id-1")}
    feed.show(view_of(again, version=3, generation=Generation(3), first_topic_ids=first))
    with pytest.raises(DataLossError, match="was recreated"):
        plan.latest_offsets(end, None)


def test_given_a_suspected_recreation_when_its_new_id_is_reported_later_then_it_is_found_recreated() -> None:
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
    with pytest.raises(DataLossError, match="topic x does not exist any more; x-1 was at offset 4"):
        planner(feed, subscribe="t,x").latest_offsets({"t": {"0": 5}, "x": {"1": 4}}, None)


def test_given_a_gone_topic_is_accepted_when_it_returns_then_it_resumes_at_its_offset() -> None:
    feed = feed_with({tp(0): partition_view(0, 5)}, missing_topics=(TopicName("x"),))
    plan = planner(feed, subscribe="t,x", failOnDataLoss="false")
    start = {"t": {"0": 5}, "x": {"1": 4}}
    assert plan.latest_offsets(start, None) is start
    feed.show(view_of({tp(0): partition_view(0, 5), tp(1, "x"): partition_view(0, 9)}))
    assert plan.latest_offsets(start, None) == {"t": {"0": 5}, "x": {"1": 9}}


def test_given_a_gone_topic_and_a_restart_when_it_returns_then_it_resumes_at_its_offset(
    tmp_path: Path,
) -> None:
    def restarted(feed: ScriptedFeed) -> Planner:
        options = {"subscribe": "t,x", "failOnDataLoss": "false", "startingOffsets": "latest"}
        return named_planner(feed, TopicIdStore(tmp_path, "dau"), **options)

    both = {tp(0): partition_view(0, 5), tp(1, "x"): partition_view(0, 4)}
    with_x = feed_with(both)
    first = restarted(with_x)
    logged = json.dumps(first.latest_offsets({"t": {"0": 5}, "x": {"1": 2}}, None))
    assert json.loads(logged) == {"t": {"0": 5}, "x": {"1": 4}}
    without = feed_with({tp(0): partition_view(0, 7)}, missing_topics=(TopicName("x"),))
    second = restarted(without)
    logged = json.dumps(second.latest_offsets(json.loads(logged), None))
    assert json.loads(logged) == {"t": {"0": 7}, "x": {"1": 4}}, "its place outlives it"
    third = restarted(feed_with({tp(0): partition_view(0, 7), tp(1, "x"): partition_view(0, 9)}))
    end = third.latest_offsets(json.loads(logged), None)
    assert end == {"t": {"0": 7}, "x": {"1": 9}}
    (task,), _, _ = third.tasks(json.loads(logged), end)
    assert [(r.topic_partition, r.start_offset, r.end_offset) for r in task] == [(tp(1, "x"), 4, 9)]


def test_given_unknown_offsets_or_ids_when_judged_then_nothing_is_lost() -> None:
    feed, plan = losing(partition_view(None, None, topic_id=None))
    start = {"t": {"0": 10}}
    assert plan.latest_offsets(start, None) is start
    assert feed.refreshes == 0


def test_given_a_topic_the_subscription_no_longer_names_when_restarted_then_it_is_data_loss() -> None:
    feed = feed_with({tp(0): partition_view(0, 5)})
    with pytest.raises(DataLossError, match="the checkpoint has old-0 at offset 3, but the subscription does not name"):
        planner(feed).latest_offsets({"old": {"0": 3}, "t": {"0": 5}}, None)
