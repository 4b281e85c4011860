"""Checkpoints on disk, sound and broken, as `kafka-discovery checkpoint` judges them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from discovery.cli.app import app
from discovery.core.errors import ConfigError, DiscoveryError, KafkaUnreachableError, StateError
from discovery.core.model import TopicPartition
from discovery.feed.base import ID_ASKED, PartitionView
from discovery.spark.checkpoint.read import Severity, Writer, read_checkpoint
from discovery.spark.checkpoint.verify import judge
from discovery.spark.source.cuts.ledger import Incarnation
from discovery.spark.source.cuts.ledger_file import FileLedger
from discovery.spark.source.cuts.rules import CutRecord
from tests.support.checkpoint import META, checkpoint
from tests.support.fakes.feed import partition_view, tp, view_of

NATIVE = '{"t":{"0":15,"1":5}}'
OURS = '{"t": {"0": 15, "1": 5}}'


def findings(folder: Path, reader: Writer = Writer.OURS) -> list[tuple[str, str]]:
    report = judge(read_checkpoint(folder), reader=reader)
    return [(finding.severity.value, finding.text) for finding in report.findings]


def run(*arguments: object) -> tuple[int, str]:
    """Run the command line; a user's mistake is its exit code and its line."""
    result = CliRunner().invoke(app, ["checkpoint", *map(str, arguments)])
    if isinstance(result.exception, DiscoveryError):
        return result.exception.exit_code, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize(("line", "writer"), [(NATIVE, "kafka"), (OURS, "kafka-discovery")])
def test_given_a_checkpoint_when_inspected_then_offsets_and_their_writer_are_shown(
    tmp_path: Path, line: str, writer: str
) -> None:
    code, text = run("inspect", checkpoint(tmp_path, {3: line, 4: line}, [3, 4]))
    assert code == 0
    assert "query f2ac99fe, last recorded batch 4" in text
    assert f"source 0: {writer}" in text
    assert "t-1  planned 5  recorded 5" in text


def test_given_several_sources_when_inspected_as_json_then_each_has_its_positions(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: f"0:{OURS}\nevents:{NATIVE}\n2:-\n3:17"}, [0], version="v2")
    code, text = run("inspect", folder, "--json")
    seen = json.loads(text)
    assert code == 0
    assert [(s["name"], s["written_by"]) for s in seen["sources"]] == [
        ("0", "kafka-discovery"),
        ("events", "kafka"),
        ("2", "another source"),
        ("3", "another source"),
    ]
    assert [(p["source"], p["partition"], p["planned"]) for p in seen["positions"]] == [
        ("0", 0, 15),
        ("0", 1, 5),
        ("events", 0, 15),
        ("events", 1, 5),
    ]
    assert seen["sound"] is True


def test_given_a_batch_that_was_not_recorded_when_judged_then_its_replay_is_announced(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: '{"t": {"0": 1}}', 1: '{"t": {"0": 9}}'}, [0])
    report = judge(read_checkpoint(folder), reader=Writer.OURS)
    assert [(p.planned, p.recorded) for p in report.positions] == [(9, 1)]
    assert findings(folder) == [("note", "batch 1 is planned and not recorded: the next start replays it first")]


def test_given_a_switch_when_judged_then_an_empty_batch_is_announced(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: NATIVE}, [0])
    assert "kafka wrote the offsets: the first batch may be empty" in findings(folder)[0][1]
    assert findings(folder, Writer.NATIVE) == []


def test_given_an_unresolved_offset_when_judged_then_only_the_native_source_cannot_start(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: '{"t": {"0": 15, "1": -1}}'}, [0])
    assert run("verify", folder)[0] == 0
    code, text = run("verify", folder, "--for", "kafka")
    assert code == 1
    assert "error: source 0: no offset yet for t-1 (-1), which the native source cannot read" in text


