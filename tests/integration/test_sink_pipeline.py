"""The pipeline by source offsets on real brokers, without Spark."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pytest

from discovery.core.errors import ConfigError, SinkRefusedError, StateError, TransactionError, TransactionTimeoutError
from discovery.core.model import TopicName
from discovery.kafka.topics import TopicAdmin
from discovery.kafka.transactions import GroupNotes, Note
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.sink import operator as operate
from discovery.spark.sink.checks import check_cluster
from discovery.spark.sink.columns import LANE
from discovery.spark.sink.foreach import exactly_once_by_offset
from discovery.spark.sink.ledger import SinkLedger, recording, transaction_of, until
from discovery.spark.sink.marker import Control
from discovery.spark.sink.options import BY_OFFSET
from discovery.spark.sink.pipeline import KEEP, SOURCE_OFFSET, SOURCE_PARTITION, OffsetLane
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.preflight import forget
from discovery.spark.sink.renewal import refuse_unrecorded, restore_offsets
from tests.support.helpers import produce
from tests.support.kafka_fixtures import KafkaFactory
from tests.support.sink import Sink, committed_values

pytestmark = pytest.mark.kafka
SECONDS = 30.0


class Pipe(Sink):
    """A sink fed with made-up rows of a source topic, which must exist: its offsets are the markers."""

    @property
    def source(self) -> TopicName:
        return TopicName(f"{self.topic}-in")

    def copy(self, partition: int, offsets: range, *, lane: int = 0, keep: bool = True, topic_id: str = "one") -> int:
        return OffsetLane(self.plan(), self.source, topic_id, lane).write(
            rows(partition, offsets, lane=lane, keep=keep)
        )


def rows(partition: int, offsets: range, *, lane: int = 0, keep: bool = True) -> Iterator[pa.RecordBatch]:
    size = len(offsets)
    yield pa.record_batch(
        {
            "value": pa.array([f"{partition}.{offset}".encode() for offset in offsets], pa.binary()),
            SOURCE_PARTITION: pa.array([partition] * size, pa.int32()),
            SOURCE_OFFSET: pa.array(list(offsets), pa.int64()),
            KEEP: pa.array([keep] * size, pa.bool_()),
            LANE: pa.array([lane] * size, pa.int32()),
        }
    )


@pytest.fixture
def pipe(kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path) -> Pipe:
    pipe = Pipe(kafka_cluster, tmp_path, sink_id=topic_name, topic=topic_name)
    pipe.more = {BY_OFFSET: f"{pipe.source} "}
    kafka_cluster.create_topic(topic_name, partitions=2, replication_factor=3)
    kafka_cluster.create_topic(pipe.source, partitions=2, replication_factor=3)
    return pipe


def test_given_a_record_with_large_headers_when_copied_then_it_fails_or_becomes_a_dead_letter(pipe: Pipe) -> None:
    dead = f"{pipe.topic}-dead"
    pipe.cluster.create_topic(dead, partitions=1, replication_factor=3)
    header = pa.struct({"key": pa.string(), "value": pa.binary()})
    headers = pa.array([[{"key": "h", "value": b"x" * 1_100_000}], []], pa.list_(header))
    batch = next(rows(0, range(2))).append_column("headers", headers)
    with pytest.raises(SinkRefusedError, match=f"record 0 of {pipe.source}-0 can never be written: it has 11000"):
        OffsetLane(pipe.plan(), pipe.source, "one", 0).write(iter([batch]))
    pipe.more = {**pipe.more, "onBadRecord": "dead-letter", "deadLetterTopic": dead}
    assert OffsetLane(pipe.plan(), pipe.source, "one", 0).write(iter([batch])) == 2
    assert pipe.visible() == ["0.1"]
    assert committed_values(pipe.cluster.bootstrap_servers, dead) == ["0.0"]


def test_given_ranges_that_overlap_what_was_copied_when_copied_then_each_record_is_there_once(pipe: Pipe) -> None:
    assert pipe.copy(0, range(3)) == 3
    assert pipe.copy(0, range(3)) == 0
    assert pipe.copy(0, range(5)) == 2
    assert pipe.copy(1, range(2)) == 2
    assert pipe.copy(0, range(5, 7), keep=False) == 0
    assert pipe.copy(0, range(5, 8)) == 1
    assert pipe.visible() == sorted(["0.0", "0.1", "0.2", "0.3", "0.4", "0.7", "1.0", "1.1"])


def test_given_an_attempt_with_its_offsets_sent_and_not_committed_when_retried_then_only_the_retry_counts(
    pipe: Pipe,
) -> None:
    plan = pipe.plan()
    zombie, deadline = transaction_of(plan, 0), until(SECONDS)
    zombie.fence(deadline)
    zombie.begin()
    zombie.produce(pipe.topic, partition=0, key=None, value=b"zombie", headers=None, deadline=deadline)
    metadata = GroupNotes(plan.access, group=plan.options.group, topic=pipe.source).metadata
    zombie.attach(pipe.source, 0, Note(2, '{"v":1,"t":"one"}'), metadata, deadline)
    assert pipe.copy(0, range(2)) == 2
    with pytest.raises(TransactionError):
        zombie.commit(until(SECONDS))
    assert pipe.visible() == ["0.0", "0.1"]


def test_given_a_source_recreated_when_copied_then_it_is_refused_before_any_output(pipe: Pipe) -> None:
    pipe.copy(0, range(3))
    with pytest.raises(SinkRefusedError, match="the topic was recreated"):
        pipe.copy(0, range(9), topic_id="two")
    assert pipe.visible() == ["0.0", "0.1", "0.2"]


def test_given_a_source_recreated_when_brokers_do_not_report_its_id_then_nothing_is_taken_for_copied(
    pipe: Pipe,
) -> None:
    assert pipe.copy(1, range(2), topic_id="") == 2, "of the first records nothing can be compared"
    assert pipe.copy(1, range(3), topic_id="one") == 1
    for partition in (0, 1):
        pipe.copy(partition, range(3))
        with pytest.raises(TransactionError, match=f"in-{partition}: brokers did not report the topic's id, .*restart"):
            pipe.copy(partition, range(5), topic_id="")
        with pytest.raises(SinkRefusedError, match=r"the topic was recreated \(id one, now two\)"):
            pipe.copy(partition, range(5), topic_id="two")
    assert pipe.visible() == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]


@pytest.mark.parametrize("reading", ["_checked_control", "_look_up"])
def test_given_a_broker_that_freezes_before_markers_are_read_when_copied_then_the_wait_is_bounded_and_named(
    kafka_factory: KafkaFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    cluster = kafka_factory(brokers=1)
    for topic in ("copied", "copied-in"):
        cluster.create_topic(topic, partitions=2)
    pipe = Pipe(cluster, tmp_path, sink_id="copy", topic="copied", more={"transactionTimeout": "10s"})
    pipe.more = {**pipe.more, BY_OFFSET: f"{pipe.source} "}
    pipe.copy(0, range(1))
    read = getattr(OffsetLane, reading)

    def frozen(lane: OffsetLane, *rest: Any) -> Any:
        cluster.pause([1])
        return read(lane, *rest)

    monkeypatch.setattr(OffsetLane, reading, frozen)
    began = time.monotonic()
    with pytest.raises(TransactionTimeoutError, match=r"read the sink's markers in time: .*transactionTimeout is 10 s"):
        pipe.copy(0, range(3))
    assert time.monotonic() - began < 20
    monkeypatch.undo()
    cluster.heal()
    assert pipe.copy(0, range(3)) == 2


def test_given_a_worker_of_a_run_with_other_lanes_when_it_comes_late_then_it_is_refused(pipe: Pipe) -> None:
    old = pipe.plan()
    pipe.lanes = 2
    pipe.plan()
    with pytest.raises(TransactionError, match="another number of lanes has begun"):
        OffsetLane(old, pipe.source, "one", 0).write(rows(0, range(2)))
    with pytest.raises(ConfigError, match="a record of lane 1 came to task 0"):
        OffsetLane(pipe.plan(), pipe.source, "one", 0).write(rows(0, range(2), lane=1))
    assert pipe.visible() == []


def test_given_offsets_of_somebody_else_in_the_group_when_copied_then_it_is_refused(pipe: Pipe) -> None:
    plan = pipe.plan()
    notes = GroupNotes(plan.access, group=plan.options.group, topic=pipe.source)
    notes.write(0, Note(1, ""), timeout_seconds=SECONDS)
    with pytest.raises(SinkRefusedError, match="is not what this sink writes"):
        pipe.copy(0, range(3))


def expire(pipe: Pipe, *groups: str) -> SinkPlan:
    """Let brokers forget offsets."""
    plan = pipe.plan()
    for group in groups:
        TopicAdmin(plan.access).forget_group(group, timeout_seconds=SECONDS)
    forget(plan.options)
    return plan


def test_given_offsets_that_expired_when_started_without_a_checkpoint_then_nothing_is_copied_again(pipe: Pipe) -> None:
    pipe.copy(0, range(3))
    pipe.copy(1, range(2))
    options = pipe.plan().options
    plan = expire(pipe, options.group, options.control_group)
    check_cluster(plan)
    restore_offsets(plan)
    assert (pipe.copy(0, range(4)), pipe.copy(1, range(2))) == (1, 0)
    assert pipe.visible() == ["0.0", "0.1", "0.2", "0.3", "1.0", "1.1"]


def test_given_an_offset_that_expires_after_the_start_when_a_task_reads_then_the_record_says_what_was_copied(
    pipe: Pipe,
) -> None:
    """Found by the model: a start sees an offset that is about to expire, and its first batch is a replay."""
    pipe.copy(0, range(3))
    expire(pipe, pipe.plan().options.group)
    assert pipe.copy(0, range(3)) == 0
    with pytest.raises(SinkRefusedError, match="the topic was recreated"):
        pipe.copy(0, range(3), topic_id="two")
    assert pipe.copy(0, range(4)) == 1
    assert pipe.visible() == ["0.0", "0.1", "0.2", "0.3"]


def test_given_a_start_that_died_while_it_put_offsets_back_when_started_again_then_it_goes_on(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe.copy(0, range(3))
    expire(pipe, pipe.plan().options.group)
    write_control = SinkLedger.write_control

    def opened_by_nobody(ledger: SinkLedger, control: Control, *, timeout_seconds: float) -> None:
        if not control.is_closed:
            raise TransactionError("no answer in time")
        write_control(ledger, control, timeout_seconds=timeout_seconds)

    plan = pipe.plan()
    with monkeypatch.context() as broken:
        broken.setattr(SinkLedger, "write_control", opened_by_nobody)
        with pytest.raises(TransactionError, match="no answer in time"):
            restore_offsets(plan)
    restore_offsets(pipe.plan())
    assert pipe.copy(0, range(5)) == 2


def test_given_a_control_record_that_grows_old_when_started_then_it_is_renewed_before_it_expires(pipe: Pipe) -> None:
    pipe.copy(0, range(3))
    plan = expire(pipe)
    ledger = SinkLedger(plan)
    control = ledger.control(timeout_seconds=SECONDS)
    assert control is not None
    ledger.write_control(replace(control, wall_seconds=control.wall_seconds - 4 * 86_400), timeout_seconds=SECONDS)
    check_cluster(plan)
    assert ledger.control(timeout_seconds=SECONDS) == replace(control, wall_seconds=ANY)
    assert pipe.copy(0, range(3)) == 0


def end_records(plan: SinkPlan) -> None:
    """Leave what a program leaves that wrote no records."""
    ledger, transaction, deadline = SinkLedger(plan), recording(plan), until(SECONDS)
    transaction.fence(deadline)
    transaction.begin()
    for lane, key in ledger.records(timeout_seconds=SECONDS):
        ledger.record(transaction, lane, key, None, deadline)
    transaction.commit(deadline)


def earlier(pipe: Pipe) -> SinkPlan:
    """Make it one of a program that wrote no records, whose offsets have expired."""
    plan = expire(pipe, pipe.plan().options.group)
    ledger = SinkLedger(plan)
    control = ledger.control(timeout_seconds=SECONDS)
    assert control is not None
    ledger.write_control(replace(control, is_recorded=False), timeout_seconds=SECONDS)
    end_records(plan)
    return plan


def test_given_a_pipeline_of_an_earlier_program_when_an_older_checkpoint_goes_on_then_records_are_copied_again(
    pipe: Pipe,
) -> None:
    """A limit: without offset or record nothing says that the checkpoint is an older copy."""
    pipe.copy(0, range(3))
    plan = earlier(pipe)
    later = replace(plan, options=replace(plan.options, foreach_batch=(1, "query-1", "run-2")))
    assert OffsetLane(later, pipe.source, "one", 0).write(rows(0, range(2, 4))) == 2
    assert pipe.visible() == ["0.0", "0.1", "0.2", "0.2", "0.3"]


def test_given_a_pipeline_of_an_earlier_program_when_an_offset_has_expired_then_it_is_refused_not_copied_again(
    pipe: Pipe,
) -> None:
    pipe.copy(0, range(3))
    plan = earlier(pipe)
    with pytest.raises(SinkRefusedError, match="whether the partition was copied is open; restore the checkpoint"):
        pipe.copy(0, range(5))
    assert pipe.visible() == ["0.0", "0.1", "0.2"]
    refuse_unrecorded(plan)  # the partitions are empty: whatever comes is new
    produce(pipe.cluster.bootstrap_servers, pipe.source, "a", partition=1)
    with pytest.raises(SinkRefusedError, match=f"no offset of {pipe.source}-1, .*open; .* run `kafka-discovery sink t"):
        refuse_unrecorded(plan)
    operate.takeover(plan, query_id="", timeout_seconds=SECONDS)
    refuse_unrecorded(plan)
    assert pipe.copy(1, range(1)) == 1


@pytest.fixture
def second(pipe: Pipe) -> Pipe:
    """The same pipeline with another target."""
    second = Pipe(pipe.cluster, pipe.folder, sink_id=pipe.topic, topic=f"{pipe.topic}-second")
    second.more = {BY_OFFSET: f"{pipe.source} "}
    pipe.cluster.create_topic(second.topic, partitions=2, replication_factor=3)
    return second


OTHER_TARGET = r"sinkId in use: it copies to topic {}, this one to {}; give each copy a sinkId \(--sink-id\)"


def test_given_a_pipeline_when_a_second_one_has_its_sink_id_and_another_target_then_that_is_refused_at_its_start(
    pipe: Pipe, second: Pipe
) -> None:
    begun = second.plan()  # before the first copied anything, or looked
    operate.takeover(begun, query_id="", timeout_seconds=SECONDS)
    assert pipe.copy(0, range(3)) == 3
    refused = OTHER_TARGET.format(pipe.topic, second.topic)
    with pytest.raises(SinkRefusedError, match=refused):
        exactly_once_by_offset(second.options, pipe.source, lambda batch: batch)
    with pytest.raises(SinkRefusedError, match=refused):
        OffsetLane(begun, pipe.source, "one", 0).write(rows(0, range(5)))
    assert pipe.copy(0, range(4)) == 1
    assert (pipe.visible(), second.visible()) == (["0.0", "0.1", "0.2", "0.3"], [])


def test_given_a_pipeline_when_a_second_one_has_its_sink_id_and_another_source_then_that_is_refused_at_its_start(
    pipe: Pipe,
) -> None:
    pipe.copy(0, range(3))
    other = Pipe(pipe.cluster, pipe.folder, sink_id=pipe.topic, topic=pipe.topic)
    other.more = {BY_OFFSET: f"{pipe.topic}-other "}
    said = rf"sinkId in use: it copies from topic {pipe.source}, this one from {pipe.topic}-other; give each copy"
    with pytest.raises(SinkRefusedError, match=said):
        other.plan()
    forget(pipe.plan().options)
    assert pipe.copy(0, range(4)) == 1


def test_given_a_pipeline_whose_offsets_have_expired_when_one_with_another_target_starts_then_records_name_the_first(
    pipe: Pipe, second: Pipe
) -> None:
    pipe.copy(0, range(3))
    options = pipe.plan().options
    expire(pipe, options.group, options.control_group)
    with pytest.raises(SinkRefusedError, match=OTHER_TARGET.format(pipe.topic, second.topic)):
        second.plan()


def test_given_a_pipeline_when_it_is_taken_over_then_it_may_go_on_into_another_target(pipe: Pipe, second: Pipe) -> None:
    pipe.copy(0, range(3))
    operate.takeover(pipe.plan(), query_id="", timeout_seconds=SECONDS)
    source = pipe.source
    assert OffsetLane(second.plan(), source, "one", 0).write(rows(0, range(5))) == 2
    assert second.visible() == ["0.3", "0.4"]
    with pytest.raises(SinkRefusedError, match=OTHER_TARGET.format(second.topic, pipe.topic)):
        pipe.plan()


def test_given_a_pipeline_that_was_taken_over_when_offsets_expire_then_partitions_of_the_first_target_hold_up_nobody(
    pipe: Pipe, second: Pipe
) -> None:
    pipe.copy(0, range(3))
    pipe.copy(1, range(2))
    operate.takeover(pipe.plan(), query_id="", timeout_seconds=SECONDS)
    assert OffsetLane(second.plan(), pipe.source, "one", 0).write(rows(0, range(5))) == 2
    expire(second, second.plan().options.group, second.plan().options.control_group)
    plan = second.plan()
    restore_offsets(plan)
    assert OffsetLane(plan, pipe.source, "one", 0).write(rows(1, range(4))) == 2
    assert second.visible() == ["0.3", "0.4", "1.2", "1.3"]
    with pytest.raises(SinkRefusedError, match=OTHER_TARGET.format(second.topic, pipe.topic)):
        pipe.plan()


def test_given_a_pipeline_of_which_records_alone_are_left_when_taken_over_then_it_goes_on_into_another_target(
    pipe: Pipe, second: Pipe
) -> None:
    pipe.copy(0, range(3))
    plan = pipe.plan()
    expire(pipe, plan.options.group, plan.options.control_group)
    with pytest.raises(SinkRefusedError, match=OTHER_TARGET.format(pipe.topic, second.topic)):
        second.plan()
    assert [lane.marker for lane in operate.look(plan, timeout_seconds=SECONDS).lanes] == [None]
    operate.takeover(plan, query_id="", timeout_seconds=SECONDS)
    taken = second.plan()
    restore_offsets(taken)
    assert OffsetLane(taken, pipe.source, "one", 0).write(rows(0, range(5))) == 2
    assert second.visible() == ["0.3", "0.4"]


def test_given_a_pipeline_of_which_records_alone_are_left_when_reset_then_its_name_is_free(
    pipe: Pipe, second: Pipe
) -> None:
    pipe.lanes = 2
    pipe.copy(0, range(3), lane=1)
    plan = pipe.plan()
    expire(pipe, plan.options.group, plan.options.control_group)
    assert [lane.lane for lane in operate.look(plan, timeout_seconds=SECONDS).lanes] == [1]
    operate.reset(plan, timeout_seconds=SECONDS)
    with pytest.raises(StateError, match="no sink"):
        operate.look(plan, timeout_seconds=SECONDS)
    assert OffsetLane(second.plan(), pipe.source, "one", 0).write(rows(0, range(5))) == 5


def test_given_a_pipeline_of_a_program_that_named_no_target_when_started_then_its_target_is_the_one_of_that_start(
    pipe: Pipe, second: Pipe
) -> None:
    pipe.copy(0, range(3))
    plan = expire(pipe)
    ledger = SinkLedger(plan)
    control = ledger.control(timeout_seconds=SECONDS)
    assert control is not None
    ledger.write_control(replace(control, target=None), timeout_seconds=SECONDS)
    assert pipe.copy(0, range(4)) == 1
    with pytest.raises(SinkRefusedError, match=OTHER_TARGET.format(pipe.topic, second.topic)):
        second.plan()
