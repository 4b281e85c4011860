"""The lanes protocol on real brokers, without Spark: replays, zombies, refusals, bad records."""

import hashlib
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from discovery.cli.app import app
from discovery.core.errors import (
    ConfigError,
    KafkaUnreachableError,
    SinkRefusedError,
    StateError,
    TransactionError,
    TransactionRefusedError,
)
from discovery.core.model import BrokerAddress
from discovery.kafka.topics import TopicAdmin
from discovery.kafka.transactions import Transaction
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from discovery.spark.sink import checks, renewal
from discovery.spark.sink import ledger as ledgers
from discovery.spark.sink import operator as operate
from discovery.spark.sink.lanes import RETENTION_SECONDS
from discovery.spark.sink.ledger import SinkLedger, commit_marker, recording, transaction_of, until
from discovery.spark.sink.marker import CLOSED, Marker
from discovery.spark.sink.options import NAMED_TOPIC, parse_options
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.preflight import forget, prepare
from discovery.spark.sink.writer import LaneReport, LaneWriter, Outcome, confirm
from tests.support.helpers import commit, eventually, numbered, produce
from tests.support.service import serving, wait_for
from tests.support.sink import Sink, batches, committed_records, committed_values

pytestmark = pytest.mark.kafka
SECONDS = 30.0


@pytest.fixture
def sink(kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path) -> Sink:
    kafka_cluster.create_topic(topic_name, partitions=3, replication_factor=3)
    return Sink(kafka_cluster, tmp_path, sink_id=topic_name, topic=topic_name)


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalKafka]:
    """One broker that keeps offsets for an hour and aborts a transaction after 20 s."""
    limits = {"transaction.max.timeout.ms": "20000", "offsets.retention.minutes": "60"}
    with LocalKafka(ClusterSettings(brokers=1, extra_properties=limits)) as cluster:
        cluster.create_topic("t", partitions=1, replication_factor=1)
        yield cluster


def marker(sink: Sink, batch_id: int) -> Marker:
    return Marker(
        query_id=sink.query_id, batch_id=batch_id, lanes=sink.lanes, rows=1, fingerprint="", attempt="z",
        wall_seconds=1, generation=1,
    )  # fmt: skip


def test_given_a_batch_when_written_and_replayed_then_its_records_are_there_once(sink: Sink) -> None:
    first = sink.write(0, numbered(10))
    assert first.outcome is Outcome.WRITTEN
    again = sink.write(0, numbered(10))
    assert (again.outcome, again.fingerprint) == (Outcome.KEPT, first.fingerprint)
    sink.confirm(again)
    sink.confirm(again)
    assert sink.write(1, ["later"]).outcome is Outcome.WRITTEN
    assert sink.visible() == sorted([*numbered(10), "later"])


def test_given_an_attempt_that_stopped_before_its_commit_when_retried_then_only_the_retry_is_visible(
    sink: Sink,
) -> None:
    plan = sink.plan()
    zombie, deadline = transaction_of(plan, 0), until(SECONDS)
    zombie.fence(deadline)
    zombie.begin()
    zombie.produce(sink.topic, partition=0, key=None, value=b"zombie", headers=None, deadline=deadline)
    SinkLedger(plan).attach(zombie, 0, marker(sink, 0), deadline)
    status = operate.look(plan, timeout_seconds=SECONDS)
    assert [lane.open_transaction for lane in status.lanes] == [True]
    report = sink.write(0, ["alive"])
    with pytest.raises(TransactionError):
        zombie.commit(until(SECONDS))
    sink.confirm(report)
    assert sink.visible() == ["alive"]
    assert not operate.look(plan, timeout_seconds=SECONDS).lanes[0].open_transaction


def test_given_an_open_transaction_when_markers_are_read_then_only_a_stable_reading_waits_for_its_end(
    sink: Sink,
) -> None:
    plan = sink.plan()
    pending, deadline = transaction_of(plan, 0), until(SECONDS)
    pending.fence(deadline)
    pending.begin()
    SinkLedger(plan).attach(pending, 0, marker(sink, 0), deadline)
    assert SinkLedger(plan, stable=False).markers([0], timeout_seconds=SECONDS) == {}
    with pytest.raises(TransactionError, match="in time"):
        SinkLedger(plan).markers([0], timeout_seconds=1)
    pending.commit(deadline)
    assert SinkLedger(plan).markers([0], timeout_seconds=SECONDS)[0].attempt == "z"


def test_given_an_open_transaction_when_ended_by_command_then_later_records_are_held_back_no_longer(sink: Sink) -> None:
    killed, deadline = transaction_of(sink.plan(), 0), until(SECONDS)
    killed.fence(deadline)
    killed.begin()
    killed.produce(sink.topic, partition=0, key=None, value=b"killed", headers=None, deadline=deadline)
    killed.flush(deadline)
    servers = sink.cluster.bootstrap_servers
    produce(servers, sink.topic, "later", partition=0)
    with pytest.raises(AssertionError, match="is a transaction open"):
        committed_values(servers, sink.topic, deadline_seconds=1)
    common = ["--sink", sink.sink_id, "--bootstrap", servers, "--state-dir", str(sink.folder)]
    CliRunner().invoke(app, ["sink", "abort-lingering", *common], catch_exceptions=False)
    assert sink.visible() == ["later"]
    assert sorted(map(str, committed_values(servers, sink.topic, isolation="read_uncommitted"))) == ["killed", "later"]


