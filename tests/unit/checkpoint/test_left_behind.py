"""A cut that waits in another ledger than the one a start uses: its rest would be lost in silence."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from discovery.core.errors import StateError
from discovery.core.model import TopicId
from discovery.spark.source.cuts import arbiter
from discovery.spark.source.cuts.arbiter import refuse_left_behind
from discovery.spark.source.cuts.ledger import Incarnation, LedgerState, Where, fold
from discovery.spark.source.cuts.ledger_file import FileLedger
from discovery.spark.source.cuts.rules import CutRecord
from discovery.spark.source.feeds import no_cut_left_behind
from discovery.spark.source.options.parse import parse_options
from discovery.spark.source.reader import KafkaDiscoveryStreamReader, RangesPartition
from tests.support.checkpoint import checkpoint
from tests.support.fakes.feed import partition_view, tp
from tests.support.fakes.planner import feed_with
from tests.unit.checkpoint.test_checkpoint import run

QUERY = "f2ac99fe"
CUT = CutRecord(
    topic_partition=tp(0), topic_id=TopicId("id-1"), start=5, end=15, cut=8, plan=3, incarnation=1, query=QUERY, batch=4
)
BATCHES = {3: '{"t": {"0": 5, "1": 5}}', 4: '{"t": {"0": 15, "1": 5}}'}
NORMAL = ReadMaxRows(2**63 - 1)
START = {"t": {"0": 15, "1": 5}}


@pytest.fixture(autouse=True)
def _unchanged_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")  # a refusal sets it


def ledger(state_dir: Path, source_id: str, *records: CutRecord) -> FileLedger:
    made = FileLedger(state_dir, source_id)
    made.open()
    made.append([Incarnation(number=1), *records])
    return made


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Holds the ledger of source `old`, whose query was stopped before a rewind was in Spark's log."""
    ledger(tmp_path / "state", "old", CUT).close()
    return tmp_path / "state"


@pytest.mark.parametrize("named", [(), ("--source-id", "new")], ids=["dropped", "renamed"])
def test_given_a_cut_under_another_name_when_verified_then_it_is_not_sound(
    tmp_path: Path, state_dir: Path, named: tuple[str, ...]
) -> None:
    folder = checkpoint(tmp_path / "c", BATCHES, [3, 4])
    ledger(state_dir, "new").close()
    code, said = run("verify", folder, *named, "--state-dir", state_dir)
    assert code == 1
    assert "error: t-0 was cut at offset 8 of [5, 15) by query f2ac99fe under sourceId old" in said
    assert "a start of it without that ledger loses [8, 15)" in said
    code, said = run("verify", folder, "--source-id", "old", "--state-dir", state_dir)
    assert code == 0, said


def test_given_a_batch_planned_behind_a_cut_of_another_name_when_verified_then_it_is_not_sound(
    tmp_path: Path, state_dir: Path
) -> None:
    going_on = checkpoint(tmp_path / "c", {**BATCHES, 5: '{"t": {"0": 30, "1": 5}}'}, [3, 4])
    code, said = run("verify", going_on, "--state-dir", state_dir)
    assert (code, "loses [8, 15)" in said) == (1, True)
    going_back = checkpoint(tmp_path / "d", {**BATCHES, 5: '{"t": {"0": 8, "1": 5}}'}, [3, 4])
    code, said = run("verify", going_back, "--state-dir", state_dir)
    assert code == 0, said


@pytest.mark.parametrize(
    "harmless",
    [replace(CUT, applied=True), replace(CUT, query="another"), replace(CUT, end=20)],
    ids=["rewound", "another query's", "another offset"],
)
def test_given_a_record_of_something_else_when_verified_then_the_checkpoint_is_sound(
    tmp_path: Path, harmless: CutRecord
) -> None:
    folder = checkpoint(tmp_path / "c", BATCHES, [3, 4])
    ledger(tmp_path / "state", "old", harmless).close()
    code, said = run("verify", folder, "--state-dir", tmp_path / "state")
    assert code == 0, said


