"""Batches that end without their dead leaders, and repair themselves: every row once, whatever dies in between."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from discovery.spark.source.cuts.ledger_file import read_ledger
from discovery.spark.source.cuts.rules import CutRecord
from tests.support.helpers import eventually, numbered, produce
from tests.support.spark.driver import Query, SparkDriver, joined
from tests.support.spark.fixtures import StartQuery, replicas
from tests.support.spark.oracle import Load, Row, assert_exactly_once

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
ALL_SIX = (1, 2, 3, 4, 5, 6)
STARTS = 3


def a_planned_batch(cluster: LocalKafka, topic: str, query: Query) -> None:
    """Hold one batch that promises 50 records of every partition."""
    query.linger()
    produce(cluster.bootstrap_servers, topic, "before the batch", partition=2)
    query.wait_until(lambda: "before the batch" in query.values(), "the record before")
    for partition in range(6):
        produce(cluster.bootstrap_servers, topic, *numbered(50, prefix=f"{partition}-"), partition=partition)
    query.hold()
    query.file.with_suffix(".linger").unlink()
    eventually(query.in_flight, 30, "a planned batch")


@pytest.fixture
def own_driver(tmp_path: Path) -> Iterator[SparkDriver]:
    """A driver to kill, whose tasks may be tried again."""
    with SparkDriver(tmp_path, master="local[6,4]") as driver:
        yield driver


@pytest.mark.parametrize(
    "pieces",
    [pytest.param({}, id="whole"), pytest.param({"minPartitions": "12"}, id="split", marks=pytest.mark.long)],
)
def test_given_a_batch_in_flight_when_its_sole_leaders_die_then_it_ends_without_them_and_they_resume_exactly(
    breakable: LocalKafka, driver: SparkDriver, start_query: StartQuery, topic_name: str, pieces: dict[str, str]
) -> None:
    breakable.create_topic(topic_name, assignment=replicas(ALL_SIX, copies=1))
    breakable.create_topic(f"{topic_name}-other", assignment=replicas((5, 6), copies=1))
    # A leader that refuses connections is not waited for: so much patience would let the test fail.
    query = start_query(topic_name, sourceId=topic_name, cutAfter="300s", **pieces)
    other = start_query(f"{topic_name}-other")
    produce(breakable.bootstrap_servers, topic_name, *numbered(60, prefix="first-"), partition=2)
    query.wait_rows(60)
    a_planned_batch(breakable, topic_name, query)
    # As many leaders as the driver has slots: without cuts their tasks would leave none to the other query.
    breakable.kill([1, 2, 3, 4])
    with (
        Load(breakable.bootstrap_servers, topic_name, (4, 5)) as load,
        Load(breakable.bootstrap_servers, f"{topic_name}-other", range(2)) as others,
    ):
        query.release()
        load.wait_more(100)
        query.wait_until(lambda: {r.partition for r in query.rows()} == {2, 4, 5}, "rows of the living", 15)
        for both in (query, other, query, other):
            both.wait_rows(both.count() + 200, 20)
        assert {r.partition for r in query.rows()} == {2, 4, 5}
        others.stop()
        breakable.heal()
        query.wait_until(lambda: {r.partition for r in query.rows()} == set(range(6)), "rows of the dead")
        load.stop()
    query.wait_rows(61 + 300 + len(load.acknowledged))
    query.assert_alive()
    other.wait_rows(len(others.acknowledged))
    assert_exactly_once(other.rows(), others.acknowledged)
    assert len({(r.partition, r.offset) for r in query.rows()}) == query.count() == 361 + len(load.acknowledged)
    said = [line for line in driver.log().splitlines() if topic_name in line]
    assert any("cut, since nobody could be read from" in line and f"{topic_name}-0" in line for line in said)
    assert any("set back to where they were cut" in line and f"{topic_name}-1" in line for line in said)


SHAPES = ("twice", "union", "count", "parquet")
"""Two actions on each batch, a union with itself, a stateful count, and Spark's own file sink."""


