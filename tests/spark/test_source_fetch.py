"""The data plane on real brokers, without Spark: faults. What the engines read is compared in `tests/contract`."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer

from discovery.core.errors import DataLossError, GatewayError
from discovery.core.model import BrokerAddress, parse_bootstrap_servers
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ClusterSettings
from discovery.spark.fetch import FetchRange, FetchSettings, fetch
from discovery.spark.fetch.schema import schema
from tests.support.fakes.stream import ScriptedArbiter
from tests.support.faults import refused_port
from tests.support.fetch import closed_consumers, end_of, range_of
from tests.support.helpers import eventually, numbered, produce
from tests.support.kafka_fixtures import KafkaFactory
from tests.support.proxy import Api, KafkaProxy, Rule

__all__ = ["closed_consumers"]
pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("closed_consumers")]
COMMITTED = FetchSettings(client_options={"isolation.level": "read_committed"})
UNCOMMITTED = FetchSettings(client_options={"isolation.level": "read_uncommitted"})
TOLERANT = FetchSettings(fail_on_data_loss=False)


def brokers_of(cluster: LocalKafka) -> tuple[BrokerAddress, ...]:
    return parse_bootstrap_servers(cluster.bootstrap_servers)


def read(
    cluster: LocalKafka,
    ranges: Sequence[FetchRange],
    settings: FetchSettings = UNCOMMITTED,
    said: list[str] | None = None,
) -> list[dict[str, object]]:
    batches = list(fetch(ranges, brokers_of(cluster), settings, on_waiting=(said if said is not None else []).append))
    assert all(batch.schema.equals(schema(settings.include_headers), check_metadata=True) for batch in batches)
    rows: list[dict[str, object]] = pa.Table.from_batches(batches, schema(settings.include_headers)).to_pylist()
    return rows


def offsets(rows: Sequence[dict[str, object]], partition: int = 0) -> list[object]:
    return [row["offset"] for row in rows if row["partition"] == partition]


def _note(written: list[tuple[int, int]]) -> Callable[[object, Message], None]:
    return lambda _, message: written.append((message.partition() or 0, message.offset() or 0))


def transactions(cluster: LocalKafka, topic: str, *, seed: int) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Write 30 transactions over 3 partitions, a third of them aborted; returns committed and all offsets."""
    chance = random.Random(seed)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    committed: dict[int, list[int]] = defaultdict(list)
    everything: dict[int, list[int]] = defaultdict(list)
    for number in range(30):
        written: list[tuple[int, int]] = []
        producer.begin_transaction()
        for i in range(chance.randint(1, 25)):
            producer.produce(topic, value=f"{number}-{i}", partition=i % 3, on_delivery=_note(written))
        producer.flush(20)
        keep = chance.random() < 2 / 3
        producer.commit_transaction(20) if keep else producer.abort_transaction(20)
        for partition, offset in written:
            everything[partition].append(offset)
            if keep:
                committed[partition].append(offset)
    return committed, everything


def test_given_transactions_when_any_ranges_are_read_in_any_order_then_each_is_exact(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 3)
    committed, everything = transactions(kafka_cluster, topic_name, seed=7)
    ends = [end_of(kafka_cluster, topic_name, partition) for partition in range(3)]
    chance = random.Random(11)
    for settings, visible in ((COMMITTED, committed), (UNCOMMITTED, everything)):
        assert offsets(read(kafka_cluster, [range_of(topic_name, 1, 0, ends[1])], settings), 1) == visible[1]
        for _ in range(60):
            ranges = []
            for partition in chance.sample(range(3), chance.randint(1, 3)):
                start = chance.randint(0, ends[partition])
                ranges.append(range_of(topic_name, partition, start, chance.randint(start, ends[partition])))
            rows = read(kafka_cluster, ranges, settings)
            for r in ranges:
                partition = r.topic_partition.partition
                wanted = [o for o in visible[partition] if r.start_offset <= o < r.end_offset]
                assert offsets(rows, partition) == wanted


