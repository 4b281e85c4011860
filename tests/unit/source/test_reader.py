"""The border to Spark: what crosses it, and what never may end a query."""

import inspect
import json
import logging
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from discovery.core.errors import BUG_PHRASE, ConfigError, DataLossError, KafkaUnreachableError, StateError
from discovery.core.model import ClusterId
from discovery.feed.base import PartitionFeed, SourceFeed
from discovery.spark.source.cuts.left_behind import RefuseStart
from discovery.spark.source.options.parse import SourceOptions, parse_options
from discovery.spark.source.reader import KafkaDiscoveryStreamReader
from pyspark_kafka_discovery import DefaultSource
from tests.support.fakes.feed import COLD, ScriptedFeed, partition_view, tp, view_of

OPTIONS = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", "startingOffsets": "earliest"}
START = {"t": {"0": 0}}
NORMAL = ReadMaxRows(2**63 - 1)


@pytest.fixture(autouse=True)
def _unchanged_environment() -> Iterator[None]:
    yield
    os.environ.pop("SPARK_HIDE_TRACEBACK", None)


def nothing_waits(_options: SourceOptions, _feed: PartitionFeed) -> RefuseStart:
    """No ledger holds a cut; the brokers of these tests do not exist."""
    return lambda _first, _last: {}


def reader_over(feed: ScriptedFeed, **options: str) -> KafkaDiscoveryStreamReader:
    def factory(options: SourceOptions) -> SourceFeed:
        assert options.bootstrap
        return feed

    return KafkaDiscoveryStreamReader(
        parse_options({**OPTIONS, **options}), factory, tell=lambda _: None, refusing=nothing_waits
    )


def test_given_a_source_when_made_and_pickled_then_nothing_was_asked_or_started() -> None:
    source = pickle.loads(pickle.dumps(DefaultSource(OPTIONS)))  # noqa: S301 - Spark pickles it
    reader = source.streamReader(source.schema())
    assert pickle.loads(pickle.dumps(reader))._planner is None  # noqa: S301


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        (OPTIONS, DefaultSource({**OPTIONS, "includeHeaders": "true"}).schema(), "remove .schema(...)"),
        ({**OPTIONS, "endingOffsets": "latest"}, DefaultSource(OPTIONS).schema(), "endingOffsets: a stream has no end"),
    ],
)
def test_given_what_no_stream_can_honour_when_spark_asks_for_the_start_then_one_line_refuses_it(
    options: dict[str, str], schema: StructType, text: str
) -> None:
    reader = pickle.loads(pickle.dumps(DefaultSource(options).streamReader(schema)))  # noqa: S301 - Spark pickles it
    for call in (
        reader.initialOffset,
        reader.prepareForTriggerAvailableNow,
        lambda: reader.latestOffset(START, NORMAL),
    ):
        with pytest.raises(ConfigError) as error:
            call()
        assert text in str(error.value)


def test_given_spark_counts_parameters_when_it_looks_then_latest_offset_takes_two() -> None:
    reader = reader_over(ScriptedFeed(view_of({})))
    assert list(inspect.signature(reader.latestOffset).parameters) == ["start", "limit"]


def test_given_a_rate_limit_when_all_is_asked_for_then_all_is_planned() -> None:
    reader = reader_over(ScriptedFeed(view_of({tp(0): partition_view(0, 50)})), maxOffsetsPerTrigger="10")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert reader.latestOffset(START, limit) == {"t": {"0": 10}}
    assert reader.latestOffset(START, ReadAllAvailable()) == {"t": {"0": 50}}


def test_given_no_limit_when_spark_asks_for_the_default_then_it_is_not_what_trigger_once_says() -> None:
    reader = reader_over(ScriptedFeed(view_of({tp(0): partition_view(0, 50)})))
    assert reader.getDefaultReadLimit() == NORMAL
    assert reader.latestOffset(START, NORMAL) == {"t": {"0": 50}}


