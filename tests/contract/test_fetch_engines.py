"""Both engines of the data plane read the same real topics; every byte and every flag must be equal."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from discovery.core.errors import DataLossError
from discovery.core.model import parse_bootstrap_servers
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.fetch import FetchRange, FetchSettings, fetch, patience
from discovery.spark.fetch.schema import schema
from tests.support.fetch import closed_consumers, end_of, range_of
from tests.support.helpers import eventually

__all__ = ["closed_consumers"]
pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("closed_consumers")]
Read = Callable[..., pa.Table]
COMMITTED, UNCOMMITTED = ({"isolation.level": f"read_{level}"} for level in ("committed", "uncommitted"))


def read_with(cluster: LocalKafka, engine: str, ranges: Sequence[FetchRange], settings: FetchSettings) -> pa.Table:
    brokers = parse_bootstrap_servers(cluster.bootstrap_servers)
    chosen = replace(settings, engine=engine)
    batches = list(fetch(ranges, brokers, chosen, on_waiting=print))
    wanted = schema(settings.include_headers)
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(wanted, check_metadata=True)
        assert batch.num_rows > 0
    table = pa.Table.from_batches(batches, wanted)
    return table.combine_chunks().sort_by([("partition", "ascending"), ("offset", "ascending")])


def read_both(cluster: LocalKafka, ranges: Sequence[FetchRange], **settings: object) -> pa.Table:
    """Read with each engine, twice; return the one table that all readings gave."""
    chosen = FetchSettings(**settings)  # type: ignore[arg-type]
    plain = read_with(cluster, "python", ranges, chosen)
    for _ in range(2):
        fast = read_with(cluster, "native", ranges, chosen)
        assert fast.equals(plain), f"{fast.to_pylist()[:3]} is not {plain.to_pylist()[:3]}"
    return plain


def writer(cluster: LocalKafka, **options: str) -> Producer:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20, "log_level": 0, **named})


def odd_records(count: int, seed: int = 5) -> list[dict[str, object]]:
    """Make records with everything a record may have: nulls, empties, headers repeated, null, empty, not ASCII."""
    chance = random.Random(seed)

    def text() -> bytes | None:
        return chance.choice([None, b"", b"x", chance.randbytes(chance.randint(1, 300))])

    def headers() -> list[tuple[str, bytes | None]] | None:
        some = [(chance.choice(["", "h", "häder", "h" * 90]), text()) for _ in range(chance.randint(0, 4))]
        return chance.choice([None, some, some])

    return [{"key": text(), "value": text(), "headers": headers()} for _ in range(count)]


def write(producer: Producer, topic: str, records: Sequence[Mapping[str, object]], partitions: int = 1) -> None:
    for number, record in enumerate(records):
        producer.produce(topic, partition=number % partitions, **record)  # type: ignore[arg-type]
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
def test_given_odd_records_when_both_read_then_every_byte_is_equal(
    kafka_cluster: LocalKafka, topic_name: str, codec: str, stamp: str
) -> None:
    kafka_cluster.create_topic(topic_name, 3, config={"message.timestamp.type": stamp})
    records = odd_records(900)
    write(writer(kafka_cluster, compression_codec=codec), topic_name, records, 3)
    ranges = [range_of(topic_name, partition, 7 * partition, 300 - partition) for partition in range(3)]
    for headers in (True, False):
        table = read_both(kafka_cluster, ranges, include_headers=headers)
        assert table.num_rows == 900 - 21 - 3
        assert set(table["timestampType"].to_pylist()) == {["CreateTime", "LogAppendTime"].index(stamp)}
    assert [row["value"] for row in table.to_pylist()[:50]] == [records[3 * i]["value"] for i in range(50)]


def test_given_records_of_ten_megabytes_when_both_read_then_they_are_equal(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 1, config={"max.message.bytes": "12000000"})
    chance = random.Random(1)
    records = [{"key": b"k", "value": chance.randbytes(10_000_000)} for _ in range(3)]
    records[1:1] = [{"key": b"small", "value": b"small"}]
    write(writer(kafka_cluster, message_max_bytes="12000000"), topic_name, records)
    assert [len(v.as_py()) for v in read_both(kafka_cluster, [range_of(topic_name, 0, 0, 4)])["value"]] == [
        10_000_000, 5, 10_000_000, 10_000_000
    ]  # fmt: skip


def test_given_transactions_when_both_read_any_ranges_then_they_are_equal(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 2)
    chance = random.Random(3)
    producer = writer(kafka_cluster, transactional_id=topic_name)
    producer.init_transactions(60)
    for number in range(20):
        producer.begin_transaction()
        write(producer, topic_name, [{"value": f"{number}-{i}"} for i in range(chance.randint(1, 20))], 2)
        producer.commit_transaction(20) if chance.random() < 2 / 3 else producer.abort_transaction(20)
    ends = [end_of(kafka_cluster, topic_name, partition) for partition in range(2)]
    producer.begin_transaction()  # stays open beyond the ends
    write(producer, topic_name, [{"value": "open"}] * 6, 2)
    seen = set()
    for isolation in (COMMITTED, UNCOMMITTED):
        whole = [range_of(topic_name, partition, 0, ends[partition]) for partition in range(2)]
        seen.add(read_both(kafka_cluster, whole, client_options=isolation).num_rows)
        for _ in range(10):
            ranges = []
            for partition in range(2):
                start = chance.randint(0, ends[partition])
                ranges.append(range_of(topic_name, partition, start, chance.randint(start, ends[partition])))
            read_both(kafka_cluster, ranges, client_options=isolation)
    assert len(seen) == 2
    rows = read_both(kafka_cluster, [range_of(topic_name, 0, ends[0], ends[0] + 3)], client_options=UNCOMMITTED)
    assert rows["value"].to_pylist() == [b"open"] * 3
    producer.abort_transaction(20)
    last = [range_of(topic_name, 0, ends[0] + 3, ends[0] + 4)]  # nothing but a control record
    assert read_both(kafka_cluster, last, client_options=COMMITTED).num_rows == 0


def test_given_a_compacted_log_when_both_read_then_the_gaps_are_equal(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    config = {
        "cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100", "delete.retention.ms": "100",
    }  # fmt: skip
    kafka_cluster.create_topic(topic_name, 1, config=config)
    producer = writer(kafka_cluster)

    def has_gaps() -> bool:
        write(producer, topic_name, [{"key": f"k{i % 7}", "value": str(i)} for i in range(50)])
        end = end_of(kafka_cluster, topic_name)
        found = read_with(kafka_cluster, "python", [range_of(topic_name, 0, 0, end)], FetchSettings())
        return bool(found.num_rows < end)

    eventually(has_gaps, 60, "compaction")
    for start, end in ((0, 50), (3, 20), (10, 11), (0, end_of(kafka_cluster, topic_name))):
        # Compaction goes on between two readings: compare what is left in the end.
        def are_equal(start: int = start, end: int = end) -> bool:
            wanted = [range_of(topic_name, 0, start, end)]
            tables = [read_with(kafka_cluster, engine, wanted, FetchSettings()) for engine in ("python", "native")]
            return bool(tables[0].equals(tables[1]))

        eventually(are_equal, 30, f"equal rows from {start} to {end}")


def test_given_lost_records_when_either_reads_then_both_say_the_same(
    kafka_cluster: LocalKafka, topic_name: str
) -> None:
    kafka_cluster.create_topic(topic_name, 1)
    write(writer(kafka_cluster), topic_name, [{"value": str(i)} for i in range(20)])
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers, "log_level": 0})
    for future in admin.delete_records([ConfluentPartition(topic_name, 0, 8)]).values():
        future.result(20)
    for ranges in ([range_of(topic_name, 0, 5, 15)], [range_of(topic_name, 0, 25, 30)]):
        said = []
        for engine in ("python", "native"):
            with pytest.raises(DataLossError) as error:
                read_with(kafka_cluster, engine, ranges, FetchSettings())
            said.append(str(error.value))
        assert said[0] == said[1]
    assert read_both(kafka_cluster, [range_of(topic_name, 0, 5, 15)], fail_on_data_loss=False)[
        "offset"
    ].to_pylist() == [*range(8, 15)]
    assert read_both(kafka_cluster, [range_of(topic_name, 0, -2, 10)])["offset"].to_pylist() == [8, 9]


@pytest.mark.parametrize("is_known", [True, False], ids=["its-id-is-known", "its-id-is-not"])
def test_given_a_topic_recreated_after_its_leader_moved_when_read_on_then_either_reads_the_new_one(
    kafka_cluster: LocalKafka, topic_name: str, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers, "log_level": 0})

    def topic_id() -> str:
        asked = admin.describe_topics(TopicCollection([topic_name]))[topic_name]
        return "" if asked.exception() else str(asked.result().topic_id)

    def is_written() -> bool:
        producer = writer(
            kafka_cluster
        )  # a new one each time: one that heard a lagging broker first ignores the new topic
        for record in odd_records(5):
            producer.produce(topic_name, partition=0, **record)  # type: ignore[arg-type]
        return producer.flush(5) == 0

    def make(leader: int, *, former: str = "") -> str:
        kafka_cluster.create_topic(topic_name, assignment=[[leader, 2]])
        # A broker that lags behind tells the former one, or none.
        reported = ""

        def is_answer() -> bool:
            nonlocal reported
            reported = topic_id()
            return reported not in ("", former)

        eventually(is_answer, 20, "the topic's id")
        eventually(is_written, 60, "records in the topic")
        return reported

    def read(topic_id: str) -> None:
        for engine in ("python", "native"):
            table = read_with(kafka_cluster, engine, [range_of(topic_name, 0, 0, 5, topic_id)], FetchSettings())
            assert table.num_rows == 5

    first = make(leader=1)
    read(first)
    try:
        kafka_cluster.terminate([1])  # broker 2 leads, in a later epoch, and both cached clients learn of it
        read(first)
    finally:
        kafka_cluster.restart([1])
    kafka_cluster.delete_topic(topic_name)
    again = make(leader=3, former=first)
    if not is_known:
        # As where a new client heard of the former topic from a broker that lags behind.
        monkeypatch.setattr(patience, "_OUTDATED_AFTER_SECONDS", 5.0)
    read(again if is_known else first)