def test_given_several_lanes_when_one_reports_without_its_marker_then_the_batch_is_not_confirmed(sink: Sink) -> None:
    sink.lanes, sink.run = 2, "run-1"
    sink.confirm(sink.write(0, ["a"], lane=0), sink.write(0, [], lane=1))
    reports = [sink.write(1, ["b"], lane=0), sink.write(1, [], lane=1)]
    assert [report.outcome for report in reports] == [Outcome.WRITTEN, Outcome.EMPTY]
    lying = replace(reports[1], outcome=Outcome.WRITTEN)
    with pytest.raises(TransactionError, match=r"lane 1: reported batch 1, but its marker is Marker\(.*batch_id=0"):
        sink.confirm(reports[0], lying)
    sink.confirm(*reports)
    assert sink.visible() == ["a", "b"]


def test_given_a_lane_that_a_replay_leaves_empty_when_its_first_execution_goes_on_then_it_is_fenced(sink: Sink) -> None:
    """A query that is not deterministic: its first run gave the row to lane 0, the next one gives it to lane 1."""
    sink.lanes = 2
    plan = sink.plan()
    first, deadline = transaction_of(plan, 0), until(SECONDS)
    first.fence(deadline)
    first.begin()
    first.produce(sink.topic, partition=0, key=None, value=b"a", headers=None, deadline=deadline)
    reports = [sink.write(0, [], lane=0), sink.write(0, ["a"], lane=1)]
    assert [(report.outcome, report.rows) for report in reports] == [(Outcome.WRITTEN, 0), (Outcome.WRITTEN, 1)]
    sink.confirm(*reports)
    with pytest.raises(TransactionError):
        first.commit(until(SECONDS))
    assert sink.visible() == ["a"]


def test_given_a_batch_that_this_run_began_when_a_lane_is_empty_then_it_costs_no_transaction(sink: Sink) -> None:
    sink.lanes, sink.run = 2, "run-1"
    assert sink.write(0, [], lane=1).outcome is Outcome.WRITTEN, "another run may have begun it"
    sink.confirm(sink.write(0, ["a"], lane=0), sink.write(0, [], lane=1))
    assert sink.write(1, [], lane=1).outcome is Outcome.EMPTY
    sink.confirm(sink.write(1, ["b"], lane=0), sink.write(1, [], lane=1))
    sink.run = "run-2"
    assert sink.write(2, [], lane=1).outcome is Outcome.WRITTEN


def test_given_a_complete_batch_without_records_when_its_replay_has_some_then_it_is_refused(sink: Sink) -> None:
    sink.confirm(sink.write(0, []))
    with pytest.raises(SinkRefusedError, match=r"batch 0 is committed with 0 records, its replay has 1:"):
        sink.write(0, ["a"])
    sink.more = {"onMismatch": "keep-committed"}
    kept = sink.write(0, ["a"])
    assert (kept.outcome, kept.others) == (Outcome.KEPT, 1)
    sink.more = {"onMismatch": "rewrite"}
    for outcome in (Outcome.WRITTEN, Outcome.KEPT):
        report = sink.write(0, ["a"])
        assert report.outcome is outcome
        sink.confirm(report)
    assert sink.visible() == ["a"]


def test_given_a_lane_without_records_of_a_complete_batch_when_a_replay_has_some_then_it_is_refused(sink: Sink) -> None:
    sink.lanes, sink.run = 2, "run-1"
    for batch_id in (0, 1):
        sink.confirm(sink.write(batch_id, [f"a{batch_id}"], lane=0), sink.write(batch_id, [], lane=1))
    assert sink.write(1, [], lane=1).outcome is Outcome.KEPT
    sink.run = "run-2"
    assert sink.write(1, [], lane=1).outcome is Outcome.KEPT
    with pytest.raises(SinkRefusedError, match=r"lane 1: batch 1 is committed with 0 records, its replay has 1:"):
        sink.write(1, ["b"], lane=1)


def test_given_records_that_an_empty_report_leaves_out_when_confirmed_then_the_batch_runs_again(sink: Sink) -> None:
    empty = sink.write(0, [])
    written = sink.write(0, ["a"])
    with pytest.raises(TransactionError, match="lane 0: reported no records of batch 0, and another execution of it"):
        sink.confirm(empty)
    sink.confirm(written)


def test_given_one_sink_for_two_outputs_when_the_second_is_written_then_it_is_refused(sink: Sink) -> None:
    other = f"{sink.topic}-other"
    sink.cluster.create_topic(other, partitions=1, replication_factor=3)
    sink.confirm(sink.write(0, ["a"]))
    first, sink.topic = sink.topic, other
    said = f"sinkId in use: batch 0 of it went to topic {first}, this is for topic {other}; give each output a sinkId"
    for values in (["a"], ["b"]):
        with pytest.raises(SinkRefusedError, match=said):
            sink.write(0, values)
    sink.confirm(sink.write(1, ["b"]))
    assert sink.visible() == ["b"]


