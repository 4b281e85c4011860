import json

from benchmarks.report import BEGIN, END, PAGE, README, RESULT, page, sections, table


def test_given_the_committed_result_when_the_pages_are_made_then_the_committed_ones_are_the_same() -> None:
    result = json.loads(RESULT.read_text())
    assert PAGE.read_text() == page(result) + sections()
    shown = README.read_text().split(BEGIN)[1].split(END)[0].strip()
    assert shown == table(result)
