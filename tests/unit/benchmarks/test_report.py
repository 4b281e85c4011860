import json

from benchmarks.report import BEGIN, END, PEERS, README, THROUGHPUT, figures, made


def test_given_the_committed_results_when_the_pages_are_made_then_the_committed_ones_are_the_same() -> None:
    assert {page: page.read_text() for page in made()} == made()
    shown = README.read_text().split(BEGIN)[1].split(END)[0].strip()
    assert shown == figures(json.loads(PEERS.read_text()), json.loads(THROUGHPUT.read_text()))


def test_given_the_three_figures_when_shown_then_a_peer_is_better_in_one_of_them() -> None:
    lines = figures(json.loads(PEERS.read_text()), json.loads(THROUGHPUT.read_text())).splitlines()[2:]
    assert len(lines) == 3
    assert any("★" in line for line in lines)
