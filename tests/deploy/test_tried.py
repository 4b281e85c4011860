"""What was last played for real is kept beside what is deployed: every test of it, and none skipped."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

TABLES = {path.stem: path for path in sorted(Path("deploy/tried").glob("*.json"))}


def kept(table: str) -> dict[str, Any]:
    return dict(json.loads(TABLES[table].read_text(encoding="utf-8")))


def test_given_the_tables_when_listed_then_no_stack_is_missing() -> None:
    assert TABLES.keys() == {file.stem.removeprefix("test_") for file in Path("tests/stack").glob("test_*.py")}


@pytest.mark.parametrize("table", TABLES)
def test_given_what_was_played_for_real_when_kept_then_it_says_on_which_commit(table: str) -> None:
    assert re.fullmatch("[0-9a-f]{7,40}(-dirty)?", kept(table)["commit"])


@pytest.mark.parametrize("stack", [table for table in TABLES if "alerts" not in kept(table)])
def test_given_what_was_played_for_real_when_kept_then_every_test_of_it_has_passed(stack: str) -> None:
    tree = ast.parse(Path(f"tests/stack/test_{stack}.py").read_text(encoding="utf-8"))
    written = {one.name for one in tree.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")}
    seen = {(name.partition("[")[0], one["outcome"]) for name, one in kept(stack)["tests"].items()}
    assert seen == {(name, "passed") for name in written}