def test_given_records_kept_instead_of_a_replays_when_confirmed_then_they_are_counted_logged_and_shown(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("kafka_discovery.sink")
    log.addHandler(caplog.handler)  # whatever a command has set above it
    caplog.set_level(logging.WARNING, log.name)
    sink.more = {"onMismatch": "keep-committed"}
    sink.confirm(sink.write(0, ["a"]))
    sink.confirm(sink.write(0, ["b", "c"]))
    log.removeHandler(caplog.handler)
    assert "batch 0 is committed with other records than its replay has; they were kept, and 2 records" in caplog.text
    common = ["--sink", sink.sink_id, "--bootstrap", sink.cluster.bootstrap_servers, "--state-dir", str(sink.folder)]
    shown = CliRunner().invoke(app, ["sink", "status", *common])
    assert "1 replay had other records, which were not written" in shown.output
    assert json.loads(CliRunner().invoke(app, ["sink", "status", *common, "--json"]).output)["kept"] == 1


@pytest.mark.parametrize(
    ("change", "batch_id", "said"),
    [({"query_id": "other"}, 2, "sinkId in use"), ({}, 0, "stale batch"), ({"lanes": 2}, 1, "lane count changed")],
)
def test_given_a_used_sink_when_another_writes_then_it_is_refused_before_any_output(
    sink: Sink, change: dict[str, object], batch_id: int, said: str
) -> None:
    sink.confirm(sink.write(0, ["a"]))
    sink.write(1, ["b"])
    for name, value in change.items():
        setattr(sink, name, value)
    with pytest.raises(SinkRefusedError, match=said):
        sink.write(batch_id, ["c"])
    assert sink.visible() == ["a", "b"]


def test_given_a_complete_batch_when_the_number_of_lanes_changes_then_it_goes_on(sink: Sink) -> None:
    sink.confirm(sink.write(0, ["a"]))
    sink.lanes = 2
    sink.confirm(sink.write(1, ["b"], lane=0), sink.write(1, ["c"], lane=1))
    assert sink.write(1, ["c"], lane=1).outcome is Outcome.KEPT
    sink.lanes = 1
    assert sink.write(1, ["b", "c"]).outcome is Outcome.KEPT
    assert sink.visible() == ["a", "b", "c"]


def test_given_a_driver_that_died_while_it_changed_the_lanes_when_started_again_then_it_is_done(sink: Sink) -> None:
    sink.confirm(sink.write(0, ["a"]))
    plan = sink.plan()
    ledger = SinkLedger(plan)
    control = ledger.control(timeout_seconds=SECONDS)
    assert control is not None
    ledger.write_control(replace(control, lanes=CLOSED + 1), timeout_seconds=SECONDS)
    with pytest.raises(TransactionError, match="lane count changing: a start is changing the number of lanes"):
        sink.write(1, ["b"])
    forget(plan.options)
    sink.confirm(sink.write(1, ["b"]))
    sink.lanes = 2
    sink.confirm(sink.write(2, ["c"], lane=1))
    assert sink.visible() == ["a", "b", "c"]


def test_given_a_batch_begun_when_the_number_of_lanes_changes_then_it_is_refused_until_the_batch_is_complete(
    sink: Sink,
) -> None:
    sink.confirm(sink.write(0, ["a"]))
    report = sink.write(1, ["b"])
    sink.lanes = 2
    with pytest.raises(SinkRefusedError, match="batch 1 was begun with 1 lane and is not complete"):
        sink.plan()
    sink.lanes = 1
    sink.confirm(report)
    sink.lanes = 2
    sink.confirm(sink.write(2, ["c"], lane=1))
    assert sink.visible() == ["a", "b", "c"]


def test_given_other_records_at_a_replay_when_judged_by_policy_then_it_fails_keeps_or_rewrites(sink: Sink) -> None:
    sink.write(0, ["a"])
    with pytest.raises(SinkRefusedError, match="committed with 1 record, its replay has 1 other"):
        sink.write(0, ["b"])
    with pytest.raises(SinkRefusedError, match="its replay has 0"):
        sink.write(0, [])
    sink.more = {"onMismatch": "keep-committed"}
    kept = sink.write(0, ["b", "c"])
    assert (kept.outcome, kept.others) == (Outcome.KEPT, 2)
    assert sink.write(0, ["a"]).others is None
    sink.more = {"onMismatch": "rewrite"}
    assert sink.write(0, ["b"]).outcome is Outcome.WRITTEN
    assert sink.visible() == ["a", "b"]


def test_given_a_checkpoint_one_batch_older_when_it_plans_the_last_batch_otherwise_then_it_is_refused(
    sink: Sink,
) -> None:
    for batch_id in (0, 1):
        sink.confirm(sink.write(batch_id, [str(batch_id)]))
    with pytest.raises(SinkRefusedError, match=r"batch 1 is committed with 1 record, its replay has 2: .* older copy"):
        sink.write(1, ["1", "2"])
    assert sink.visible() == ["0", "1"]


def test_given_a_batch_that_failed_for_want_of_lanes_when_written_with_them_then_nothing_is_lost_in_silence(
    sink: Sink,
) -> None:
    sink.write(0, ["a"], laned=False)
    with pytest.raises(ConfigError, match="task 1 has records"):
        sink.write(0, ["b"], lane=1, laned=False)
    with pytest.raises(SinkRefusedError, match="its replay has 2: "):
        sink.write(0, ["a", "b"])
    sink.more = {"onMismatch": "keep-committed"}
    with pytest.raises(SinkRefusedError, match="written without with_lanes: other tasks' records of it may be missing"):
        sink.write(0, ["a", "b"])
    assert sink.write(0, ["a"]).outcome is Outcome.KEPT


def test_given_a_record_too_large_when_written_then_it_fails_or_becomes_a_dead_letter_of_the_same_transaction(
    sink: Sink,
) -> None:
    large = "x" * 1_200_000
    with pytest.raises(SinkRefusedError, match="can never be written: it has 1200070 bytes"):
        sink.write(0, ["a", large])
    dead = f"{sink.topic}-dead"
    sink.cluster.create_topic(dead, partitions=1, replication_factor=3)
    sink.more = {"onBadRecord": "dead-letter", "deadLetterTopic": dead}
    report = sink.write(0, ["a", large, "b"])
    assert (report.outcome, report.rows, report.dead_letters) == (Outcome.WRITTEN, 3, 1)
    assert sink.visible() == ["a", "b"]
    assert committed_values(sink.cluster.bootstrap_servers, dead) == ["x" * 10_000]


def rows(*records: tuple[str, str, int | None]) -> pa.RecordBatch:
    """Values with the topic and the partition that each names."""
    values, topics, partitions = zip(*records, strict=True)
    binary = pa.array([value.encode() for value in values], pa.binary())
    columns = [binary, pa.array(topics, pa.string()), pa.array(partitions, pa.int32())]
    return pa.record_batch(columns, names=["value", "topic", "partition"])


def test_given_topics_in_a_column_when_written_then_each_takes_what_its_own_limit_allows(sink: Sink) -> None:
    limits = {"roomy": 3_000_000, "narrow": 20_000}
    for name, most in limits.items():
        config = {"max.message.bytes": str(most)}
        sink.cluster.create_topic(f"{sink.topic}-{name}", partitions=1, replication_factor=3, config=config)
    roomy, narrow = (f"{sink.topic}-{name}" for name in limits)
    sink.more = {"topic": ""}
    given = [("r" * 2_000_000, roomy, None), *[("n" * 1_000, narrow, None)] * 100]
    assert sink.writer(0).write(iter([rows(*given)])).rows == 101
    assert committed_values(sink.cluster.bootstrap_servers, roomy) == ["r" * 2_000_000]
    assert committed_values(sink.cluster.bootstrap_servers, narrow) == ["n" * 1_000] * 100
    with pytest.raises(SinkRefusedError, match=f"it has 30070 bytes, topic {narrow} takes 20000"):
        sink.writer(1).write(iter([rows(("n" * 30_000, narrow, None))]))


def test_given_a_topic_with_a_small_limit_when_a_later_part_of_a_batch_names_it_then_its_records_are_written(
    sink: Sink,
) -> None:
    narrow = f"{sink.topic}-narrow"
    sink.cluster.create_topic(narrow, partitions=1, replication_factor=3, config={"max.message.bytes": "20000"})
    sink.more = {"topic": ""}
    given = [rows(("r" * 1_000, sink.topic, None)), rows(*[("n" * 1_000, narrow, None)] * 200)]
    assert sink.writer(0).write(iter(given)).rows == 201
    assert sink.visible() == ["r" * 1_000]
    assert committed_values(sink.cluster.bootstrap_servers, narrow) == ["n" * 1_000] * 200


def test_given_dead_letters_when_a_column_names_what_is_not_there_then_they_fit_and_say_size_and_hash(
    sink: Sink,
) -> None:
    dead, large = f"{sink.topic}-dead", "x" * 1_200_000
    sink.cluster.create_topic(dead, partitions=1, replication_factor=3, config={"max.message.bytes": "2000"})
    sink.more = {"topic": "", "onBadRecord": "dead-letter", "deadLetterTopic": dead}
    given = [("a", sink.topic, 2), ("b", sink.topic, 7), ("c", "nowhere", None), (large, sink.topic, None)]
    report = sink.writer(0).write(iter([rows(*given)]))
    assert (report.rows, report.dead_letters) == (4, 3)
    assert sink.visible() == ["a"]
    found = committed_records(sink.cluster.bootstrap_servers, dead)
    assert [value for value, _ in found[:2]] == ["b", "c"]
    assert 500 < len(str(found[2][0])) < 2_000
    reasons = [json.loads(headers["kafka-discovery-error"]) for _, headers in found]
    assert [found["reason"] for found in reasons] == [
        f"partition 7 is none of the 3 partitions of topic {sink.topic}",
        "topic nowhere does not exist",
        f"it has 1200070 bytes, topic {sink.topic} takes 1048588",
    ]
    assert reasons[2]["value_bytes"] == 1_200_000
    assert reasons[2]["value_sha256"] == hashlib.sha256(large.encode()).hexdigest()


@pytest.mark.parametrize("more", [{}, {"topic": "", NAMED_TOPIC: "{}"}], ids=["option", "option of a job"])
def test_given_the_topic_of_an_option_when_it_is_deleted_under_the_sink_then_nothing_becomes_a_dead_letter(
    sink: Sink, more: dict[str, str]
) -> None:
    dead = f"{sink.topic}-dead"
    sink.cluster.create_topic(dead, partitions=1, replication_factor=3)
    sink.more = {name: value.format(sink.topic) for name, value in more.items()} | {
        "onBadRecord": "dead-letter",
        "deadLetterTopic": dead,
    }
    plan, given = sink.plan(), [("a", sink.topic, None), ("b", sink.topic, 0)]
    sink.cluster.delete_topic(sink.topic)
    for record in given:
        with pytest.raises(TransactionRefusedError, match=f"topic {sink.topic} does not exist"):
            sink.writer(0, plan=plan).write(iter([rows(record)]))
    sink.cluster.create_topic(sink.topic, partitions=3, replication_factor=3)
    sink.confirm(sink.writer(0, plan=plan).write(iter([rows(*given)])))
    assert (sink.visible(), committed_values(sink.cluster.bootstrap_servers, dead)) == (["a", "b"], [])


def test_given_records_that_name_a_topic_that_is_not_there_when_written_then_the_error_says_so(sink: Sink) -> None:
    sink.more = {"topic": ""}
    names = pa.array([sink.topic, "nowhere"], pa.string())
    rows = pa.record_batch([pa.array([b"a", b"b"], pa.binary()), names], names=["value", "topic"])
    with pytest.raises(TransactionError, match="topic nowhere does not exist: create it, or correct the column"):
        sink.writer(0).write(iter([rows]))
    # What was sent stays in an open transaction until the next attempt ends it.
    sink.more = {}
    assert sink.write(0, ["c"]).outcome is Outcome.WRITTEN
    assert sink.visible() == ["c"]


def test_given_a_task_beyond_the_lanes_when_it_has_records_then_it_names_the_helper(sink: Sink) -> None:
    assert sink.write(0, [], lane=1).outcome is Outcome.EMPTY
    with pytest.raises(ConfigError, match=r"lanes: task 1 has records, but the sink has 1 lane; write with_lanes"):
        sink.write(0, ["a"], lane=1)
    assert sink.visible() == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"topic": "not-there"}, "topic: topic not-there does not exist"),
        ({"lanes": "100"}, "lanes: 100 are more than the 32 partitions of __spark_sink_ledger"),
        ({"deadLetterTopic": "nor-this", "onBadRecord": "dead-letter"}, "deadLetterTopic: topic nor-this does not"),
    ],
)
def test_given_options_that_do_not_fit_the_cluster_when_checked_then_one_line_says_so(
    sink: Sink, more: dict[str, str], said: str
) -> None:
    sink.plan()
    sink.more = more
    with pytest.raises(ConfigError, match=said):
        sink.plan()


