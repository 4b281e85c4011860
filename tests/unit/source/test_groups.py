"""A start at a group's offsets, and commits of the query's to a group."""

import logging
from typing import Any

import pytest

from discovery.core.errors import ConfigError, KafkaUnreachableError
from discovery.spark.source.commits import Committer
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.planning.planner import Planner
from tests.support.fakes.feed import ScriptedFeed, partition_view, tp, view_of

GROUP = {"kafka.group.id": "g"}
COMMITTED = {"startingOffsets": "committed", **GROUP}


def planner(feed: ScriptedFeed, **options: str) -> Planner:
    given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", **options}
    return Planner(feed, parse_options(given), feed.clock)


def feed_of(*ranges: tuple[int | None, int | None]) -> ScriptedFeed:
    return ScriptedFeed(view_of({tp(i): partition_view(begin, end) for i, (begin, end) in enumerate(ranges)}))


def begin(plan: Planner) -> dict[str, Any]:
    return dict(plan.latest_offsets(plan.initial_offsets(), None))


# -- startingOffsets=committed --------------------------------------------------------------------------------------


def test_given_a_group_when_started_at_committed_then_each_partition_begins_where_it_stands() -> None:
    feed = feed_of((0, 9), (0, 9))
    feed.groups["g"] = {tp(0): 4, tp(1): 9}
    assert begin(planner(feed, **COMMITTED)) == {"t": {"0": 4, "1": 9}}


def test_given_a_silent_leader_when_started_at_committed_then_the_groups_word_is_taken() -> None:
    feed = feed_of((0, 9), (None, None))
    feed.groups["g"] = {tp(0): 4, tp(1): 5}
    assert begin(planner(feed, **COMMITTED)) == {"t": {"0": 4, "1": 5}}


def test_given_offsets_that_cannot_be_read_when_there_is_no_fallback_then_each_is_named_with_the_remedy() -> None:
    feed = feed_of((0, 9), (5, 9), (0, 9), (0, 9))
    feed.groups["g"] = {tp(1): 3, tp(2): 20, tp(3): 9}
    with pytest.raises(ConfigError) as error:
        planner(feed, **COMMITTED).initial_offsets()
    assert str(error.value) == (
        "startingOffsets=committed: group g has no offset to begin at for t-0 (nothing committed), "
        "t-1 (committed 3, but it begins at 5), t-2 (committed 20, but it ends at 9); "
        "set startingOffsetsFallback to earliest or latest, or give offsets as JSON"
    )