def test_given_a_restart_with_trigger_once_when_the_feed_is_cold_then_it_waits_for_a_fresh_answer() -> None:
    feed = ScriptedFeed(COLD)
    feed.script.append(view_of({tp(0): partition_view(0, 7)}))
    feed.refreshed.append(view_of({tp(0): partition_view(0, 9)}))
    assert reader_over(feed).latestOffset(START, ReadAllAvailable()) == {"t": {"0": 9}}
    assert feed.refreshes == 1


@pytest.mark.expects_bug
def test_given_a_bug_when_trigger_once_meets_it_then_it_fails_rather_than_end_as_a_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 50)}))
    monkeypatch.setattr(feed, "view", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reader_over(feed).latestOffset(START, ReadAllAvailable())


def test_given_group_options_when_tasks_are_made_then_the_id_goes_before_the_prefix() -> None:
    def group(**options: str) -> str:
        feed = ScriptedFeed(view_of({tp(0): partition_view(0, 50)}))
        (task,) = reader_over(feed, **options).partitions(START, {"t": {"0": 50}})
        return str(task.settings.client_options["group.id"])  # type: ignore[attr-defined]

    assert group().startswith("spark-kafka-discovery-")
    assert group(groupIdPrefix="mine").startswith("mine-")
    assert group(**{"groupIdPrefix": "mine", "kafka.group.id": "ours"}) == "ours"


def test_given_a_plan_when_cut_into_tasks_then_each_carries_ranges_brokers_and_settings() -> None:
    reader = reader_over(ScriptedFeed(view_of({tp(0): partition_view(0, 50)})), includeHeaders="true")
    (task,) = reader.partitions(START, {"t": {"0": 50}})
    copied = pickle.loads(pickle.dumps(task))  # noqa: S301
    assert [str(address) for address in copied.brokers] == ["b1:9092"]
    assert copied.settings.include_headers
    assert copied.settings.stall_seconds == 120.0, "the default of stallTimeout"
    assert copied.settings.client_options["isolation.level"] == "read_uncommitted"
    assert reader.partitions(START, START) == []


def test_given_a_slow_leader_when_tasks_are_made_then_its_ranges_are_apart_and_their_client_waits_longer() -> None:
    views = {tp(0): partition_view(0, 9), tp(1): partition_view(0, 9, leader=2, answer_seconds=20.0)}
    reader = reader_over(ScriptedFeed(view_of(views)), **{"kafka.default.api.timeout.ms": "90000"})
    waits = {
        tuple(r.topic_partition.partition for r in task.ranges): task.settings.client_options.get("socket.timeout.ms")  # type: ignore[attr-defined]
        for task in reader.partitions({"t": {"0": 0, "1": 0}}, {"t": {"0": 9, "1": 9}})
    }
    assert waits == {(0,): None, (1,): "90000"}


@pytest.mark.expects_bug
def test_given_a_bug_when_latest_offset_meets_it_then_the_query_goes_on_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 50)}))
    reader = reader_over(feed)
    reader.initialOffset()
    monkeypatch.setattr(feed, "view", lambda: 1 / 0)
    with caplog.at_level(logging.ERROR):
        assert reader.latestOffset(START, NORMAL) is START
        assert reader.reportLatestOffset() is None
    assert BUG_PHRASE in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.expects_bug
