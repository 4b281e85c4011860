from tests.matrix import page
from tests.matrix.cells import CELLS


def test_given_the_kept_results_when_the_page_of_versions_is_made_then_the_committed_one_is_the_same() -> None:
    assert page.PAGE.read_text() == page.render()


def test_given_the_kept_results_when_their_cells_are_looked_up_then_each_is_there() -> None:
    names = [cell.name for cell in CELLS]
    assert len(set(names)) == len(names)
    assert set(page.results()) <= set(names)


def test_given_a_cell_without_a_result_when_shown_then_it_says_not_run() -> None:
    assert "| not run" in page._row(CELLS[0], None)
