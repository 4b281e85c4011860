"""Benchmarks and tests share what stands in `tests/support`, and nothing else."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_IMPORT = re.compile(r"^\s*(?:from|import) ((?:tests|benchmarks)[\w.]*)", re.MULTILINE)
RIG_OF_THE_SINK = ("benchmarks/sink.py", "tests.chaos.sink")
"""What times the writer's steps runs them as the chaos of the sink does, in processes of their own."""


def imported(file: Path) -> set[str]:
    return set(_IMPORT.findall(file.read_text("utf-8")))


@pytest.mark.parametrize("file", sorted(ROOT.glob("tests/**/*.py")), ids=lambda file: file.name)
def test_given_a_test_when_read_then_it_imports_benchmarks_only_to_test_them(file: Path) -> None:
    if "benchmarks" not in file.relative_to(ROOT).parts:
        assert not {name for name in imported(file) if name.startswith("benchmarks")}


@pytest.mark.parametrize("file", sorted(ROOT.glob("benchmarks/**/*.py")), ids=lambda file: file.name)
def test_given_a_benchmark_when_read_then_it_imports_nothing_of_tests_but_support(file: Path) -> None:
    name = file.relative_to(ROOT).as_posix()
    of_tests = {one for one in imported(file) if one.startswith("tests.") and not one.startswith("tests.support")}
    assert not {one for one in of_tests if (name, ".".join(one.split(".")[:3])) != RIG_OF_THE_SINK}