def test_given_a_cut_when_judged_then_the_delivered_offset_is_shown_and_the_native_source_is_refused(
    tmp_path: Path,
) -> None:
    folder = checkpoint(tmp_path / "checkpoint", {0: OURS}, [0])
    ledger = FileLedger(tmp_path, "dau")
    ledger.open()
    cut = CutRecord(topic_partition=tp(0), topic_id=None, start=0, end=15, cut=12, plan=1, incarnation=1)
    ledger.append([Incarnation(number=1), cut])
    # Its holder is at work: looking needs no lock.
    looked = run("inspect", folder, "--source-id", "dau", "--state-dir", tmp_path)[1]
    code, text = run("verify", folder, "--source-id", "dau", "--state-dir", tmp_path, "--for", "kafka")
    ledger.close()
    assert "t-0  planned 15  recorded 15  delivered 12" in looked
    assert "cut, the next batch goes back for the rest: t-0 (read to 12 of 15)" in looked
    assert code == 1
    assert "the native source would skip the rest" in text


def test_given_what_kafka_has_when_judged_then_lag_and_lost_records_are_reported(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: OURS}, [0])
    view = view_of({tp(0): partition_view(0, 40), tp(1): partition_view(9, 20)})
    report = judge(read_checkpoint(folder), reader=Writer.OURS, view=view)
    assert [p.lag for p in report.positions] == [25, 15]
    assert not report.sound
    assert "t-1 begins at offset 9 but the query is at offset 5: 4 offsets deleted" in report.findings[-1].text


