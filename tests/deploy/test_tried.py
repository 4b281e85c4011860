"""What was last played for real is kept beside what is deployed: every test of it, and none skipped."""

import ast
import json
from pathlib import Path

import pytest


@pytest.mark.parametrize("stack", ["compose", "runbooks", "yarn"])
def test_given_what_was_played_for_real_when_kept_then_every_test_of_it_has_passed(stack: str) -> None:
    tree = ast.parse(Path(f"tests/stack/test_{stack}.py").read_text(encoding="utf-8"))
    written = {one.name for one in tree.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")}
    kept = json.loads(Path(f"deploy/tried/{stack}.json").read_text(encoding="utf-8"))["tests"]
    assert {name.partition("[")[0]: one["outcome"] for name, one in kept.items()} == dict.fromkeys(written, "passed")