def test_given_two_named_sources_of_one_topic_when_both_are_named_then_a_cut_of_one_is_no_error(
    tmp_path: Path, state_dir: Path
) -> None:
    both = {number: f"{offsets}\n{offsets}" for number, offsets in BATCHES.items()}
    folder = checkpoint(tmp_path / "c", both, [3, 4])
    ledger(state_dir, "mine").close()
    code, said = run("verify", folder, "--source-id", "mine", "--source-id", "old", "--state-dir", state_dir)
    assert code == 0, said
    assert "cut, the next batch goes back for the rest: t-0 (read to 8 of 15)" in said
    code, said = run("verify", folder, "--source-id", "mine", "--state-dir", state_dir)
    assert code == 1
    assert said.count("where that is another source of this query, name it too: --source-id again") == 1


def test_given_a_cut_under_another_name_when_adopted_then_it_is_refused_until_given_up(
    tmp_path: Path, state_dir: Path
) -> None:
    folder = checkpoint(tmp_path / "c", BATCHES, [3, 4])
    adopt = ("adopt", folder, "--state-dir", state_dir, "--yes", "--source-id")
    code, said = run(*adopt, "new")
    assert code == 1
    assert "t-0 was cut at offset 8 of [5, 15) by query f2ac99fe under sourceId old" in said
    assert run(*adopt, "old")[0] == 0
    assert run(*adopt, "new")[0] == 0


def started(
    state_dir: Path, in_kafka: Mapping[Where, LedgerState] | None = None, **options: str
) -> KafkaDiscoveryStreamReader:
    feed = feed_with({tp(0): partition_view(0, 20), tp(1): partition_view(0, 5)})
    given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", "stateDir": str(state_dir), **options}
    refusing = partial(no_cut_left_behind, look=lambda *_: in_kafka or {})
    return KafkaDiscoveryStreamReader(parse_options(given), lambda _: feed, tell=lambda _: None, refusing=refusing)


def test_given_a_pending_cut_when_an_unnamed_query_starts_at_its_end_then_it_is_refused(state_dir: Path) -> None:
    with pytest.raises(StateError, match=r"t-0 was cut at offset 8 of \[5, 15\) by query") as error:
        started(state_dir).latestOffset(START, NORMAL)
    assert "\n" not in str(error.value)
    assert "start once more with sourceId=old" in str(error.value)
    with pytest.raises(StateError, match="under sourceId old"):
        started(state_dir).partitions({"t": {"0": 5, "1": 5}}, START)


def test_given_a_cut_under_a_name_without_ascii_when_an_unnamed_query_starts_then_it_is_refused(tmp_path: Path) -> None:
    ledger(tmp_path, "订单", CUT).close()
    with pytest.raises(StateError, match=r"t-0 was cut at offset 8 of \[5, 15\)"):
        started(tmp_path).latestOffset(START, NORMAL)


def test_given_a_pending_cut_when_a_query_starts_elsewhere_or_is_new_then_it_goes_on(state_dir: Path) -> None:
    assert started(state_dir).latestOffset({"t": {"0": 14, "1": 5}}, NORMAL) == {"t": {"0": 20, "1": 5}}
    new = started(state_dir, startingOffsets='{"t":{"0":15,"1":5}}')
    assert new.latestOffset(new.initialOffset(), NORMAL) == {"t": {"0": 20, "1": 5}}


def test_given_a_cut_of_a_living_source_when_an_unnamed_query_starts_then_it_goes_on(
    tmp_path: Path,
) -> None:
    running = ledger(tmp_path / "state", "old", CUT)
    try:
        assert started(tmp_path / "state").latestOffset(START, NORMAL) == {"t": {"0": 20, "1": 5}}
    finally:
        running.close()


def test_given_two_named_queries_of_one_topic_when_started_after_a_crash_then_a_cut_of_one_does_not_refuse_the_other(
    state_dir: Path,
) -> None:
    ledger(state_dir, "mine").close()
    mine = started(state_dir, sourceId="mine")
    try:
        assert mine.latestOffset(START, NORMAL) == {"t": {"0": 20, "1": 5}}
    finally:
        mine.stop()


def test_given_a_cut_in_the_ledger_in_kafka_when_started_with_an_old_file_then_it_is_refused(tmp_path: Path) -> None:
    ledger(tmp_path, "mine").close()
    in_kafka = fold(LedgerState(), [Incarnation(number=1), CUT])
    mine = started(tmp_path, {Where("mine", in_kafka=True): in_kafka}, sourceId="mine")
    try:
        with pytest.raises(
            StateError, match=r"loses \[8, 15\); start once more with sourceId=mine and cutLedger=kafka"
        ):
            mine.latestOffset(START, NORMAL)
    finally:
        mine.stop()


