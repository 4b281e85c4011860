"""The pages whose rows name tests are whole, and point to tests that exist."""

import re
from pathlib import Path

import pytest

from tests.support.names import existing_tests

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs/reference"
SENTENCES = (ROOT / "discovery/doctor/diagnose.py", ROOT / "discovery/core/prediction/clients.py")


def rows(page: str) -> list[list[str]]:
    """Return the cells of every row but the tables' heads."""
    lines = (REFERENCE / page).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [row for row in cells if row[-1] != "shown by"]


@pytest.mark.parametrize("page", ["acceptance.md", "doctor.md"])
def test_given_a_row_when_its_tests_are_looked_up_then_they_exist_or_it_says_why_there_are_none(page: str) -> None:
    for row in rows(page):
        tests = re.findall(r"`([\w/]+\.py::\w+)`", row[-1])
        assert tests or row[-1].startswith("does not concern a source: "), row
        assert [test for test in tests if test not in existing_tests()] == []


def test_given_the_acceptance_cases_when_counted_then_none_is_left_out() -> None:
    wanted = [f"A{number:02}" for number in range(1, 57)] + [f"B{number:02}" for number in range(1, 21)]
    assert [row[0] for row in rows("acceptance.md")][: len(wanted)] == wanted


def test_given_the_services_checklist_when_its_files_are_looked_up_then_they_exist() -> None:
    folders = {"i": "tests/integration", "s": "tests/spark", "p": "tests/property", "tests": "tests"}
    named = re.findall(r"`([\w/]*test_\w+\.py)", (REFERENCE / "checklist.md").read_text(encoding="utf-8"))
    parts = [name.partition("/") for name in named]
    paths = [f"{folders[top]}/{rest}" if top in folders else f"tests/unit/{top}/{rest}" for top, _, rest in parts]
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_given_every_code_of_the_doctor_when_looked_up_then_the_page_has_it() -> None:
    codes = {code for path in SENTENCES for code in re.findall(r'code="([a-z-]+)"', path.read_text(encoding="utf-8"))}
    assert {row[0].strip("`") for row in rows("doctor.md")} == codes