def test_given_a_marker_topic_that_deletes_when_checked_then_it_is_refused_before_any_output(sink: Sink) -> None:
    sink.more = {"markerTopic": sink.topic}
    with pytest.raises(
        ConfigError, match=r"cleanup\.policy=delete, so brokers would delete markers; set it to compact"
    ):
        sink.write(0, ["a"])


def test_given_a_service_and_only_dead_addresses_when_written_then_its_brokers_are_used(
    sink: Sink, kafka_cluster: LocalKafka, tmp_path: Path
) -> None:
    sink.more = {"kafka.bootstrap.servers": "127.0.0.1:1", "discoveryUrl": "http://127.0.0.1:1", "startupTimeout": "1s"}
    with pytest.raises(KafkaUnreachableError, match=r"startupTimeout: after 1 s no living broker; .*127\.0\.0\.1:1"):
        sink.plan()
    with serving(kafka_cluster.bootstrap_servers, tmp_path) as service:
        wait_for(service, "/readyz", 200)
        sink.more = {"kafka.bootstrap.servers": "127.0.0.1:1", "discoveryUrl": service.api}
        sink.confirm(sink.write(0, ["a"]))
    assert sink.visible() == ["a"]


def test_given_brokers_found_a_while_ago_when_planned_then_nobody_waits_for_others_and_soon_they_are_fresh(
    sink: Sink,
) -> None:
    sink.plan()
    kept = sink.folder / "sinks" / f"{sink.sink_id}.json"
    content = json.loads(kept.read_text())
    gone = BrokerAddress("127.0.0.1", 1)
    kept.write_text(json.dumps({**content, "brokers": [[gone.host, gone.port]], "brokers_wall": time.time() - 60}))
    assert sink.plan().brokers == (gone,)
    eventually(lambda: gone not in sink.plan().brokers, 60, "the brokers that live")
    kept.write_text(json.dumps({**content, "brokers": [[gone.host, gone.port]], "brokers_wall": time.time() - 200}))
    assert gone not in sink.plan().brokers