def test_given_a_cut_in_kafka_when_an_unnamed_query_starts_at_its_end_then_workers_of_that_query_alone_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_kafka = {Where("old", in_kafka=True): fold(LedgerState(), [Incarnation(number=1), CUT])}
    reader = started(tmp_path, in_kafka)
    [task, *_] = reader.partitions(START, reader.latestOffset(START, NORMAL))
    [replayed] = started(tmp_path, in_kafka).partitions({"t": {"0": 5, "1": 5}}, START)
    first = started(tmp_path, in_kafka, startingOffsets='{"t":{"0":5,"1":5}}')
    [first_replayed] = first.partitions(first.initialOffset(), START)
    for refused in (task, replayed, first_replayed):
        monkeypatch.setattr(arbiter, "own_batch", lambda: {"query": "another", "batch": 4})
        refuse_left_behind(cast("RangesPartition", refused).left_behind)
        monkeypatch.setattr(arbiter, "own_batch", lambda: {"query": QUERY, "batch": 4})
        with pytest.raises(StateError, match=r"loses \[8, 15\).*; remove offsets/4 from the checkpoint first"):
            next(reader.read(refused))


def test_given_a_cut_in_kafka_that_is_nobodys_or_elsewhere_when_an_unnamed_query_starts_then_it_goes_on(
    tmp_path: Path,
) -> None:
    for record, end in ((replace(CUT, query=None), 15), (CUT, 14)):
        reader = started(tmp_path, {Where("old", in_kafka=True): fold(LedgerState(), [Incarnation(number=1), record])})
        start = {"t": {"0": end, "1": 5}}
        [task, *_] = reader.partitions(start, reader.latestOffset(start, NORMAL))
        assert not cast("RangesPartition", task).left_behind


@pytest.mark.parametrize(
    ("first", "last", "is_lost"),
    [
        ({"0": 5}, {"0": 15}, True),  # the batch that was cut
        ({}, {"0": 15}, True),  # the same, the partition being new in it
        ({"0": 15}, {"0": 20}, True),
        ({"0": 15}, {"0": 8}, False),  # the batch that goes back
        ({"0": 8}, {"0": 15}, False),  # the one after it
    ],
)
def test_given_a_pending_cut_when_a_batch_is_replayed_then_it_is_refused_where_records_would_be_lost(
    *, first: dict[str, int], last: dict[str, int], is_lost: bool, state_dir: Path
) -> None:
    reader = started(state_dir, failOnDataLoss="false")
    replay = ({"t": {**first, "1": 5}}, {"t": {**last, "1": 5}})
    if is_lost:
        with pytest.raises(StateError, match=r"loses \[8, 15\)"):
            reader.partitions(*replay)
    else:
        reader.partitions(*replay)


def test_given_a_cut_in_the_ledger_file_when_started_with_a_ledger_in_kafka_then_it_is_refused(state_dir: Path) -> None:
    given = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "t", "stateDir": str(state_dir), "cutLedger": "kafka"}
    feed = feed_with({})
    with pytest.raises(StateError, match="start once more with sourceId=old and cutLedger=file"):
        no_cut_left_behind(parse_options({**given, "sourceId": "old"}), feed, look=lambda *_: {})({tp(0): 15}, None)
    no_cut_left_behind(parse_options({**given, "sourceId": "mine"}), feed, look=lambda *_: {})({tp(0): 15}, None)
    running = FileLedger(state_dir, "old")
    running.open()
    try:
        no_cut_left_behind(parse_options({**given, "sourceId": "old"}), feed, look=lambda *_: {})({tp(0): 15}, None)
    finally:
        running.close()


def test_given_a_pending_cut_when_its_query_starts_under_a_new_name_then_it_is_refused(state_dir: Path) -> None:
    renamed = started(state_dir, sourceId="new")
    try:
        with pytest.raises(StateError, match="the checkpoint is not new, but no ledger of its cuts"):
            renamed.latestOffset(START, NORMAL)
    finally:
        renamed.stop()


def test_given_a_damaged_ledger_of_another_when_a_query_starts_then_it_goes_on(
    state_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = FileLedger(state_dir, "old").path
    path.write_bytes(path.read_bytes().replace(b'"cut":8', b'"cut":9'))
    assert started(state_dir).latestOffset(START, NORMAL) == {"t": {"0": 20, "1": 5}}
    assert "is damaged in line 3" in caplog.text
