"""The page that leads from a metadata answer to a row names files and functions; here they are looked up."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/explanation/path.md"
HOPS = re.findall(r"^\| \w+ \| \[[^\]]+\]\(([^)]+\.py)\)([^|]*)\|", PAGE.read_text(), re.MULTILINE)


def defined(file: Path) -> set[str]:
    """Return what a module defines: functions and classes by name, methods also as `Class.method`."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    named = [node for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    inside = {
        f"{outer.name}.{inner.name}"
        for outer in named
        if isinstance(outer, ast.ClassDef)
        for inner in outer.body
        if isinstance(inner, ast.FunctionDef)
    }
    return {node.name for node in named} | inside


def test_given_the_page_when_its_hops_are_counted_then_none_is_left_out() -> None:
    assert len(HOPS) == len(re.findall(r"^\| (?:\d+|[A-D]) \|", PAGE.read_text(), re.MULTILINE)) > 10
    assert all("`" in names for _, names in HOPS)


@pytest.mark.parametrize(("file", "names"), HOPS)
def test_given_a_hop_when_its_functions_are_looked_up_then_the_file_defines_them(file: str, names: str) -> None:
    wanted = set(re.findall(r"`([\w.]+)`", names))
    assert wanted - defined((PAGE.parent / file).resolve()) == set()
