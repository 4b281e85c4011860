"""`kafka-discovery checkpoint adopt|cut`: nothing without `--yes`, and nothing that the checkpoint does not plan."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from discovery.cli.app import app
from discovery.core.errors import ConfigError, StateError
from discovery.spark.source.cuts.ledger_file import FileLedger
from tests.support.checkpoint import checkpoint
from tests.support.fakes.feed import tp

BATCHES: Mapping[int, str] = {3: '{"t": {"0": 15, "1": 5}}', 4: '{"t": {"0": 40, "1": 5}}'}


def run(*arguments: object, **more: object) -> str:
    given = [*map(str, arguments), *(str(part) for name, value in more.items() for part in (f"--{name}", value))]
    result = CliRunner().invoke(app, ["checkpoint", *given])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def amend(what: str, folder: Path, *arguments: object) -> str:
    return run(what, folder, "--source-id", "s", "--state-dir", folder / "state", *arguments)


def test_given_a_checkpoint_without_a_ledger_when_adopted_then_a_source_may_go_on(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, dict(BATCHES), [3])
    assert "would adopt" in amend("adopt", folder)
    ledger = FileLedger(folder / "state", "s")
    assert ledger.open().incarnation is None
    ledger.close()
    assert "last planned batch 4" in amend("adopt", folder, "--yes")
    state = ledger.open()
    ledger.close()
    assert state.incarnation is not None
    assert state.incarnation.end is None


def test_given_a_batch_that_waits_when_cut_by_hand_then_its_record_is_in_force_and_adopting_again_warns(
    tmp_path: Path,
) -> None:
    folder = checkpoint(tmp_path, dict(BATCHES), [3])
    amend("adopt", folder, "--yes")
    seen = amend("cut", folder, "--partition", "t-0", "--at", 20)
    assert "The sink must not hold any record of t-0 with an offset of 20 to 39" in seen
    assert "nothing was changed" in seen
    amend("cut", folder, "--partition", "t-0", "--at", 20, "--yes")
    ledger = FileLedger(folder / "state", "s")
    record = ledger.open().pending()[tp(0)]
    ledger.close()
    assert (record.start, record.end, record.cut) == (15, 40, 20)
    assert "records [20, 40) may be lost" in amend("adopt", folder)
    with pytest.raises(StateError, match="t-0 is cut already"):
        amend("cut", folder, "--partition", "t-0", "--at", 21, "--yes")


@pytest.mark.parametrize(
    ("partition", "at", "recorded", "message"),
    [
        ("t-0", 40, [3], r"--at: 40 is not in the planned range \[15, 40\) of t-0"),
        ("t-1", 5, [3], "--partition: batch 4 plans t-1 in 0 sources"),
        ("t0", 5, [3], "--partition: 't0' is not TOPIC-NUMBER"),
        ("t-0", 20, [3, 4], "the checkpoint has no batch that waits"),
    ],
)
def test_given_a_cut_that_the_checkpoint_does_not_allow_then_it_is_refused(
    tmp_path: Path, partition: str, at: int, recorded: list[int], message: str
) -> None:
    folder = checkpoint(tmp_path, dict(BATCHES), recorded)
    amend("adopt", folder, "--yes")
    with pytest.raises(ConfigError, match=message):
        amend("cut", folder, "--partition", partition, "--at", at, "--yes")


def test_given_no_ledger_when_cut_by_hand_then_it_is_an_error(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, dict(BATCHES), [3])
    with pytest.raises(StateError, match="no ledger of cuts is at"):
        amend("cut", folder, "--partition", "t-0", "--at", 20, "--yes")


def test_given_a_damaged_ledger_when_adopted_then_it_is_put_aside_and_a_new_one_begins(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, dict(BATCHES), [3])
    amend("adopt", folder, "--yes")
    ledger = FileLedger(folder / "state", "s")
    ledger.path.write_bytes(ledger.path.read_bytes().replace(b'"number":1', b'"number":7'))
    seen = amend("adopt", folder)
    assert "would be given up: " in seen
    assert "is damaged in line 2; restore it from a copy, or, once you know what the sink holds" in seen
    assert "it is kept as" in amend("adopt", folder, "--yes")
    state = ledger.open()
    ledger.close()
    assert state.incarnation is not None
    assert state.incarnation.number == 1
    assert len(list(ledger.path.parent.glob("*.damaged-*"))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cut-ledger", "kafka"], "--cut-ledger kafka: where is it"),
        (["--cut-ledger", "disk"], "cutLedger: 'disk' is not one of file, kafka"),
        (["--cut-ledger-topic", "x"], "cutLedgerTopic: it has no effect with cutLedger=file"),
    ],
)
def test_given_a_place_that_makes_no_sense_when_adopted_then_it_is_refused(
    tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        amend("adopt", checkpoint(tmp_path, dict(BATCHES), [3]), *options)