def test_given_a_range_that_holds_only_a_control_record_when_read_after_its_neighbour_then_it_ends(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 3)
    transactions(kafka_cluster, topic_name, seed=3)
    end = end_of(kafka_cluster, topic_name)
    read(kafka_cluster, [range_of(topic_name, 0, 0, end - 1)], COMMITTED)
    assert read(kafka_cluster, [range_of(topic_name, 0, end - 1, end)], COMMITTED) == []
    assert read(kafka_cluster, [range_of(topic_name, 0, end - 1, end)], COMMITTED) == []


def test_given_an_iterator_closed_early_when_the_next_task_reads_then_it_misses_nothing(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(3_000))
    settings = FetchSettings(batch_rows=100)
    batches = fetch([range_of(topic_name, 0, 0, 3_000)], brokers_of(kafka_cluster), settings, on_waiting=print)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    rows = read(kafka_cluster, [range_of(topic_name, 0, 50, 3_000)], settings)
    assert offsets(rows) == list(range(50, 3_000))


def test_given_large_records_when_read_then_a_batch_stays_small(kafka_cluster: LocalKafka, topic_name: str) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *[b"x" * 500_000 for _ in range(200)])
    found = fetch([range_of(topic_name, 0, 0, 200)], brokers_of(kafka_cluster), UNCOMMITTED, on_waiting=print)
    sizes = [batch.num_rows for batch in found]
    assert sum(sizes) == 200
    assert max(sizes[1:]) <= 40


def test_given_a_log_that_ends_before_the_range_when_read_then_it_fails_or_ends(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(5))
    with pytest.raises(DataLossError, match="ends at offset 5, below the planned offset 9: it was truncated"):
        read(kafka_cluster, [range_of(topic_name, 0, 9, 12)])
    with pytest.raises(DataLossError, match="ends at offset 5, below the planned end 12: it was truncated"):
        read(kafka_cluster, [range_of(topic_name, 0, 2, 12)])
    assert offsets(read(kafka_cluster, [range_of(topic_name, 0, 2, 12)], TOLERANT)) == [2, 3, 4]


def test_given_a_topic_that_does_not_exist_when_read_then_it_fails(kafka_cluster: LocalKafka, topic_name: str) -> None:
    with pytest.raises(DataLossError, match="does not exist"):
        read(kafka_cluster, [range_of(topic_name, 0, 0, 5)])


def test_given_dead_leaders_when_read_then_the_others_come_first_and_theirs_when_they_are_back(
    kafka_factory: KafkaFactory, topic_name: str
) -> None:
    cluster = kafka_factory(brokers=3)
    cluster.create_topic(topic_name, assignment=[[1], [2], [3]])
    for partition in range(3):
        produce(cluster.bootstrap_servers, topic_name, *numbered(100), partition=partition)
    ranges = [range_of(topic_name, partition, 0, 100) for partition in range(3)]
    read(cluster, ranges)
    cluster.kill([2])
    said: list[str] = []
    seen: list[int] = []

    def task() -> None:
        for batch in fetch(ranges, brokers_of(cluster), UNCOMMITTED, on_waiting=said.append):
            seen.extend(batch.column("partition").to_pylist())

    thread = threading.Thread(target=task, name="task")
    thread.start()
    try:
        eventually(lambda: len(seen) == 200, 20, "the rows of living leaders")
        eventually(lambda: said, 30, "a sentence")
        assert said[0] == f"waiting for the leader of {topic_name}-1 at offset 0 of 100"
    finally:
        cluster.restart([2])
        thread.join(60)
    assert sorted(seen) == [0] * 100 + [1] * 100 + [2] * 100


@pytest.fixture
def slow_to_fence() -> Iterator[LocalKafka]:
    """Three brokers of which a frozen one leads for a minute, however late it is asked for."""
    with LocalKafka(
        ClusterSettings(brokers=3, controller_properties={"broker.session.timeout.ms": "60000"})
    ) as cluster:
        yield cluster


@pytest.fixture
def former() -> Iterator[str]:
    """An address that refuses connections as long as the test lasts."""
    with refused_port() as address:
        yield address