def test_given_a_bug_when_a_bounded_run_meets_it_then_it_fails_rather_than_end_as_a_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 50)}))
    reader = reader_over(feed)
    reader.prepareForTriggerAvailableNow()
    monkeypatch.setattr(feed, "view", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reader.latestOffset(START, NORMAL)


def test_given_lost_records_when_spark_asks_then_the_error_is_shown_without_a_stack() -> None:
    reader = reader_over(ScriptedFeed(view_of({tp(0): partition_view(30, 50)})))
    with pytest.raises(DataLossError):
        reader.latestOffset(START, NORMAL)
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"


def test_given_nobody_lives_when_starting_then_the_error_crosses_as_it_is() -> None:
    feed = ScriptedFeed(view_of({}, bootstrap=()))
    with pytest.raises(KafkaUnreachableError, match="startupTimeout: after 1 s no living broker"):
        reader_over(feed, startupTimeout="1s").initialOffset()


def test_given_the_progress_when_reported_then_it_has_the_known_ends() -> None:
    reader = reader_over(ScriptedFeed(view_of({tp(0): partition_view(0, 50), tp(1): partition_view(0, None)})))
    assert json.dumps(reader.reportLatestOffset()) == '{"t": {"0": 50}}'


def test_given_a_started_reader_when_stopped_then_its_feed_stops() -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 50)}))
    reader = reader_over(feed)
    reader.stop()
    reader.initialOffset()
    reader.commit(START)
    reader.stop()
    assert (feed.started, feed.stopped) == (1, 1)


def test_given_a_named_source_when_batches_are_missing_in_sparks_log_then_one_line_refuses_asynchronous_progress(
    tmp_path: Path,
) -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 50)}))
    reader = reader_over(feed, sourceId="s", stateDir=str(tmp_path), maxOffsetsPerTrigger="10")
    offsets = [reader.initialOffset()]
    try:
        for logged in (True, True, False):
            offsets.append(reader.latestOffset(offsets[-1], ReadMaxRows(10)))
            if logged:
                reader.commit(json.loads(json.dumps(offsets[-2])))
                reader.partitions(*offsets[-2:])
        with pytest.raises(ConfigError, match="asyncProgressTrackingEnabled: true leaves batches out") as error:
            reader.partitions(*offsets[-2:])
        assert "\n" not in str(error.value)
    finally:
        reader.stop()


def test_given_a_source_without_a_name_when_batches_are_missing_in_sparks_log_then_it_goes_on() -> None:
    reader = reader_over(ScriptedFeed(view_of({tp(0): partition_view(0, 50)})))
    assert reader.partitions(START, {"t": {"0": 10}})
    assert reader.partitions({"t": {"0": 10}}, {"t": {"0": 20}})


MOVED = {"left_cluster": ClusterId("old"), "cluster_id": ClusterId("new")}


def test_given_a_new_query_or_one_with_a_checkpoint_when_the_feed_is_made_then_it_knows_which() -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 50)}))
    made: list[bool] = []

    def reader() -> KafkaDiscoveryStreamReader:
        def factory(options: SourceOptions) -> SourceFeed:
            made.append(options.begins)
            return feed

        return KafkaDiscoveryStreamReader(parse_options(OPTIONS), factory, tell=lambda _: None, refusing=nothing_waits)

    bounded = reader()
    bounded.prepareForTriggerAvailableNow()
    assert not made, "the next call shows whether the query is new"
    bounded.initialOffset()
    reader().latestOffset(START, NORMAL)
    reader().partitions(START, {"t": {"0": 50}})
    assert made == [True, False, False]


def test_given_a_list_that_moved_when_a_new_query_begins_then_it_warns_and_reads_the_new_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 50)}, **MOVED))
    reader = reader_over(feed)
    assert reader.latestOffset(reader.initialOffset(), NORMAL) == {"t": {"0": 50}}
    assert "every listed address belongs to cluster new, but the saved state says old" in caplog.text
    assert feed.acked, "the new view is kept from here on"


def test_given_a_list_that_moved_when_the_first_batch_is_replayed_then_it_is_refused_and_nothing_is_kept() -> None:
    feed = ScriptedFeed(view_of({tp(0): partition_view(0, 50)}, **MOVED))
    reader = reader_over(feed)
    with pytest.raises(StateError, match=r"the checkpoint has planned its first batch; .*`state reset`") as error:
        reader.partitions(reader.initialOffset(), {"t": {"0": 20}})
    assert "\n" not in str(error.value)
    assert not feed.acked
