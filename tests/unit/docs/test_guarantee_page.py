"""The page that promises exactly once: every sentence of it names a test, and every test it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "explanation" / "exactly-once.md"
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+\.py) \"([a-z0-9_]+)\"\)")


def promises() -> list[str]:
    section = PAGE.read_text().partition("## Promised\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("- ")]


def test_given_a_promise_when_read_then_it_names_a_test_that_is_there() -> None:
    assert len(promises()) > 10
    for promise in promises():
        links = LINK.findall(promise)
        assert links, f"no test is named: {promise}"
        for path, name in links:
            assert f"def {name}(" in (PAGE.parent / path).read_text(), f"{path} has no {name}"


def test_given_a_promise_when_counted_then_it_is_one_sentence() -> None:
    for promise in promises():
        sentence = LINK.sub("", promise).strip("- ").strip()
        assert re.search(r"[.:;] [A-Z]", sentence) is None, sentence
