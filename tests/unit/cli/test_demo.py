"""`kafka-discovery demo` where the machine refuses; what it plays is in tests/integration/test_demo.py."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from discovery.cli.app import app
from discovery.core.errors import StateError


def test_given_a_full_disk_when_a_demo_writes_then_one_line_names_the_file_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/reports/report.json")

    monkeypatch.setattr("discovery.cli.demo.played", full)
    done = CliRunner().invoke(app, ["demo", "--fast", "--output-dir", str(tmp_path)])
    assert isinstance(done.exception, StateError)
    assert str(done.exception) == "cannot write /reports/report.json: No space left on device; free some space"
