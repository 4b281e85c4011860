"""The page of the doctor's sentences is whole and points to tests that exist."""

from tests.support.doctor_sentences import PAGE, SENTENCES, codes_in_the_program, page
from tests.support.names import existing_tests


def test_given_the_sentences_when_the_page_is_made_then_the_committed_one_is_the_same() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_given_every_code_of_the_program_when_looked_up_then_it_has_a_test_that_exists() -> None:
    assert {one.code for one in SENTENCES} == codes_in_the_program()
    assert [one.test for one in SENTENCES if one.test not in existing_tests()] == []
