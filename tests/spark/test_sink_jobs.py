"""The jobs that write to Kafka: exact results through failures, kills and a lost checkpoint."""

import base64
import json
import shutil
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from itertools import chain

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from discovery.core.model import TopicName
from discovery.kafka.transactions import GroupNotes, Note
from discovery.spark.jobs.outputs import KafkaOutput
from discovery.spark.sink.ledger import SinkLedger
from discovery.spark.sink.options import BY_OFFSET, parse_options
from discovery.spark.sink.pipeline import SOURCE_OFFSET, SOURCE_PARTITION
from discovery.spark.sink.preflight import prepare
from spark_jobs import copy_topic as copy
from spark_jobs import dau, ip_visits
from tests.support.helpers import produce
from tests.support.sink import committed_records
from tests.support.spark.jobs import JOB_SECONDS, NOW, Topics, finish, topics, visit

__all__ = ["topics"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka]
LARGE = "{" + "x" * 786_000


def test_given_an_exception_after_seven_events_when_restarted_even_without_its_checkpoint_then_all_are_there_once(
    session: SparkSession, topics: Topics
) -> None:
    events = [f"event {number}" for number in range(12)]
    topics.put(*events)
    arguments = topics.arguments("--max-offsets-per-trigger", "5", "--header", "length=length(text)")
    failing = copy.parse_arguments([*arguments, "--fail-after", "7"])
    with pytest.raises(StreamingQueryException, match="broke down on purpose"):
        finish(copy.start_query(session, failing))
    assert topics.found() == events[:5]
    options = copy.parse_arguments([*arguments, "--where", "text <> 'event 11'"])
    finish(copy.start_query(session, options))
    assert topics.found() == events[:11]
    shutil.rmtree(topics.checkpoint)
    topics.put("later")
    finish(copy.start_query(session, options))
    assert topics.found() == [*events[:11], "later"]
    topics.expire_offsets()
    shutil.rmtree(topics.checkpoint)
    topics.put("last")
    finish(copy.start_query(session, options))
    assert topics.found() == [*events[:11], "later", "last"]


def test_given_a_number_to_fail_after_when_records_come_in_batches_then_so_many_pass(session: SparkSession) -> None:
    named = {"--bootstrap-servers": "b1:9092", "--topic": "a", "--output-topic": "b", "--checkpoint": "/ck"}
    transform = copy.transformed(copy.parse_arguments([*chain(*named.items()), "--fail-after", "7"]))

    def passed(rows: int) -> int:
        numbers = session.range(rows)
        columns = ("'v' AS value", "null AS headers", f"0 AS {SOURCE_PARTITION}", f"id AS {SOURCE_OFFSET}")
        return len(transform(numbers.selectExpr(*columns)).collect())

    assert passed(5) + passed(2) == 7
    with pytest.raises(PySparkException, match="--fail-after 7: broke down on purpose"):
        passed(1)


def test_given_a_copy_of_an_earlier_program_when_a_partition_of_a_later_batch_has_no_offset_then_none_is_copied(
    session: SparkSession, topics: Topics
) -> None:
    topics.source = f"{topics.source}-two"
    topics.cluster.create_topic(topics.source, partitions=2, replication_factor=3)
    servers = topics.cluster.bootstrap_servers
    produce(servers, topics.source, *[str(number) for number in range(200)], partition=0)
    produce(servers, topics.source, "copied before", partition=1)
    options = copy.parse_arguments(topics.arguments("--max-offsets-per-trigger", "20"))
    assert isinstance(options.job.output, KafkaOutput)
    plan = prepare(parse_options({**options.job.output.sink, "topic": topics.target, BY_OFFSET: f"{topics.source} "}))
    ledger, notes = SinkLedger(plan), GroupNotes(plan.access, group=plan.options.group, topic=TopicName(topics.source))
    control = ledger.control(timeout_seconds=30)
    assert control is not None
    ledger.write_control(replace(control, is_recorded=False), timeout_seconds=30)
    notes.write(0, Note(0, '{"v":1,"t":""}'), timeout_seconds=30)
    with pytest.raises(StreamingQueryException, match=f"no offset of {topics.source}-1, .* was copied is open"):
        finish(copy.start_query(session, options))
    assert topics.found() == []


def test_given_records_with_headers_when_copied_then_headers_are_added_to_their_own(
    session: SparkSession, topics: Topics
) -> None:
    producer = Producer({"bootstrap.servers": topics.cluster.bootstrap_servers})
    producer.produce(topics.source, "with", headers={"own": "kept"})
    producer.produce(topics.source, "without")
    assert producer.flush(JOB_SECONDS) == 0
    finish(copy.start_query(session, copy.parse_arguments(topics.arguments("--header", "length=length(text)"))))
    found = committed_records(topics.cluster.bootstrap_servers, topics.target)
    assert found == [("with", {"own": "kept", "length": "4"}), ("without", {"length": "7"})]


