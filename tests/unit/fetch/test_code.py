"""The compiled loops are made once per machine; whoever cannot have them reads with the plain engine."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from discovery.core.errors import ConfigError
from discovery.spark.fetch import engine
from discovery.spark.fetch.native import code as machine_code
from discovery.spark.fetch.native import library
from discovery.spark.fetch.python_client import PythonClient

_SAY = (
    "import sys; from discovery.spark.fetch.native.code import code; c = code(); "
    "print(c.was_compiled, 'numba' in sys.modules)"
)


def load(cache: Path, temporary: Path | None = None) -> str:
    """Load the loops in a new process; return whether it compiled, and whether it imported the compiler."""
    process = loading(cache, temporary)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return said.strip()


def loading(cache: Path, temporary: Path | None = None) -> "subprocess.Popen[str]":
    if temporary is None:
        temporary = cache / "tmp"
        temporary.mkdir(exist_ok=True)
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary), "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", _SAY], env=environment, stdout=subprocess.PIPE, text=True)


def test_given_two_processes_at_once_when_they_load_then_one_compiles_and_the_other_waits(tmp_path: Path) -> None:
    both = [loading(tmp_path) for _ in range(2)]
    assert sorted(process.communicate(timeout=240)[0].strip() for process in both) == ["False False", "True True"]


def test_given_an_empty_cache_when_two_processes_load_then_only_the_first_compiles(tmp_path: Path) -> None:
    assert load(tmp_path) == "True True"
    assert load(tmp_path) == "False False"
    (kept,) = (tmp_path / "kafka-discovery" / "code").glob("*.o")
    kept.write_bytes(kept.read_bytes()[:-100])
    assert load(tmp_path) == "True True", "code that is not whole was used"
    assert load(tmp_path) == "False False"


def test_given_a_folder_that_others_can_write_when_loaded_then_what_lies_there_is_not_run(tmp_path: Path) -> None:
    assert load(tmp_path) == "True True"
    (tmp_path / "kafka-discovery" / "code").chmod(0o777)
    assert load(tmp_path) == "True True"
    assert load(tmp_path) == "False False", "kept in the folder for temporary files meanwhile"
    (tmp_path / "kafka-discovery" / "code").chmod(0o700)
    assert load(tmp_path) == "False False"


@pytest.mark.parametrize("blocked", ["cache", "cache/kafka-discovery/code"])
def test_given_a_file_where_the_cache_folder_should_be_when_loaded_then_the_temporary_folder_keeps_it(
    tmp_path: Path, blocked: str
) -> None:
    cache, there = tmp_path / "cache", tmp_path / blocked
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_text("a file, not a folder")
    assert load(cache, temporary=tmp_path) == "True True"
    (kept,) = tmp_path.glob("kafka-discovery-*/kafka-discovery/code/*.o")
    assert load(cache, temporary=tmp_path) == "False False", f"not taken from {kept}"
    assert there.read_text() == "a file, not a folder"


def test_given_loops_that_do_not_load_when_auto_then_the_plain_engine_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ImportError("no compiler")

    monkeypatch.setattr(machine_code, "code", broken)
    monkeypatch.setattr(engine, "fallbacks", [])
    engine._native.cache_clear()
    try:
        assert engine.client_factory("auto") is PythonClient
        assert engine.fallbacks == ["ImportError: no compiler"]
    finally:
        engine._native.cache_clear()


def test_given_no_place_to_keep_it_when_loaded_then_it_is_compiled_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kafka-discovery").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "kafka-discovery"))
    machine_code.code.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert machine_code.code().was_compiled
    machine_code.code.cache_clear()
    (line,) = caplog.messages
    assert line.startswith("every worker compiles for some seconds, since the code cannot be kept (")
    assert line.endswith("name a folder that can be written by XDG_CACHE_HOME")


def test_given_a_library_of_another_version_when_auto_then_the_plain_engine_reads_and_one_line_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(library, "OLDEST", (9, 9))
    monkeypatch.setattr(engine, "fallbacks", [])
    library.library.cache_clear()
    engine._native.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert engine.client_factory("auto") is PythonClient
            assert engine.client_factory("auto") is PythonClient
        assert len(engine.fallbacks) == len(caplog.records) == 1
        assert "is not one this engine was tried with" in caplog.text
        with pytest.raises(ConfigError, match='fetchEngine: "native" does not work here: NotUsableError: librdkafka'):
            engine.client_factory("native")
    finally:
        library.library.cache_clear()
        engine._native.cache_clear()


def test_given_the_library_at_hand_when_checked_then_its_messages_are_laid_out_as_we_read_them() -> None:
    library._check_message(library.Library())


def test_given_messages_laid_out_otherwise_when_checked_then_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_is_as_sent", lambda *_: False)
    with pytest.raises(library.NotUsableError, match="in another way"):
        library._check_message(library.Library())
