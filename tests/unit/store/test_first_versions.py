"""What the first versions wrote, byte for byte as their code did, is read by this one.

Records of users outlive our code: a checkpoint's ledger, a sink's markers and the files under `stateDir`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from discovery.core.errors import StateError
from discovery.core.model import (
    Broker,
    BrokerAddress,
    BrokerId,
    ClusterId,
    Generation,
    PartitionMetadata,
    Snapshot,
    Tombstone,
    TopicId,
    TopicMetadata,
    TopicName,
)
from discovery.spark.sink.marker import Control, Marker
from discovery.spark.sink.offsets import SourceOffset, topic_of
from discovery.spark.source.cuts.ledger import Incarnation
from discovery.spark.source.cuts.ledger_file import FileLedger
from discovery.spark.source.cuts.rules import CutRecord
from discovery.store.codec import Saved, decode, encode
from discovery.store.topic_ids import TopicIdStore
from tests.support.fakes.feed import tp

VIEW = (
    rb'{"schema": 1, "sha256": "07eac30487c9645de5c3b03c133184945fb66d855ae3e8eb50f1300b1e40b505", "payload": "{'
    rb"\"brokers\":[{\"address\":{\"host\":\"b1\",\"port\":9092},\"broker_id\":1,\"rack\":\"r1\"},"
    rb"{\"address\":{\"host\":\"b2\",\"port\":9092},\"broker_id\":2,\"rack\":null}],"
    rb"\"cluster_id\":\"ours\",\"confirmed_wall\":99.25,\"generation\":5,"
    rb"\"known_addresses\":[\"b1:9092\",\"b9:9093\"],"
    rb"\"tombstones\":[{\"since_wall\":12.5,\"topic\":{\"name\":\"gone\",\"partitions\":[],\"topic_id\":null}}],"
    rb"\"topics\":[{\"name\":\"t\",\"partitions\":["
    rb"{\"in_sync\":[1],\"leader_epoch\":null,\"leader_id\":1,\"partition\":0,\"replicas\":[1,2]},"
    rb"{\"in_sync\":[],\"leader_epoch\":null,\"leader_id\":null,\"partition\":1,\"replicas\":[2]}"
    rb'],\"topic_id\":\"a\"}]}"}' + b"\n"
)
TOPIC_IDS = b'{"schema": 1, "topics": {"t": {"a": [0], "b": [1]}}}'
LEDGER = b"""\
71fc81713cb7b67b {"ledger":1}
dbe55257e841444d {"end":{"t":{"0":20}},"kind":"incarnation","number":1,"start":{"t":{"0":0}}}
2049ceb4784371c9 {"applied":false,"cut":8,"end":20,"incarnation":1,"kind":"cut","plan":3,"start":5,"topic_id":"a",\
"topic_partition":{"partition":0,"topic":"t"}}
5323cacfb15952d7 {"applied":true,"cut":8,"end":20,"incarnation":1,"kind":"cut","plan":3,"start":5,"topic_id":null,\
"topic_partition":{"partition":1,"topic":"t"}}
"""
"""Before cuts named their query and batch."""
MARKER = '{"v":1,"q":"q","b":7,"n":2,"r":10,"h":"000000000000000f","a":"a","t":5,"g":1}'
OFFSET = '{"v":1,"t":"a","o":7,"d":1}'
OFFSET_NOTE = '{"v": 1, "t": "a"}'
CONTROL = '{"v":1,"q":"q","b":7,"n":2,"g":1,"t":9,"l":[5,0]}'


def test_given_a_view_of_the_first_version_when_read_then_it_is_complete() -> None:
    one, two = BrokerId(1), BrokerId(2)
    partitions = (
        PartitionMetadata(partition=0, leader_id=one, replicas=(one, two), in_sync=(one,)),
        PartitionMetadata(partition=1, leader_id=None, replicas=(two,)),
    )
    gone = TopicMetadata(name=TopicName("gone"), topic_id=None, partitions=())
    assert decode(VIEW) == Saved(
        snapshot=Snapshot(
            generation=Generation(5),
            cluster_id=ClusterId("ours"),
            confirmed_wall=99.25,
            brokers=(
                Broker(broker_id=one, address=BrokerAddress("b1", 9092), rack="r1"),
                Broker(broker_id=two, address=BrokerAddress("b2", 9092), rack=None),
            ),
            topics={TopicName("t"): TopicMetadata(name=TopicName("t"), topic_id=TopicId("a"), partitions=partitions)},
            tombstones={gone.name: Tombstone(topic=gone, since_wall=12.5)},
        ),
        known_addresses=frozenset({BrokerAddress("b1", 9092), BrokerAddress("b9", 9093)}),
    )


def test_given_a_view_with_unlisted_partitions_when_written_then_the_first_version_can_read_every_byte() -> None:
    saved = decode(VIEW)
    topics = {
        name: replace(topic, partitions=tuple(replace(p, is_listed=False) for p in topic.partitions))
        for name, topic in saved.snapshot.topics.items()
    }
    assert encode(replace(saved, snapshot=replace(saved.snapshot, topics=topics))) == VIEW


def test_given_topic_ids_of_the_first_version_when_read_then_each_partition_has_one(tmp_path: Path) -> None:
    store = TopicIdStore(tmp_path, "dau")
    store.path.parent.mkdir()
    store.path.write_bytes(TOPIC_IDS)
    assert store.load() == {tp(0): "a", tp(1): "b"}


def test_given_a_ledger_of_the_first_version_when_opened_then_its_cuts_are_in_force(
    tmp_path: Path,
) -> None:
    ledger = FileLedger(tmp_path, "dau")
    ledger.path.parent.mkdir()
    ledger.path.write_bytes(LEDGER)
    state = ledger.open()
    pending = CutRecord(topic_partition=tp(0), topic_id=TopicId("a"), start=5, end=20, cut=8, plan=3, incarnation=1)
    assert state.incarnation == Incarnation(number=1, start={"t": {"0": 0}}, end={"t": {"0": 20}})
    assert state.pending() == {tp(0): pending}
    assert len(state.records) == 2
    ledger.append([Incarnation(number=2)])
    ledger.close()
    again = FileLedger(tmp_path, "dau")
    assert again.open().incarnation == Incarnation(number=2)
    again.close()


def test_given_markers_of_the_first_version_when_read_then_they_are_complete() -> None:
    assert Marker.decode(MARKER, where="g") == Marker(
        query_id="q", batch_id=7, lanes=2, rows=10, fingerprint="000000000000000f", attempt="a", wall_seconds=5,
        generation=1, unlaned=False,
    )  # fmt: skip
    assert Control.decode(CONTROL, where="g") == Control(
        query_id="q", batch_id=7, lanes=2, generation=1, wall_seconds=9, lane_walls=(5, 0)
    )


def test_given_a_copys_offset_of_the_first_version_when_read_then_it_is_complete() -> None:
    assert SourceOffset.decode(OFFSET, where="g") == SourceOffset(offset=7, topic_id="a", is_complete=True)
    assert topic_of(OFFSET_NOTE, where="g") == "a"


@pytest.mark.parametrize(
    ("decode_text", "text"),
    [
        (Marker.decode, MARKER),
        (Control.decode, CONTROL),
        (SourceOffset.decode, OFFSET),
        (topic_of, OFFSET_NOTE),
    ],
)
def test_given_a_later_version_when_read_then_the_message_says_so(decode_text: Any, text: str) -> None:
    later = text.replace('"v":1', '"v":2').replace('"v": 1', '"v": 2')
    with pytest.raises(StateError, match="g: version 2, this program knows 1; use the one that wrote it"):
        decode_text(later, where="g")


def test_given_topic_ids_of_a_later_version_when_read_then_it_warns_and_begins_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = TopicIdStore(tmp_path, "dau")
    store.path.parent.mkdir()
    store.path.write_bytes(TOPIC_IDS.replace(b'"schema": 1', b'"schema": 2'))
    assert store.load() == {}
    assert "schema 2" in caplog.text
