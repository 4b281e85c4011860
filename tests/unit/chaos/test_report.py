from tests.chaos.report import RESULTS, SECTIONS, made


def test_given_the_committed_results_when_the_pages_are_made_then_the_committed_ones_are_the_same() -> None:
    assert {page: page.read_text() for page in made()} == made()
    assert {path.stem for path in RESULTS.glob("*.json")} == SECTIONS.keys()
