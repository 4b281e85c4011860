"""Points at which tests interfere: armed once, free where none is."""

from pathlib import Path

import pytest

from discovery.spark.sink import hooks


def test_given_no_folder_when_a_point_is_passed_then_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hooks.VARIABLE, raising=False)
    hooks.point("step0.before", 0)


def test_given_an_armed_point_when_passed_twice_then_it_works_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(hooks.VARIABLE, str(tmp_path))
    (tmp_path / "step3.after@1").write_text("raise")
    hooks.point("step3.after", 0)
    with pytest.raises(RuntimeError, match=r"step3\.after@1"):
        hooks.point("step3.after", 1)
    hooks.point("step3.after", 1)