def test_given_an_access_log_when_visits_are_counted_and_replayed_then_each_total_is_there_once(
    session: SparkSession, topics: Topics
) -> None:
    line = f'10.0.0.2 - - [{NOW.strftime("%d/%b/%Y:%H:%M:%S +0000")}] "GET / HTTP/1.1" 200 5'
    topics.put(visit("10.0.0.1"), visit("10.0.0.1"), line, "no visit", visit(""))
    options = ip_visits.parse_arguments(topics.arguments("--dead-letter-topic", topics.dead))
    finish(ip_visits.start_query(session, options))
    topics.forget_commit()
    topics.put(visit("10.0.0.2"))
    finish(ip_visits.start_query(session, options))
    totals = Counter((found["ip"], found["visits"]) for found in map(json.loads, topics.found()))
    assert totals == {("10.0.0.1", 2): 1, ("10.0.0.2", 1): 1, ("10.0.0.2", 2): 1}
    assert [letter["reason"] for letter in topics.dead_letters()] == [
        "neither JSON nor a line of a log",
        "ip is missing, or longer than 64 characters",
    ]


def test_given_a_visit_from_tomorrow_when_visits_are_counted_then_it_is_a_dead_letter_and_nobody_is_late(
    session: SparkSession, topics: Topics
) -> None:
    options = ip_visits.parse_arguments(topics.arguments("--dead-letter-topic", topics.dead))
    for values in (
        [visit("10.0.0.9", NOW + timedelta(hours=23)), visit("10.0.0.1")],
        [visit("10.0.0.2")],
        [visit("10.0.0.1"), "no visit"],
    ):
        topics.put(*values)
        finish(ip_visits.start_query(session, options))
    totals = Counter((found["ip"], found["visits"]) for found in map(json.loads, topics.found()))
    assert totals == {("10.0.0.1", 1): 1, ("10.0.0.2", 1): 1, ("10.0.0.1", 2): 1}
    reasons = [letter["reason"] for letter in topics.dead_letters()]
    assert reasons == ["ts lies more than 300 s ahead", "neither JSON nor a line of a log"]


@pytest.mark.parametrize("of", ["letters", "results"])
def test_given_a_topic_of_dead_letters_that_takes_little_when_a_letter_is_large_then_it_is_cut_to_fit(
    session: SparkSession, topics: Topics, of: str
) -> None:
    small = f"{topics.dead}-small"
    topics.cluster.create_topic(small, partitions=1, replication_factor=3, config={"max.message.bytes": "5000"})
    large = "{" + "x" * 9_000
    topics.put(large)
    topics.target = small if of == "results" else topics.target
    more = ("--dead-letter-topic", small) if of == "letters" else ()
    finish(dau.start_query(session, dau.parse_arguments(topics.arguments(*more))))
    ((value, headers),) = committed_records(topics.cluster.bootstrap_servers, small)
    assert value is not None
    assert 4_700 < len(value) < 5_000
    letter, kept = json.loads(value), base64.b64decode(json.loads(value)["value"]).decode()
    assert (letter["bytes"], letter["sha256"]) == (len(large), sha256(large.encode()).hexdigest())
    assert (large.startswith(kept), headers) == (True, {})
    assert topics.found() == ([value] if of == "results" else [])


def test_given_daily_users_when_written_to_kafka_and_replayed_then_totals_and_dead_letters_are_there_once(
    session: SparkSession, topics: Topics
) -> None:
    event = {"event_id": "1", "user_id": "ann", "ip": "10.0.0.1", "ts": NOW.isoformat()}
    topics.put(json.dumps(event), json.dumps({**event, "event_id": "2"}), "{oops", LARGE)
    options = dau.parse_arguments(topics.arguments())
    for _ in range(2):
        finish(dau.start_query(session, options))
        topics.forget_commit()
    found = sorted(map(json.loads, topics.found()), key=len)
    assert [(row["user_id"], row["events"]) for row in found if "user_id" in row] == [("ann", 2)]
    letters = sorted((row["reason"], row["bytes"], row["sha256"]) for row in found if "reason" in row)
    assert letters == [("not JSON", len(text), sha256(text.encode()).hexdigest()) for text in ("{oops", LARGE)]
    assert len(found) == 3


def test_given_an_output_topic_deleted_under_a_job_when_it_counts_then_it_fails_and_its_totals_are_no_dead_letters(
    session: SparkSession, topics: Topics
) -> None:
    options = ip_visits.parse_arguments(topics.arguments("--dead-letter-topic", topics.dead))
    topics.put(visit("10.0.0.1"))
    finish(ip_visits.start_query(session, options))
    topics.cluster.delete_topic(topics.target)
    topics.put(visit("10.0.0.1"))
    with pytest.raises(StreamingQueryException, match=f"topic {topics.target} does not exist"):
        finish(ip_visits.start_query(session, options))
    topics.cluster.create_topic(topics.target, partitions=1, replication_factor=3)
    finish(ip_visits.start_query(session, options))
    assert [json.loads(found)["visits"] for found in topics.found()] == [2]
    assert topics.dead_letters() == []