def test_given_brokers_that_keep_offsets_for_an_hour_when_planned_then_markers_are_believed_no_longer(
    strict: LocalKafka, tmp_path: Path
) -> None:
    sink = Sink(strict, tmp_path, sink_id="s", topic="t", more={"transactionTimeout": "15s"})
    plan = sink.plan()
    assert plan.retention_seconds == 3_600
    sleeper = replace(sink.attempt(0), wall_seconds=int(time.time()) - 1_900)
    with pytest.raises(SinkRefusedError, match="stale batch: this attempt slept for longer than brokers keep markers"):
        LaneWriter(plan, sleeper, SinkLedger(plan)).write(batches(["a"], lane=0))


def test_given_lost_markers_when_written_then_it_is_refused_until_all_of_it_is_forgotten(sink: Sink) -> None:
    sink.confirm(sink.write(0, ["a"]))
    plan = sink.plan()
    TopicAdmin(plan.access).forget_group(plan.options.group, timeout_seconds=SECONDS)
    with pytest.raises(SinkRefusedError, match="markers lost: lane 0 had a marker that cannot have expired"):
        sink.write(1, ["b"])
    operate.reset(plan, timeout_seconds=SECONDS)
    with pytest.raises(SinkRefusedError, match="markers lost: the sink is new, or all about it has expired"):
        sink.write(1, ["b"])
    operate.takeover(plan, query_id="", timeout_seconds=SECONDS)
    sink.confirm(sink.write(1, ["b"]))
    assert sink.visible() == ["a", "b"]


def expire(sink: Sink) -> None:
    """Let brokers forget all offsets of a sink, as they do after `offsets.retention.minutes`."""
    forget_offsets(sink.plan())


def forget_offsets(plan: SinkPlan) -> None:
    for group in (plan.options.group, plan.options.control_group):
        TopicAdmin(plan.access).forget_group(group, timeout_seconds=SECONDS)
    forget(plan.options)


