"""What a batch read plans over a scripted feed: all of it, or an error that says what is missing."""

import logging
from typing import cast

import pytest

from discovery.core.errors import ConfigError, DataLossError, KafkaUnreachableError
from discovery.core.model import TopicName
from discovery.spark.source.batch import BatchPartition, KafkaDiscoveryReader, plan_batch
from discovery.spark.source.options.parse import parse_options
from pyspark_kafka_discovery import DefaultSource
from tests.support.fakes.feed import ScriptedFeed, partition_view, tp, view_of

OPTIONS = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t"}


def planned(feed: ScriptedFeed, **options: str) -> list[tuple[int, int, int]]:
    tasks, brokers = plan_batch(feed, parse_options({**OPTIONS, **options}), feed.clock)
    assert [str(address) for address in brokers] == ["b1:9092"]
    return sorted((r.topic_partition.partition, r.start_offset, r.end_offset) for task in tasks for r in task)


def two_partitions() -> ScriptedFeed:
    return ScriptedFeed(
        view_of({tp(0): partition_view(2, 9), tp(1): partition_view(0, 0), tp(2): partition_view(0, 5)})
    )


def test_given_no_bounds_when_planned_then_all_there_is_at_a_fresh_answer_is_read() -> None:
    feed = two_partitions()
    feed.refreshed.append(view_of({tp(0): partition_view(2, 12), tp(2): partition_view(0, 5)}))
    assert planned(feed) == [(0, 2, 12), (2, 0, 5)]


def test_given_a_pattern_that_matches_nothing_when_planned_then_nothing_is_read() -> None:
    feed = ScriptedFeed(view_of({}))
    options = parse_options({"kafka.bootstrap.servers": "b1:9092", "subscribePattern": "nothing"})
    assert plan_batch(feed, options, feed.clock)[0] == ()


def test_given_many_records_of_one_leader_when_planned_then_its_partitions_spread_over_tasks() -> None:
    feed = ScriptedFeed(view_of({tp(i): partition_view(0, 50_000) for i in range(4)}))
    tasks, _ = plan_batch(feed, parse_options(OPTIONS), feed.clock)
    assert len(tasks) == 4


def test_given_a_partition_that_cannot_be_read_when_the_time_is_up_then_the_read_fails_and_names_it() -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 9), tp(1): partition_view(0, None, leader=None)}))
    with pytest.raises(KafkaUnreachableError) as error:
        planned(feed)
    assert "a batch read is complete or fails: waited 60 s for t-1 (it has no leader)" in str(error.value)


def test_given_a_partition_whose_leader_returns_when_planned_then_it_is_waited_for() -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 9), tp(1): partition_view(0, None)}))
    feed.script.extend([feed.view(), view_of({tp(0): partition_view(0, 9), tp(1): partition_view(0, 4)})])
    assert planned(feed) == [(0, 0, 9), (1, 0, 4)]


def test_given_a_missing_topic_when_planned_then_the_read_fails_although_others_are_there() -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 9)}, missing_topics=(TopicName("x"),)))
    with pytest.raises(ConfigError, match="subscribe: topic x does not exist; create it or correct the subscription"):
        planned(feed, subscribe="t,x")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": '{"t":{"0":1,"1":0,"2":0}}'}, "startingOffsets: t-0 has no offset 1, it holds 2 to 9"),
        ({"endingOffsets": '{"t":{"0":12,"1":0,"2":0}}'}, "endingOffsets: t-0 has no offset 12, it holds 2 to 9"),
    ],
)
def test_given_offsets_that_are_not_there_when_planned_then_they_are_named_or_accepted(
    options: dict[str, str], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLossError, match="correct the option") as error:
        planned(two_partitions(), **options)
    assert text in str(error.value)
    with caplog.at_level(logging.WARNING):
        assert planned(two_partitions(), **options, failOnDataLoss="false")[0] == (0, 2, 9)
    assert "data loss accepted (failOnDataLoss=false): t-0 holds 2 to 9" in caplog.text


def test_given_partitions_that_are_not_there_when_planned_then_both_sides_are_named() -> None:
    with pytest.raises(ConfigError, match=r"endingOffsets: .* not named: t-1, t-2; named but not there: t-7"):
        planned(two_partitions(), endingOffsets='{"t":{"0":5,"7":5}}')


def test_given_a_start_behind_the_end_when_planned_then_both_options_are_named() -> None:
    feed = two_partitions()
    feed.by_time = {tp(0): 8, tp(1): -1, tp(2): -1}
    options = {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}
    with pytest.raises(ConfigError, match="startingTimestamp: t-0 begins at offset 8, behind its end 5 in"):
        planned(feed, **options, endingOffsets='{"t":{"0":5,"1":0,"2":5}}')


def test_given_records_younger_than_the_first_answer_when_found_by_time_then_they_are_no_start_behind_the_end() -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 9)}))
    feed.refreshed.extend([feed.view(), view_of({tp(0): partition_view(0, 14)})])
    feed.by_time = {tp(0): 12}
    assert planned(feed, startingTimestamp="5") == [(0, 12, 14)]


def test_given_options_of_streams_and_a_name_when_read_at_once_then_they_are_reported_and_no_state_is_held() -> None:
    given = {**OPTIONS, "sourceId": "mine", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "5"}
    reader = KafkaDiscoveryReader(parse_options(given))
    assert reader._options.source_id is None
    assert [note.partition(" has")[0] for note in reader._options.notes] == [
        "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "sourceId",
    ]  # fmt: skip


def test_given_a_name_when_read_at_once_then_a_task_gives_up_after_stall_timeout_since_nobody_ends_its_ranges() -> None:
    reader = KafkaDiscoveryReader(
        parse_options({**OPTIONS, "sourceId": "mine", "stallTimeout": "7s"}), lambda _: two_partitions()
    )
    settings = {partition.settings.stall_seconds for partition in cast("list[BatchPartition]", reader.partitions())}
    assert settings == {7.0}


def test_given_a_batch_reader_when_planned_then_its_feed_is_stopped_whatever_happens() -> None:
    feed = two_partitions()
    reader = KafkaDiscoveryReader(parse_options(OPTIONS), lambda _: feed)
    (task,) = reader.partitions()
    assert (feed.started, feed.stopped) == (1, 1)
    assert "b1" in repr(task)
    broken = KafkaDiscoveryReader(parse_options({**OPTIONS, "endingOffsets": '{"t":{"0":12}}'}), lambda _: feed)
    with pytest.raises(ConfigError):
        broken.partitions()
    assert feed.stopped == 2


def test_given_ends_that_cannot_be_when_a_reader_is_asked_for_then_it_is_refused() -> None:
    with pytest.raises(ConfigError, match="latest is no start"):
        (source := DefaultSource({**OPTIONS, "startingOffsets": "latest"})).reader(source.schema())
    with pytest.raises(ConfigError, match=r"remove \.schema"):
        DefaultSource(OPTIONS).reader(DefaultSource({**OPTIONS, "includeHeaders": "true"}).schema())