def started(driver: SparkDriver, cluster: LocalKafka, topic: str) -> list[Query]:
    def start(shape: str) -> Query:
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": topic,
            "sourceId": shape,
            "stateDir": str(driver.folder / "ledgers"),
        }
        lock = driver.folder / "ledgers" / "ledgers" / f"{shape}.lock"
        # One after the other, and again where one did not: Spark gives each source's process ten seconds to come up,
        # however busy the machine is.
        for _ in range(STARTS):
            query = driver.query(options, checkpoint=driver.folder / shape, shape=shape)
            eventually(partial(holder_lives_or_ended, lock, query), 90, f"source {shape}")
            if holder_lives(lock):
                return query
        raise AssertionError(f"source {shape}: {query.status()['failure']}")

    return [start(shape) for shape in SHAPES]


def holder_lives_or_ended(lock: Path, query: Query) -> bool:
    return holder_lives(lock) or not query.status()["active"]


def holder_lives(lock: Path) -> bool:
    """Tell whether the process that holds a source's ledger is there."""
    pids = lock.read_text().split() if lock.exists() else []
    return bool(pids) and Path(f"/proc/{pids[0]}").exists()


def cuts_of(driver: SparkDriver, shapes: Sequence[str]) -> list[CutRecord]:
    """Read what the ledgers of these queries hold now."""
    found = [read_ledger(driver.folder / "ledgers", shape) for shape in shapes]
    return [record for state in found if state is not None for record in state.records.values()]


def kept_exactly(runs: Sequence[Sequence[Query]], wanted: Sequence[Row]) -> bool:
    """Compare what all runs delivered in each shape; waits are the caller's."""
    twice, union, count = (joined(*(run[index] for run in runs)) for index in range(3))
    counts = {tp: max(row.offset for row in count if row.partition == tp) for tp in {row.partition for row in count}}
    return (
        len(twice) == len(wanted) and len(union) == 2 * len(wanted) and counts == Counter(r.partition for r in wanted)
    )


def test_given_every_kind_of_sink_when_leaders_workers_and_the_driver_die_then_each_row_is_once_in_each(
    breakable: LocalKafka, own_driver: SparkDriver, topic_name: str
) -> None:
    breakable.create_topic(topic_name, assignment=replicas(ALL_SIX, copies=1))
    with Load(breakable.bootstrap_servers, topic_name, range(6)) as load:
        first = started(own_driver, breakable, topic_name)
        for query in first[:3]:
            query.wait_rows(6)
            query.hold()
        for query in first[:3]:
            eventually(query.in_flight, 30, "a planned batch")
        load.wait_more(100)
        breakable.kill([1, 2])
        for query in first[:3]:
            query.release()
        own_driver.kill_workers()
        # The fourth query, which is not held, is cut as well: its word in the log is none of theirs.
        eventually(lambda: cuts_of(own_driver, SHAPES[:3]), 60, "a cut")
        own_driver.kill()
        own_driver.start()
        second = started(own_driver, breakable, topic_name)
        breakable.heal()
        load.wait_more(100, partitions={0, 1}, deadline_seconds=60)
        load.stop()
    wanted = load.acknowledged
    second[0].wait_until(lambda: kept_exactly([first, second], wanted), "every row in every sink")
    assert_exactly_once(joined(first[0], second[0]), wanted)
    assert set(Counter(joined(first[1], second[1])).values()) == {2}
    cuts = cuts_of(own_driver, SHAPES[:3])
    assert cuts
    assert all(r.query and r.batch is not None for r in cuts), "workers tell whose batch it is"
    path = str(own_driver.folder / "parquet.parquet")
    eventually(lambda: len(own_driver.ask("parquet", path=path)) >= len(wanted), 60, "every row in the files")
    assert_exactly_once([Row(*row) for row in own_driver.ask("parquet", path=path)], wanted)