def test_given_a_sink_idle_for_the_retention_when_started_again_then_it_goes_on_where_it_was(sink: Sink) -> None:
    sink.lanes = 3
    sink.confirm(*[sink.write(0, values, lane=lane) for lane, values in enumerate((["a"], ["b"], []))])
    expire(sink)
    sink.confirm(*[sink.write(1, values, lane=lane) for lane, values in enumerate((["c"], [], ["d"]))])
    assert sink.visible() == ["a", "b", "c", "d"]


def test_given_a_batch_half_written_when_its_offsets_expire_then_its_replay_still_finds_it(sink: Sink) -> None:
    sink.lanes = 2
    sink.write(0, ["a"], lane=0)
    assert sink.visible() == ["a"], "a lane waits for no other one"
    expire(sink)
    reports = [sink.write(0, ["a"], lane=0), sink.write(0, ["b"], lane=1)]
    assert [report.outcome for report in reports] == [Outcome.KEPT, Outcome.WRITTEN]
    sink.confirm(*reports)
    sink.confirm(*[sink.write(1, [value], lane=lane) for lane, value in enumerate("cd")])
    expire(sink)
    with pytest.raises(SinkRefusedError, match="stale batch"):
        sink.write(0, ["a"], lane=0)
    sink.query_id = "other"
    with pytest.raises(SinkRefusedError, match="sinkId in use"):
        sink.write(2, ["e"], lane=0)
    assert sink.visible() == ["a", "b", "c", "d"]


def test_given_a_batch_write_when_its_offsets_expire_after_seven_days_then_its_name_is_no_longer_known(
    sink: Sink,
) -> None:
    def written() -> LaneReport:
        plan = prepare(parse_options({**sink.options, "writeId": "one"}, batch=True))
        assert plan.retention_seconds == RETENTION_SECONDS == 7 * 86_400
        ledger = SinkLedger(plan)
        report = LaneWriter(plan, replace(sink.attempt(0), query_id="write one"), ledger).write(batches(["a"], lane=0))
        confirm(plan, ledger, [report], timeout_seconds=SECONDS)
        return report

    assert [written().outcome, written().outcome] == [Outcome.WRITTEN, Outcome.KEPT]
    forget_offsets(prepare(parse_options({**sink.options, "writeId": "one"}, batch=True)))
    assert written().outcome is Outcome.WRITTEN
    assert sink.visible() == ["a", "a"]


@pytest.mark.parametrize("is_recorded", [True, False], ids=["of this program", "of an earlier program"])
def test_given_a_start_that_died_while_it_renewed_a_forgotten_sink_when_started_again_then_it_goes_on(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, *, is_recorded: bool
) -> None:
    sink.confirm(sink.write(0, ["a"]))
    ledger = SinkLedger(sink.plan())
    expire(sink)

    def fails(*_: object) -> None:
        raise TransactionError("no answer in time")

    with monkeypatch.context() as broken:
        broken.setattr(renewal, "fence_lanes", fails)
        with pytest.raises(TransactionError, match="no answer in time"):
            sink.plan()
    control = ledger.control(timeout_seconds=SECONDS)
    assert control is not None
    assert (control.is_closed, control.wall_seconds) == (True, 0)
    ledger.write_control(replace(control, is_recorded=is_recorded), timeout_seconds=SECONDS)
    sink.confirm(sink.write(1, ["b"]))
    assert sink.visible() == ["a", "b"]


def aged(sink: Sink, *, seconds: int = 0, is_recorded: bool = True) -> SinkLedger:
    """Write the control record as one of so long ago, or as an earlier program wrote it."""
    plan = sink.plan()
    ledger = SinkLedger(plan)
    control = ledger.control(timeout_seconds=SECONDS)
    assert control is not None
    changed = replace(control, wall_seconds=control.wall_seconds - seconds, is_recorded=is_recorded)
    ledger.write_control(changed, timeout_seconds=SECONDS)
    forget(plan.options)
    return ledger


def test_given_a_control_record_that_grows_old_when_started_then_it_is_renewed_before_it_expires(sink: Sink) -> None:
    sink.confirm(sink.write(0, ["a"]))
    ledger = aged(sink, seconds=4 * 86_400)
    sink.plan()
    control = ledger.control(timeout_seconds=SECONDS)
    assert control is not None
    assert time.time() - control.wall_seconds < 3_600
    assert (control.batch_id, control.is_closed, control.query_id) == (0, False, sink.query_id)
    sink.confirm(sink.write(1, ["b"]))
    assert sink.visible() == ["a", "b"]


