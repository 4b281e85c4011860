"""What a worker holds stays bounded: memory whatever the number of partitions, threads and descriptors over tasks."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from discovery.core.model import TopicName, TopicPartition, parse_bootstrap_servers
from discovery.localkafka.cluster import LocalKafka
from discovery.spark.fetch import FetchRange, FetchSettings, fetch
from discovery.spark.fetch.cache import close_all
from tests.support.fakes.mock_cluster import MockCluster
from tests.support.fetch import closed_consumers
from tests.support.helpers import eventually
from tests.support.worker_memory import measure

__all__ = ["closed_consumers"]
pytestmark = pytest.mark.usefixtures("closed_consumers")
ROUNDS, PARTITIONS, ROWS = 200, 6, 5


def held() -> tuple[int, int]:
    """Count this process's threads and descriptors."""
    task, fd = (len(list(Path("/proc/self", name).iterdir())) for name in ("task", "fd"))
    return task, fd


def read_while_leaders_move(engine: str, topic_name: str) -> None:
    """Read in many tasks from a cluster of librdkafka's own, and assert that this process holds no more at the end."""
    with MockCluster(3) as mock:
        mock.call("topic_create", topic_name, PARTITIONS, 3)
        producer = Producer({"bootstrap.servers": mock.bootstrap_servers, "log_level": 0})
        for number in range(ROUNDS * PARTITIONS * ROWS):
            producer.produce(topic_name, str(number), partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(30) == 0
        brokers = parse_bootstrap_servers(mock.bootstrap_servers)
        settings = FetchSettings(engine=engine, client_options={"topic.metadata.refresh.interval.ms": "200"})
        early = most = (0, 0)
        for round_ in range(ROUNDS):
            if round_ % 10 == 0:
                mock.call("partition_set_leader", topic_name, round_ // 10 % PARTITIONS, 1 + round_ // 10 % 3)
            ranges = [
                FetchRange(
                    topic_partition=TopicPartition(TopicName(topic_name), partition),
                    start_offset=round_ * ROWS,
                    end_offset=(round_ + 1) * ROWS,
                )
                for partition in range(PARTITIONS)
            ]
            read = sum(batch.num_rows for batch in fetch(ranges, brokers, settings, on_waiting=print))
            assert read == ROWS * PARTITIONS
            most = max(most, held())
            if round_ == ROUNDS // 4:
                early, most = most, (0, 0)
        assert most[0] <= early[0] + 1
        assert most[1] <= early[1] + 2
        before = {thread.name for thread in threading.enumerate()}
        close_all()
        eventually(lambda: held()[0] < early[0], 10, f"the end of the client's threads ({before})")


@pytest.mark.parametrize("engine", ["native", "python"])
def test_given_leaders_that_move_when_many_tasks_read_then_neither_threads_nor_descriptors_grow(
    engine: str, topic_name: str
) -> None:
    # A process of its own, like a worker: this one holds the threads of every client the other tests have open.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        process.submit(read_while_leaders_move, engine, topic_name).result(timeout=300)


@pytest.mark.kafka
@pytest.mark.parametrize("engine", ["native", pytest.param("python", marks=pytest.mark.long)])
def test_given_few_or_many_partitions_when_the_taker_is_slow_then_a_worker_stays_within_its_memory(
    kafka_cluster: LocalKafka, topic_name: str, engine: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "log_level": 0})
    for partitions in (10, 300):
        topic = f"{topic_name}-{partitions}"
        kafka_cluster.create_topic(topic, partitions, replication_factor=1)
        for number in range(300_000):
            while True:
                try:
                    producer.produce(topic, b"x" * 200, partition=number % partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
        queries = 3 if partitions == 300 else 1
        found = measure(kafka_cluster.bootstrap_servers, topic, engine, 16, 0.05 / queries, queries=queries)
        assert found["rows"] == queries * 300_000
        # Above the bound: what the allocator keeps, and what a client needs for its partitions and threads.
        assert found["peak_above_mib"] <= 16 + 40 + 10 * (queries - 1)