def test_given_records_lost_from_a_batch_that_will_be_replayed_when_judged_then_it_is_not_sound(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", {0: '{"t": {"0": 10}}', 1: '{"t": {"0": 20}}'}, recorded=[0])
    report = judge(read_checkpoint(folder), reader=Writer.OURS, view=view_of({tp(0): partition_view(15, 40)}))
    assert not report.sound
    assert any("is at offset 10" in finding.text for finding in report.findings)


@pytest.mark.parametrize(
    "known",
    [
        {tp(0): partition_view(0, 40)},
        {tp(0): partition_view(0, 40), tp(1): partition_view(None, None, leader=None)},
        {tp(0): partition_view(0, 40), tp(1): partition_view(9, 40, topic_id=None, parked_reason=ID_ASKED)},
    ],
)
def test_given_a_partition_that_kafka_says_nothing_of_when_judged_then_it_is_not_called_sound(
    tmp_path: Path, known: dict[TopicPartition, PartitionView]
) -> None:
    folder = checkpoint(tmp_path / "c", {0: OURS}, recorded=[0])
    report = judge(read_checkpoint(folder), reader=Writer.OURS, view=view_of(known))
    assert not report.sound
    assert any("not checked" in finding.text and "t-1" in finding.text for finding in report.findings)


def test_given_no_batch_when_judged_then_the_native_start_is_not_lost_by_a_switch(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {})
    assert findings(folder)[0][0] == "note"
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_bytes(b'\0v1\n{"t":{"0":7}}')
    assert "give kafka-discovery these offsets as startingOffsets" in findings(folder)[0][1]
    assert findings(folder, Writer.NATIVE)[0][0] == "note"


BROKEN = [
    ("offsets/1", b"", "offsets/1 cannot be read (it is empty)"),
    ("offsets/1", b"\0" * 90, "offsets/1 cannot be read (it is empty)"),
    ("offsets/1", b"v1", "(it is cut after its first line)"),
    ("offsets/1", f"v1\n{META[:40]}".encode(), "(its second line is cut or is not Spark's)"),
    ("offsets/1", f"v1\n{META}".encode(), "(it holds no offset: it is cut)"),
    ("offsets/1", f"v1\n{META}\n{OURS[:12]}".encode(), "(the offset of source 0 is cut)"),
    ("offsets/1", f"v9\n{META}\n{OURS}".encode(), "(version 'v9' is not v1 or v2)"),
    ("offsets/1", b"\xff\xfe", "offsets/1 cannot be read"),
    ("commits/1", b"", "commits/1 is empty or damaged"),
    ("metadata", b"{", "metadata is damaged"),
    ("commits/7", b"v1\n{}", "commits/7 is there and offsets/7 is not"),
    ("offsets/4", f"v1\n{META}\n{OURS}".encode(), "batch 4 is planned and 2 was never recorded"),
]


@pytest.mark.parametrize(("name", "content", "text"), BROKEN)
def test_given_a_broken_file_when_verified_then_it_is_not_sound_and_the_line_says_why(
    tmp_path: Path, name: str, content: bytes, text: str
) -> None:
    folder = checkpoint(tmp_path, {0: OURS, 1: OURS}, [0, 1])
    (folder / name).write_bytes(content)
    code, output = run("verify", folder)
    assert code == 1
    assert text in output
    assert "Traceback" not in output
    assert run("inspect", folder)[0] == 0


def test_given_a_start_of_a_replay_that_is_lost_when_verified_then_it_is_not_sound(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {1: OURS}, [0])
    assert ("error", "offsets/0 is missing: nobody knows where batch 1, to be replayed, begins") in findings(folder)


def test_given_every_cut_of_an_offset_file_when_read_then_it_is_never_an_exception(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {0: OURS}, [0])
    whole = (folder / "offsets" / "0").read_bytes()
    for length in range(len(whole)):
        (folder / "offsets" / "0").write_bytes(whole[:length])
        found = judge(read_checkpoint(folder), reader=Writer.OURS).findings
        assert any(f.severity is Severity.ERROR for f in found), whole[:length]


MISTAKES: list[tuple[list[str], type[DiscoveryError], str]] = [
    (["--bootstrap", "b1"], ConfigError, "--bootstrap"),
    (["--bootstrap", "127.0.0.1:1", "--timeout", "1"], KafkaUnreachableError, "127.0.0.1:1: refused"),
    (["--client-option", "kafka.security.protocol=SSL"], ConfigError, "no effect without --bootstrap"),
    (["--client-option", "kafka.x"], ConfigError, "--client-option: 'kafka.x' has no value"),
    (
        ["--bootstrap", "b1:9092", "--client-option", "kafka.sasl.jaas.config=@/nowhere"],
        ConfigError,
        "kafka.sasl.jaas.config: cannot read /nowhere",
    ),
    (["--cut-ledger", "kafka"], ConfigError, "no effect without --source-id"),
    (["--state-dir", "s3a://b/s"], ConfigError, "--state-dir: s3a://b/s is no path of this machine"),
    (["--source-id", "nobody", "--state-dir", "/nowhere"], StateError, "there is no ledger of cuts in /nowhere"),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), MISTAKES)
def test_given_a_mistake_when_run_then_one_line_says_what_to_do(
    tmp_path: Path, arguments: list[str], kind: type[DiscoveryError], text: str
) -> None:
    code, output = run("verify", checkpoint(tmp_path, {0: OURS}, [0]), *arguments)
    assert code == kind.exit_code
    assert text in output


@pytest.mark.parametrize(
    "command",
    [
        ["inspect"],
        ["verify"],
        ["adopt", "--source-id", "s"],
        ["cut", "--source-id", "s", "--partition", "t-0", "--at", "0"],
    ],
)
def test_given_a_checkpoint_in_an_object_store_when_run_then_one_line_says_to_copy_it_here(command: list[str]) -> None:
    said = (
        "s3a://b/ck is no path of this machine; copy its metadata, offsets, commits and sources here (hadoop fs -get)"
    )
    assert run(*command, "s3a://b/ck") == (2, f"{said} and name the copy")


def test_given_a_folder_that_is_no_checkpoint_when_run_then_that_is_said(tmp_path: Path) -> None:
    code, output = run("inspect", tmp_path)
    assert code == 2
    assert "not the checkpoint of a streaming query" in output
    assert run("inspect", f"file://{tmp_path}") == (code, output), "as Spark's users write it"
