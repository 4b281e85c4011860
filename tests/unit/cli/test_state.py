from pathlib import Path

import pytest
from typer.testing import CliRunner

from discovery.cli.app import app
from discovery.core.errors import ConfigError, StateError
from discovery.store.snapshots import SnapshotStore
from tests.support.core_values import address, settled, snapshot_of, topic

run = CliRunner().invoke


def save(state_dir: Path) -> SnapshotStore:
    store = SnapshotStore(state_dir, source_id="dau")
    store.open()
    store.save(snapshot_of(settled(2, topic())), [address(1)])
    return store


def test_given_saved_views_when_listed_then_each_is_shown_and_a_broken_one_is_reported(tmp_path: Path) -> None:
    save(tmp_path).close()
    (tmp_path / "sources" / "bad.json").write_bytes(b"{")
    shown = run(app, ["state", "list", "--state-dir", str(tmp_path)]).output
    good = f"{tmp_path}/sources/dau.json: cluster ours, generation 1, confirmed 1970-01-01 00:16:40 UTC"
    assert f"{good}, brokers b1:9092,b2:9092, topics t(3)" in shown
    assert f"{tmp_path}/sources/bad.json: " in shown
    assert "cut or damaged" in shown


def test_given_a_saved_view_when_reset_then_the_next_start_has_none(tmp_path: Path) -> None:
    save(tmp_path).close()
    result = run(app, ["state", "reset", "--state-dir", str(tmp_path), "--source", "dau"])
    assert result.exit_code == 0
    assert SnapshotStore(tmp_path, source_id="dau").load([address(1)], cluster_id=None) is None


def test_given_a_view_in_use_when_reset_then_it_is_refused_and_stays(tmp_path: Path) -> None:
    store = save(tmp_path)
    result = run(app, ["state", "reset", "--state-dir", str(tmp_path), "--source", "dau"])
    assert isinstance(result.exception, StateError)
    assert "stop that process first" in str(result.exception)
    assert store.load([address(1)], cluster_id=None) is not None
    store.close()


@pytest.mark.parametrize("folder", ["service", "brokers"])
def test_given_a_view_of_a_service_or_of_run_when_its_state_folder_is_named_then_it_is_listed_and_reset(
    folder: str, tmp_path: Path
) -> None:
    save(tmp_path / folder).close()
    where = ["--state-dir", str(tmp_path)]
    assert f"{folder}/sources/dau.json" in run(app, ["state", "list", *where]).output
    save(tmp_path).close()
    assert "have that name" in str(run(app, ["state", "reset", *where, "--source", "dau"]).exception)
    (tmp_path / "sources/dau.json").unlink()
    assert run(app, ["state", "reset", *where, "--source", "dau"]).output.startswith("dropped ")
    assert "no saved view" in run(app, ["state", "list", *where]).output


@pytest.mark.parametrize("arguments", [[], ["--source", "a", "--cluster", "b"], ["--source", "unknown"]])
def test_given_a_wrong_reset_when_asked_then_the_message_says_what_to_do(arguments: list[str], tmp_path: Path) -> None:
    result = run(app, ["state", "reset", "--state-dir", str(tmp_path), *arguments])
    assert isinstance(result.exception, ConfigError)
    assert "state list" in str(result.exception)