@pytest.mark.parametrize("engine", ["native", "python"])
def test_given_a_frozen_leader_that_had_moved_when_it_is_killed_then_a_cut_is_proposed_at_once_and_not_before(
    slow_to_fence: LocalKafka, former: str, topic_name: str, engine: str
) -> None:
    """A cut decides only where a batch's range ends: a false one would cost time, never rows."""
    cluster = slow_to_fence
    cluster.create_topic(topic_name, assignment=[[1], [2], [3]])
    for partition in range(3):
        produce(cluster.bootstrap_servers, topic_name, *numbered(100), partition=partition)
    leaders = [parse_bootstrap_servers(cluster.address(number))[0] for number in cluster.broker_ids]
    leaders[1] = parse_bootstrap_servers(former)[0]
    ranges = [replace(range_of(topic_name, p, 0, 100), leader_address=at) for p, at in enumerate(leaders)]
    settings = replace(UNCOMMITTED, engine=engine)
    read(cluster, ranges, settings)
    arbiter = ScriptedArbiter()
    arbiter.cut_after_seconds = 300.0
    seen: list[int] = []

    def task() -> None:
        for batch in fetch(ranges, brokers_of(cluster), settings, on_waiting=lambda _: None, arbiter=arbiter):
            seen.extend(batch.column("partition").to_pylist())

    cluster.pause([2])
    thread = threading.Thread(target=task, name="task")
    thread.start()
    try:
        eventually(lambda: len(seen) == 200, 60, "the rows of living leaders")
        thread.join(2)  # several checks: the kernel accepts connections for who is stopped
        assert arbiter.proposed == []
    finally:
        cluster.kill([2])
    # The next check comes after twice the time at most, however busy the machine is.
    thread.join(60)
    assert not thread.is_alive()
    assert arbiter.proposed == [{ranges[0]: 100, ranges[1]: 0, ranges[2]: 100}]
    assert sorted(seen) == [0] * 100 + [2] * 100


@pytest.mark.parametrize("engine", ["native", "python"])
def test_given_a_living_leader_that_closes_connections_when_read_then_nothing_is_cut(
    kafka_cluster: LocalKafka, topic_name: str, engine: str
) -> None:
    kafka_cluster.create_topic(topic_name, assignment=[[1], [2]])
    for partition in range(2):
        produce(kafka_cluster.bootstrap_servers, topic_name, *numbered(100), partition=partition)
    with KafkaProxy({number: kafka_cluster.address(number) for number in kafka_cluster.broker_ids}) as proxy:
        addresses = parse_bootstrap_servers(proxy.bootstrap_servers)
        ranges = [replace(range_of(topic_name, p, 0, 100), leader_address=addresses[p]) for p in range(2)]
        closed = proxy.rule(Rule(api=Api.FETCH, count=4, lose_reply=True))
        arbiter = ScriptedArbiter()
        arbiter.cut_after_seconds = 300.0
        settings = replace(UNCOMMITTED, engine=engine)
        batches = list(fetch(ranges, addresses, settings, on_waiting=lambda _: None, arbiter=arbiter))
        assert sum(batch.num_rows for batch in batches) == 200
    assert closed.hits == 4
    assert proxy.carried[Api.FETCH] == 2 + 4, "each closed connection is replaced by one, by the client that has it"
    assert arbiter.proposed == [dict.fromkeys(ranges, 100)]


def test_given_brokers_on_new_addresses_when_the_cached_consumer_knows_nobody_then_the_tasks_list_is_used(
    kafka_factory: KafkaFactory, topic_name: str
) -> None:
    first, second = kafka_factory(brokers=1), kafka_factory(brokers=1)
    for cluster in (first, second):
        cluster.create_topic(topic_name)
        produce(cluster.bootstrap_servers, topic_name, *numbered(10))
    assert len(read(first, [range_of(topic_name, 0, 0, 10)])) == 10
    first.kill([1])
    began = time.monotonic()
    assert offsets(read(second, [range_of(topic_name, 0, 3, 10)])) == list(range(3, 10))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("engine", ["native", "python"])
def test_given_a_wrong_password_when_read_then_it_fails_and_does_not_hang(
    kafka_factory: KafkaFactory, topic_name: str, engine: str
) -> None:
    cluster = kafka_factory(brokers=1, sasl_users={"reader": "right"})
    cluster.create_topic(topic_name)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "reader"}
    settings = FetchSettings(engine=engine, client_options={**login, "sasl.password": "wrong"})
    began = time.monotonic()
    with pytest.raises(GatewayError, match="auth"):
        read(cluster, [range_of(topic_name, 0, 0, 5)], settings)
    assert time.monotonic() - began < 20
