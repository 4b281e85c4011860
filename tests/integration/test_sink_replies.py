"""One lane on real brokers whose requests and replies are lost, late, repeated or refused on their way."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from discovery.core.errors import TransactionError
from discovery.core.model import parse_bootstrap_servers
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.sink.ledger import SinkLedger
from discovery.spark.sink.plan import SinkPlan
from discovery.spark.sink.writer import LaneReport, LaneWriter, Outcome
from tests.support.helpers import numbered
from tests.support.proxy import Api, Code, KafkaProxy, Rule
from tests.support.sink import Sink, batches

pytestmark = pytest.mark.kafka
WAIT_SECONDS = 30.0


class Proxied:
    """A sink whose writers reach the brokers through a proxy; everybody else goes past it."""

    def __init__(self, sink: Sink, proxy: KafkaProxy) -> None:
        self.sink, self.proxy = sink, proxy
        self.plan = replace(sink.plan(), brokers=parse_bootstrap_servers(proxy.bootstrap_servers, option="proxy"))

    def rule(self, api: Api, **what: object) -> Rule:
        return self.proxy.rule(Rule(api=api, **what))  # type: ignore[arg-type]

    def write(self, batch_id: int, *values: str) -> LaneReport:
        return writer(self.plan, self.sink, batch_id).write(batches(values))


def writer(plan: SinkPlan, sink: Sink, batch_id: int) -> LaneWriter:
    return LaneWriter(plan, sink.attempt(batch_id), SinkLedger(plan))


def fails(plan: SinkPlan, sink: Sink) -> bool:
    """Tell whether a task fails; nothing of it is left afterwards, as in a worker that was killed."""
    try:
        writer(plan, sink, 0).write(batches(numbered(10)))
    except TransactionError:
        return True
    return False


@pytest.fixture
def proxied(kafka_cluster: LocalKafka, topic_name: str, tmp_path: Path) -> Iterator[Proxied]:
    kafka_cluster.create_topic(topic_name, partitions=2, replication_factor=3)
    sink = Sink(kafka_cluster, tmp_path, sink_id=topic_name, topic=topic_name)
    addresses = {number: kafka_cluster.address(number) for number in kafka_cluster.broker_ids}
    with KafkaProxy(addresses) as proxy:
        yield Proxied(sink, proxy)


def test_given_a_lost_reply_to_the_commit_when_the_client_asks_again_then_the_batch_is_there_once(
    proxied: Proxied,
) -> None:
    rule = proxied.rule(Api.END_TXN, lose_reply=True)
    report = proxied.write(0, *numbered(10))
    assert (report.outcome, rule.hits) == (Outcome.WRITTEN, 1)
    assert proxied.write(0, *numbered(10)).outcome is Outcome.KEPT
    assert proxied.sink.visible() == sorted(numbered(10))


@pytest.mark.parametrize(
    "api", [Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS, Api.PRODUCE, Api.ADD_OFFSETS, Api.TXN_OFFSET_COMMIT]
)
def test_given_a_lost_reply_to_any_step_when_the_task_is_tried_again_then_the_batch_is_there_once(
    proxied: Proxied, api: Api
) -> None:
    rule = proxied.rule(api, lose_reply=True)
    try:
        proxied.write(0, *numbered(10))
    except TransactionError:
        proxied.write(0, *numbered(10))
    assert rule.hits == 1
    assert proxied.sink.visible() == sorted(numbered(10))


def test_given_a_commit_held_up_and_sent_again_when_it_arrives_in_the_next_batch_then_nothing_is_torn(
    proxied: Proxied,
) -> None:
    late = proxied.rule(Api.END_TXN, repeat_request=True)
    proxied.write(0, "one", "two")
    held = writer(proxied.plan, proxied.sink, 1)
    arrived = []

    def rows() -> Iterator[object]:
        yield from batches(["three"])
        late.release.set()  # the first record of the next transaction is on its way
        arrived.append(late.delivered.wait(WAIT_SECONDS))
        yield from batches(["four"])

    assert held.write(rows()).outcome is Outcome.WRITTEN
    assert arrived == [True]
    assert proxied.sink.visible() == sorted(["one", "two", "three", "four"])


def test_given_a_commit_that_reaches_the_broker_after_the_retry_began_then_the_batch_is_there_once(
    proxied: Proxied,
) -> None:
    held = proxied.rule(Api.END_TXN, hold_request=True, count=100)
    slow = replace(proxied.plan, options=replace(proxied.plan.options, transaction_timeout_seconds=6.0))
    assert fails(slow, proxied.sink)
    gc.collect()  # the failed producer would go on asking in the background
    held.count = held.hits
    proxied.write(0, *numbered(10))
    held.release.set()
    assert held.delivered.wait(WAIT_SECONDS)
    assert proxied.write(0, *numbered(10)).outcome is Outcome.KEPT
    assert proxied.sink.visible() == sorted(numbered(10))


@pytest.mark.parametrize("api", [Api.TXN_OFFSET_COMMIT, Api.END_TXN])
def test_given_a_reply_that_takes_two_seconds_when_written_then_the_batch_is_there_once(
    proxied: Proxied, api: Api
) -> None:
    rule = proxied.rule(api, delay_reply_seconds=2.0)
    assert proxied.write(0, *numbered(10)).outcome is Outcome.WRITTEN
    assert rule.hits == 1
    assert proxied.sink.visible() == sorted(numbered(10))


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (Api.INIT_PRODUCER_ID, Code.CONCURRENT_TRANSACTIONS),
        (Api.INIT_PRODUCER_ID, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (Api.ADD_OFFSETS, Code.CONCURRENT_TRANSACTIONS),
        (Api.END_TXN, Code.CONCURRENT_TRANSACTIONS),
        (Api.END_TXN, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (Api.OFFSET_FETCH, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (Api.OFFSET_FETCH, Code.NOT_COORDINATOR),
        (Api.OFFSET_FETCH, Code.UNSTABLE_OFFSET_COMMIT),
    ],
)
def test_given_a_broker_that_is_not_ready_when_written_then_it_is_asked_again(
    proxied: Proxied, api: Api, code: Code
) -> None:
    rule = proxied.rule(api, answer=code, count=2)
    assert proxied.write(0, *numbered(4)).outcome is Outcome.WRITTEN
    assert rule.hits == 2
    assert proxied.write(0, *numbered(4)).outcome is Outcome.KEPT
    assert proxied.sink.visible() == sorted(numbered(4))


def test_given_an_offset_on_its_way_when_the_retry_reads_its_marker_then_it_waits_for_it(proxied: Proxied) -> None:
    """The group's coordinator says `unstable` for a while after the commit: a retry must not read over it."""
    assert proxied.write(0, *numbered(4)).outcome is Outcome.WRITTEN
    rule = proxied.rule(Api.OFFSET_FETCH, answer=Code.UNSTABLE_OFFSET_COMMIT, count=3)
    assert proxied.write(0, *numbered(4)).outcome is Outcome.KEPT
    assert rule.hits == 3
    assert proxied.sink.visible() == sorted(numbered(4))
