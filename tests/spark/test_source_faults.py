"""The source in real Spark while brokers die: nobody waits for them who need not, and nothing is lost."""

from pathlib import Path

import pytest

from discovery.localkafka.cluster import LocalKafka
from tests.spark.conftest import ReadStream
from tests.support.helpers import eventually, numbered, produce
from tests.support.spark.fixtures import replicas

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
EARLIEST = {"startingOffsets": "earliest"}


def one_leader_each(cluster: LocalKafka, topic: str, count: int, leaders: int) -> list[list[str]]:
    """Make a topic without replicas, partition i on broker i + 1, with `count` records each."""
    cluster.create_topic(topic, assignment=[[leader + 1] for leader in range(leaders)])
    values = [list(numbered(count, prefix=f"p{partition}-")) for partition in range(leaders)]
    for partition, found in enumerate(values):
        produce(cluster.bootstrap_servers, topic, *found, partition=partition)
    return values


def test_given_an_unfinished_batch_when_restarted_on_a_list_of_dead_brokers_then_it_is_replayed_from_the_saved_view(
    breakable: LocalKafka, topic_name: str, read_stream: ReadStream, tmp_path: Path
) -> None:
    breakable.create_topic(topic_name, assignment=replicas((1, 2, 3, 4), brokers=4))
    options = {"subscribe": topic_name, "stateDir": str(tmp_path / "state"), **EARLIEST}
    produce(breakable.bootstrap_servers, topic_name, *numbered(40))
    first = read_stream(options, cluster=breakable)
    first.wait_rows(40)
    eventually(lambda: list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")), 20, "a commit")
    first.query.stop()
    # As if the driver had died under the batch: planned, not committed.
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    breakable.kill([1])
    produce(breakable.bootstrap_servers, topic_name, *numbered(20, prefix="new"))
    options["kafka.bootstrap.servers"] = breakable.address(1)
    second = read_stream(options, cluster=breakable)
    second.wait_rows(20 + first.batches[-1])
    assert set(numbered(20, prefix="new")) <= set(second.values())
    assert len(set(first.values()) | set(second.values())) == 60


def test_given_a_bounded_run_when_a_leader_is_dead_then_the_rest_is_read_and_it_says_which_it_lacks(
    breakable: LocalKafka, topic_name: str, read_stream: ReadStream
) -> None:
    values = one_leader_each(breakable, topic_name, 20, leaders=2)
    breakable.kill([2])
    options = {"subscribe": topic_name, "startupTimeout": "8s", **EARLIEST}
    reading = read_stream(options, cluster=breakable, available_now=True)
    with pytest.raises(Exception, match=r"Trigger\.AvailableNow cannot reach its end") as error:
        reading.wait_end()
    assert f"{topic_name}-1 (it" in str(error.value)
    assert reading.values() == sorted(values[0])
    breakable.restart([2])
    again = read_stream(options, cluster=breakable, available_now=True)
    again.wait_end()
    assert again.values() == sorted(values[1])