@pytest.mark.parametrize(("fallback", "expected"), [("earliest", [2, 5, 9]), ("latest", [8, 9, 9])])
def test_given_a_fallback_when_offsets_cannot_be_read_then_only_those_partitions_take_it_and_are_named(
    fallback: str, expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    feed = feed_of((2, 8), (5, 9), (0, 9))
    feed.groups["g"] = {tp(1): 3, tp(2): 9}
    with caplog.at_level(logging.WARNING):
        start = begin(planner(feed, **COMMITTED, startingOffsetsFallback=fallback))
    assert start == {"t": {str(i): offset for i, offset in enumerate(expected)}}
    assert "t-0 (nothing committed), t-1 (committed 3, but it begins at 5)" in caplog.text
    assert "t-2" not in caplog.text


def test_given_a_restart_before_the_first_batch_when_the_group_moved_on_then_the_replay_is_as_planned() -> None:
    feed = feed_of((0, 9))
    feed.groups["g"] = {tp(0): 4}
    end = begin(planner(feed, **COMMITTED))
    feed.groups["g"] = {tp(0): 7}
    again = planner(feed, **COMMITTED)
    assert again.tasks(again.initial_offsets(), end)[0] == ()
    assert again.latest_offsets(end, None) == {"t": {"0": 9}}


def test_given_a_coordinator_that_is_away_when_started_at_committed_then_it_is_waited_for_and_then_named() -> None:
    feed = feed_of((0, 9))
    feed.refusal = "committed offsets of group 'g': no answer in time"
    before = feed.clock.monotonic()
    with pytest.raises(KafkaUnreachableError, match="group 'g': no answer"):
        planner(feed, **COMMITTED, startupTimeout="30s").initial_offsets()
    assert 30 <= feed.clock.monotonic() - before < 50


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "committed"}, "startingOffsets=committed needs the name of a consumer group"),
        ({"commitOffsets": "true"}, "kafka.group.id: it is missing; commitOffsets=true needs"),
        ({**GROUP, "commitOffsets": "yes"}, "commitOffsets: 'yes' is not one of true, false"),
        ({**COMMITTED, "startingOffsetsFallback": "first"}, "'first' is not one of error, earliest, latest"),
    ],
)
def test_given_a_mistake_when_parsed_then_one_line_names_it(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_options({"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", **options})
    assert text in str(error.value)


# -- commit-back ----------------------------------------------------------------------------------------------------


def test_given_batches_when_spark_asks_for_the_next_then_what_it_recorded_is_committed_and_the_start_is_not() -> None:
    feed = feed_of((0, 9))
    plan = planner(feed, **GROUP, commitOffsets="true", startingOffsets="earliest")
    assert plan.committer is not None
    end = plan.latest_offsets(plan.initial_offsets(), None)
    assert feed.commits == []
    assert plan.latest_offsets(end, None) is end
    assert plan.committer.flush(10)
    assert feed.groups["g"] == {tp(0): 9}
    plan.committer.stop()


def test_given_a_restart_when_spark_asks_first_then_the_commit_the_last_run_did_not_make_is_made() -> None:
    feed = feed_of((0, 9), (None, None))
    plan = planner(feed, **GROUP, commitOffsets="true")
    assert plan.committer is not None
    plan.latest_offsets({"t": {"0": 5, "1": -1}}, None)
    assert plan.committer.flush(10)
    assert feed.groups["g"] == {tp(0): 5}
    plan.committer.stop()


def test_given_a_process_without_threads_when_committing_then_the_query_goes_on_and_its_end_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    feed = feed_of((0, 9))
    committer = Committer(feed, "g", feed.clock)
    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", refuse)
        committer.stands({tp(0): 5})
    assert committer.flush(10)
    committer.stop()
    assert feed.groups["g"] == {tp(0): 5}


def test_given_no_change_when_asked_again_and_again_then_nothing_is_committed_twice() -> None:
    feed = feed_of((0, 9))
    committer = Committer(feed, "g", feed.clock)
    committer.stands({tp(0): 5})
    assert committer.flush(10)
    committer.stands({tp(0): 5})
    assert committer.flush(10)
    committer.stop()
    assert feed.commits == [{tp(0): 5}]


def test_given_an_idle_partition_when_an_hour_has_passed_then_its_offset_is_committed_again_before_brokers_forget() -> (
    None
):
    feed = feed_of((0, 9), (0, 9))
    committer = Committer(feed, "g", feed.clock)
    committer.stands({tp(0): 5, tp(1): 6})
    assert committer.flush(10)
    feed.clock.advance(3_600)
    committer.stands({tp(0): 7, tp(1): 6})
    assert committer.flush(10)
    committer.stop()
    assert feed.commits[-1] == {tp(0): 7, tp(1): 6}


def test_given_a_group_that_refuses_when_committing_then_it_is_counted_said_once_and_over_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = feed_of((0, 9))
    committer = Committer(feed, "g", feed.clock)
    feed.refusal = "group g has members of its own"
    with caplog.at_level(logging.WARNING):
        assert not committer.commit({tp(0): 5})
        assert not committer.commit({tp(0): 6})
        feed.refusal = None
        assert committer.commit({tp(0): 6})
    assert caplog.text.count("offsets are not committed, the query goes on: group g has members") == 1
    assert caplog.text.count("committed again") == 1
    assert (committer.report.succeeded, committer.report.failed, committer.report.error) == (1, 2, "")


def test_given_a_partition_that_is_gone_when_committing_then_the_others_are_committed() -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 9), tp(1): partition_view(0, 9, gone=True)}))
    assert Committer(feed, "g", feed.clock).commit({tp(0): 5, tp(1): 5, tp(2): 5})
    assert feed.commits == [{tp(0): 5}]
