"""The page that promises exactly once: every point of its promises names a test, and every test it names is there."""

import re
from pathlib import Path

import pytest

from tests.support.names import existing_tests

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "exactly-once.md"
LEAST = {"Promised": 30, "For how long": 5, "How it was tried": 6, "What it costs": 3}
"""Of each section's points: one that is lost is noticed."""
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+\.py) \"([a-z0-9_]+)\"\)")


def items(heading: str) -> list[str]:
    """The bullets of a section, each with the lines that go on with it."""
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [item.strip() for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]


def promises() -> list[str]:
    return items("Promised")


@pytest.mark.parametrize(("heading", "least"), LEAST.items())
def test_given_a_promise_when_read_then_it_names_a_test(heading: str, least: int) -> None:
    assert len(items(heading)) >= least
    assert [promise for promise in items(heading) if not LINK.search(promise)] == []


def test_given_a_test_that_the_page_names_when_looked_up_then_it_is_there() -> None:
    links = LINK.findall(PAGE.read_text())
    assert len(links) > len(promises())
    for path, name in links:
        file = (PAGE.parent / path).resolve().relative_to(ROOT / "tests")
        assert f"{file}::{name}" in existing_tests()


def test_given_a_promise_when_counted_then_it_is_one_sentence() -> None:
    for promise in promises():
        sentence = LINK.sub("", promise).strip("- ").strip()
        assert re.search(r"[.:;] [A-Z]", sentence) is None, sentence
