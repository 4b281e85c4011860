"""The field's words: what we write is what somebody who knows Kafka and Spark would search for."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
WHERE = (
    "discovery", "spark_jobs", "pyspark_kafka_discovery", "deploy", "docs", "tests", "benchmarks",
    "README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "docker-compose.yml", "pyproject.toml",
    ":!docs/decisions", ":!benchmarks/results", ":!tests/chaos/results", ":!tests/unit/docs/test_words.py",
)  # fmt: skip
REFUSED = {
    r"anew": "recreated, again",
    r"told": "reported, answered, returned",
    r"foretell\w*|foretold": "predict, predicted",
    r"nameless": "without topic id",
    r"usurper\w*": "foreign broker on a reused address",
    r"babbl\w*": "malformed response",
    r"goodbyes?": "unregister",
    r"vouch\w*": "confirm",
}


def refused(text: str) -> list[str]:
    """Return what stands in a text, as a word or a part of a name, and what to write instead."""
    words = (
        (re.search(rf"(?<![a-z])({word})(?![a-z])", text, re.IGNORECASE), better) for word, better in REFUSED.items()
    )
    return [f"{found[0]!r}: write {better}" for found, better in words if found]


def test_given_words_of_our_own_when_searched_then_they_are_found_in_prose_and_in_names() -> None:
    assert refused("The topic was made Anew.") == ["'Anew': write recreated, again"]
    assert refused("made_anew, is_told()") == [
        "'anew': write recreated, again",
        "'told': write reported, answered, returned",
    ]
    assert refused("retold by 12 stoldens") == []


def test_given_product_docs_and_tests_when_searched_then_only_the_fields_words_are_used() -> None:
    names = subprocess.run(
        ["git", "ls-files", "-z", *WHERE], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    found = []
    for name in filter(None, names.stdout.split("\0")):
        try:
            lines = (ROOT / name).read_text("utf-8").splitlines()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        found += [
            f"{name}:{number}: {one}" for number, line in enumerate([name, *lines]) for one in refused(_own(line))
        ]
    assert not found, "\n" + "\n".join(found)


def _own(line: str) -> str:
    """Return a line without paths of decision records, whose names stay."""
    return re.sub(r"decisions/[\w.-]+", "", line)
