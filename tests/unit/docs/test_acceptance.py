"""The page of acceptance cases is complete and points to tests that exist."""

from tests.support.acceptance import CASES, LOSSES, PAGE, page
from tests.support.names import existing_tests


def test_given_the_cases_when_the_page_is_made_then_the_committed_one_is_the_same() -> None:
    assert PAGE.read_text() == page()


def test_given_every_case_when_looked_up_then_it_has_tests_that_exist_or_says_why_not() -> None:
    wanted = [f"A{number:02}" for number in range(1, 57)] + [f"B{number:02}" for number in range(1, 21)]
    assert [case.name for case in CASES] == wanted
    named = [test for case in (*CASES, *LOSSES) for test in case.tests]
    assert [test for test in named if test not in existing_tests()] == []
    assert [case.name for case in (*CASES, *LOSSES) if not case.tests and not case.note] == []