def test_given_a_change_of_lanes_that_died_half_way_when_idle_and_undone_then_every_lane_goes_on(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.lanes = 2
    sink.confirm(*[sink.write(0, [value], lane=lane) for lane, value in enumerate("ab")])
    ledger = SinkLedger(sink.plan())
    sink.lanes = 3
    with monkeypatch.context() as broken:
        broken.setattr(checks, "commit_marker", dies)
        with pytest.raises(TransactionError, match="no answer in time"):
            sink.plan()
    control = ledger.control(timeout_seconds=SECONDS)
    assert control is not None
    old = replace(control, wall_seconds=control.wall_seconds - 4 * 86_400)
    ledger.write_control(old, timeout_seconds=SECONDS)
    sink.lanes = 2
    sink.confirm(*[sink.write(1, [value], lane=lane) for lane, value in enumerate("cd")])
    assert sink.visible() == ["a", "b", "c", "d"]


def test_given_a_second_start_amid_a_change_of_lanes_when_the_first_goes_on_then_it_fails_and_changes_nothing(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.lanes = 2
    sink.confirm(*[sink.write(0, [value], lane=lane) for lane, value in enumerate("ab")])
    sink.lanes = 3

    def overtaken(ledger: SinkLedger, fence: Transaction, lane: int, *rest: Any) -> None:
        commit_marker(ledger, fence, lane, *rest)
        if lane == 0:
            monkeypatch.setattr(checks, "commit_marker", commit_marker)
            sink.plan()

    monkeypatch.setattr(checks, "commit_marker", overtaken)
    with pytest.raises(TransactionError):
        sink.plan()
    sink.confirm(*[sink.write(1, [value], lane=lane) for lane, value in enumerate("cde")])
    assert sink.visible() == ["a", "b", "c", "d", "e"]


def test_given_a_sink_of_an_earlier_program_when_started_then_its_markers_are_taken_over_unless_they_may_have_expired(
    sink: Sink,
) -> None:
    sink.confirm(sink.write(0, ["a"]))
    ledger = SinkLedger(sink.plan())
    end(sink, ledger)
    aged(sink, is_recorded=False)
    options = sink.plan().options
    assert ledger.recorded(timeout_seconds=SECONDS)[0].batch_id == 0
    aged(sink, seconds=8 * 86_400, is_recorded=False)
    TopicAdmin(sink.plan().access).forget_group(options.group, timeout_seconds=SECONDS)
    with pytest.raises(SinkRefusedError, match="markers lost"):
        sink.write(5, ["b"])


def end(sink: Sink, ledger: SinkLedger) -> None:
    """Leave no records, as an earlier program did."""
    transaction, deadline = recording(sink.plan()), until(SECONDS)
    transaction.fence(deadline)
    transaction.begin()
    for lane in range(sink.lanes):
        ledger.record(transaction, lane, sink.sink_id, None, deadline)
    transaction.commit(deadline)


def dies(ledger: SinkLedger, fence: Transaction, lane: int, *rest: Any) -> None:
    """Stands for `commit_marker` in a start that dies before its second lane."""
    if lane == 1:
        raise TransactionError("no answer in time")
    commit_marker(ledger, fence, lane, *rest)


@pytest.mark.parametrize("then", ["idle", "tried again", "taken over"])
def test_given_a_takeover_of_an_earlier_program_that_died_half_way_when_idle_for_the_retention_then_it_is_refused(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    sink.lanes = 2
    for batch_id, values in enumerate(("ab", "cd")):
        sink.confirm(*[sink.write(batch_id, [value], lane=lane) for lane, value in enumerate(values)])
    sink.write(2, ["e"], lane=1)
    plan = sink.plan()
    end(sink, SinkLedger(plan))
    aged(sink, is_recorded=False)

    with monkeypatch.context() as broken:
        broken.setattr(renewal, "commit_marker", dies)
        with pytest.raises(TransactionError, match="no answer in time"):
            sink.plan()
    if then == "tried again":
        sink.plan()
    if then == "taken over":
        operate.takeover(plan, query_id="", timeout_seconds=SECONDS)
    forget_offsets(plan)
    if then == "idle":
        with pytest.raises(SinkRefusedError, match=r"markers lost: the start that took it over .* died"):
            sink.write(2, ["e"], lane=1)
    else:
        again = sink.write(2, ["e"], lane=1)
        assert again.outcome is (Outcome.KEPT if then == "tried again" else Outcome.WRITTEN)
    assert sink.visible() == ["a", "b", "c", "d", "e", *(["e"] if then == "taken over" else [])]


def test_given_a_sink_taken_over_when_idle_for_the_retention_then_it_still_is(sink: Sink) -> None:
    sink.confirm(sink.write(0, ["a"]))
    plan = sink.plan()
    operate.takeover(plan, query_id="", timeout_seconds=SECONDS)
    forget_offsets(plan)
    sink.query_id = "query-2"
    sink.confirm(sink.write(0, ["b"]))
    assert sink.visible() == ["a", "b"]


def test_given_a_sink_of_which_records_alone_are_left_when_taken_over_then_a_later_generation_begins_beside_open_ones(
    sink: Sink,
) -> None:
    sink.confirm(sink.write(0, ["a"]))
    plan = sink.plan()
    operate.takeover(plan, query_id="", timeout_seconds=SECONDS)
    forget_offsets(plan)
    another, deadline = replace(plan, options=replace(plan.options, sink_id="another")), until(SECONDS)
    opened = recording(another)
    opened.fence(deadline)
    opened.begin()
    SinkLedger(another).record(opened, 0, "another", "open", deadline)
    opened.flush(deadline)
    try:
        assert operate.takeover(plan, query_id="", timeout_seconds=SECONDS).generation == 3
    finally:
        recording(another).fence(until(SECONDS))


@pytest.mark.parametrize("has_committed", [True, False], ids=["committed", "open"])
def test_given_a_query_that_starts_during_a_takeover_when_it_has_fenced_a_lane_then_what_it_committed_counts(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, *, has_committed: bool
) -> None:
    sink.lanes = 2
    sink.confirm(*[sink.write(0, [value], lane=lane) for lane, value in enumerate("ab")])
    plan, deadline = sink.plan(), until(SECONDS)
    other = transaction_of(plan, 0)

    def comes_late(ledger: SinkLedger, fence: Transaction, lane: int, *rest: Any) -> None:
        monkeypatch.setattr(ledgers, "commit_marker", commit_marker)
        if has_committed:
            sink.write(1, ["c"], lane=0)
        else:
            other.fence(deadline)
            other.begin()
            other.produce(sink.topic, partition=0, key=None, value=b"c", headers=None, deadline=deadline)
        commit_marker(ledger, fence, lane, *rest)

    monkeypatch.setattr(ledgers, "commit_marker", comes_late)
    assert operate.takeover(plan, query_id="", timeout_seconds=SECONDS).generation == 2
    if not has_committed:
        with pytest.raises(TransactionError):
            other.commit(until(SECONDS))
    reports = [sink.write(1, [value], lane=lane) for lane, value in enumerate("cd")]
    assert reports[0].outcome is (Outcome.KEPT if has_committed else Outcome.WRITTEN)
    sink.confirm(*reports)
    assert sink.visible() == ["a", "b", "c", "d"]


def test_given_a_late_word_of_an_earlier_driver_when_the_number_of_lanes_has_changed_then_nobody_is_let_in(
    sink: Sink,
) -> None:
    sink.lanes = 2
    sink.confirm(*[sink.write(0, [value], lane=lane) for lane, value in enumerate("ab")])
    ledger, zombie = SinkLedger(sink.plan()), sink.writer(1, lane=1)
    control = ledger.control(timeout_seconds=SECONDS)
    assert control is not None
    sink.lanes = 1
    sink.plan()
    ledger.write_control(control, timeout_seconds=SECONDS)
    with pytest.raises(SinkRefusedError, match="markers lost: the marker is of generation 2, the control record of 1"):
        zombie.write(batches(["d"], lane=1))
    forget(sink.plan().options)
    sink.confirm(sink.write(0, ["a", "b"]))
    sink.confirm(sink.write(1, ["c", "d"]))
    assert sink.visible() == ["a", "b", "c", "d"]


def test_given_a_sink_when_looked_at_taken_over_and_reset_by_command_then_each_does_what_it_says(sink: Sink) -> None:
    sink.confirm(sink.write(0, ["a"]))
    common = ["--sink", sink.sink_id, "--bootstrap", sink.cluster.bootstrap_servers, "--state-dir", str(sink.folder)]
    shown = CliRunner().invoke(app, ["sink", "status", *common])
    assert f"{sink.sink_id}: query query-1, generation 1, 1 lane, batch 0 is complete" in shown.output
    assert "lane 0: batch 0, 1 record" in shown.output
    asked = CliRunner().invoke(app, ["sink", "takeover", *common])
    assert "nothing was changed: add --yes" in asked.output
    sink.query_id = "query-2"
    with pytest.raises(SinkRefusedError, match="sinkId in use"):
        sink.write(0, ["b"])
    CliRunner().invoke(app, ["sink", "takeover", *common, "--yes"], catch_exceptions=False)
    sink.confirm(sink.write(0, ["b"]))
    ended = CliRunner().invoke(app, ["sink", "abort-lingering", *common, "--json"], catch_exceptions=False)
    assert '"lanes": 1' in ended.output
    CliRunner().invoke(app, ["sink", "reset", *common, "--yes"], catch_exceptions=False)
    gone = CliRunner().invoke(app, ["sink", "status", *common])
    assert isinstance(gone.exception, StateError)
    sink.query_id = "query-3"
    sink.confirm(sink.write(0, ["c"]))
    assert sink.visible() == ["a", "b", "c"]


def test_given_foreign_offsets_in_the_group_when_read_then_nothing_is_taken_for_a_marker(sink: Sink) -> None:
    plan = sink.plan()
    consumer = Consumer(
        {"bootstrap.servers": sink.cluster.bootstrap_servers, "group.id": plan.options.group, "log_level": 0}
    )
    commit(consumer, TopicPartition(plan.options.marker_topic, 0, 5))
    consumer.close()
    with pytest.raises(StateError, match="is not what this sink writes; is the group used otherwise"):
        sink.write(0, ["a"])
    assert sink.visible() == []


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
def test_given_a_broker_that_stops_in_mid_write_when_it_returns_then_only_the_retry_is_there(
    strict: LocalKafka, tmp_path: Path, topic_name: str, *, frozen: bool
) -> None:
    strict.create_topic(topic_name, partitions=1, replication_factor=1)
    sink = Sink(strict, tmp_path, sink_id=topic_name, topic=topic_name, more={"transactionTimeout": "10s"})
    sink.confirm(sink.write(0, ["before"]))
    plan = sink.plan()

    def interrupted() -> Iterator[pa.RecordBatch]:
        pieces = batches(numbered(30), lane=0)
        yield next(pieces)
        (strict.pause if frozen else strict.kill)([1])
        yield from pieces

    began = time.monotonic()
    with pytest.raises(TransactionError) as error:
        sink.writer(1, plan=plan).write(interrupted())
    assert time.monotonic() - began < 30
    assert "\n" not in str(error.value)
    assert "; transactionTimeout is 10 s: raise it, or find out why the brokers are slow" in str(error.value)
    strict.heal()
    assert sink.visible() == ["before"], "nothing of it is visible"
    retried = sink.write(1, numbered(30))
    assert retried.outcome is Outcome.WRITTEN
    sink.confirm(retried)
    assert sink.visible() == sorted(["before", *numbered(30)])


def test_given_a_timeout_above_the_brokers_cap_when_checked_then_one_line_says_so(
    strict: LocalKafka, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"transactionTimeout: 30 s is above the brokers' transaction\.max"):
        Sink(strict, tmp_path, sink_id="s", topic="t").plan()
