"""The report: honest about what failed, readable, and self-contained."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from discovery.core.errors import StateError
from discovery.demo.follow import Batch
from discovery.demo.play import Outcome, require_space
from discovery.demo.recording import BrokerState, Mark, Moment, Recording, Sample
from discovery.demo.report.live_view import figures as line_of_figures
from discovery.demo.report.measure import Audit
from discovery.demo.report.outcome import Figures, goals
from discovery.demo.report.story import chapters, headline, lead
from discovery.demo.report.timeline import draw, nice_ceiling
from discovery.demo.report.write import REPORT_NAMES, write_report
from discovery.demo.scenario import parked_partitions
from discovery.demo.settings import DemoSettings, full

EXACT = Audit(
    events_produced=1000,
    events_counted=1000,
    duplicates=0,
    lost=0,
    checksum_mismatches=0,
    dead_letters_expected=9,
    dead_letters_found=9,
    dead_letters_unexpected=0,
)
GOOD = Figures(
    brokers=12,
    audit=EXACT,
    single_audit=EXACT,
    daily_users=[("2026-01-01", 40, 600), ("2026-01-02", 50, 400)],
    brokers_killed=4,
    brokers_doomed=4,
    partitions_before=24,
    partitions_after=30,
    first_start_seconds=9.0,
    batch_seconds_p50=0.7,
    cores=2,
    load_average=8.6,
    new_partition_seconds={24: 0.5},
    new_partition_seconds_p50=0.5,
    new_partition_seconds_p99=0.9,
    kill_gap_seconds=6.5,
    kill_gap_partition_seconds=7.5,
    freeze_gap_seconds=2.0,
    dead_list_restart_seconds=9.5,
    single_partitions=12,
    single_leaderless=(1, 4),
    single_named=(1, 4),
    single_flowing_seconds=8.0,
    single_returned_seconds=1.0,
)


def recording() -> Recording:
    made = Recording()
    states = dict.fromkeys(range(1, 13), BrokerState.ALIVE)
    for second in range(60):
        dead = dict.fromkeys(range(9, 13), BrokerState.DEAD) if second > 20 else {}
        made.sample(Sample(wall=1000.0 + second, lag=second, partitions=24, brokers={**states, **dead}))
    made.mark(Mark(wall=1005.0, moment=Moment.STARTED, text="It <runs> & counts.", label="job runs"))
    made.mark(Mark(wall=1020.0, moment=Moment.KILLED, text="Brokers died.", label="4 brokers killed"))
    made.mark(Mark(wall=1021.0, moment=Moment.FROZEN, text="Brokers froze.", label="2 <frozen>"))
    made.mark(Mark(wall=1059.0, moment=Moment.RETURNED, text="Back.", label="brokers back"))
    return made


def outcome(figures: Figures = GOOD, failure: str | None = None) -> Outcome:
    return settled(full(), figures, failure)


def settled(settings: DemoSettings, figures: Figures, failure: str | None = None) -> Outcome:
    return Outcome(settings=settings, figures=figures, goals=goals(figures), recording=recording(), failure=failure)


BATCHES = [
    Batch(batch_id=i, finished_wall=1000.0 + i, rows=100 if i else 9000, end_offsets={"0": i}) for i in range(60)
]


def test_given_good_figures_when_judged_then_every_promise_is_kept() -> None:
    assert [goal.name for goal in outcome().goals if not goal.met] == []
    assert outcome().ok
    assert headline(GOOD, outcome().broken, None) == "Four of twelve brokers died, and the count is exact"


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"audit": replace(EXACT, events_counted=999, lost=1)}, {"events_counted", "lost"}),
        ({"audit": replace(EXACT, events_counted=1001, duplicates=1)}, {"events_counted", "duplicates"}),
        ({"audit": replace(EXACT, checksum_mismatches=1)}, {"checksum_mismatches"}),
        ({"audit": replace(EXACT, dead_letters_found=8)}, {"dead_letters"}),
        ({"audit": replace(EXACT, dead_letters_unexpected=1)}, {"dead_letters"}),
        ({"audit": replace(EXACT, events_produced=0, events_counted=0)}, {"events_counted"}),
        ({"audit": None}, {"events_counted"}),
        ({"single_audit": replace(EXACT, lost=1)}, {"single_lost"}),
        ({"query_restarts": 1}, {"query_restarts"}),
        ({"records_failed": 1}, {"records_failed"}),
        ({"brokers_killed": 3}, {"brokers_killed"}),
        ({"new_partition_seconds_p99": None}, {"new_partition_seconds_p99"}),
        ({"single_named": (1, 4, 5)}, {"single_parked"}),
        ({"single_named": (1,)}, {"single_parked"}),
        ({"single_flowing_seconds": None}, {"single_flowing"}),
    ],
)
def test_given_a_broken_promise_when_judged_then_exactly_it_is_red(
    change: dict[str, Any], broken: set[str], tmp_path: Path
) -> None:
    figures = replace(GOOD, **change)
    assert {goal.name for goal in outcome(figures).broken} == broken
    assert not outcome(figures).ok
    assert "not kept" in headline(figures, outcome(figures).broken, None)
    write_report(outcome(figures), BATCHES, tmp_path)
    assert "not all promises kept" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "late"),
    [
        ({"first_start_seconds": 25.1}, {"first_start_seconds"}),
        ({"batch_seconds_p50": 1.1}, {"batch_seconds_p50"}),
        ({"demo_seconds": 240.1}, {"demo_seconds"}),
        ({"new_partition_seconds_p99": 5.1}, {"new_partition_seconds_p99"}),
        ({"kill_gap_seconds": 8.1}, {"kill_gap_seconds"}),
        ({"dead_list_restart_seconds": 14.1}, {"dead_list_restart_seconds"}),
        ({"dead_list_restart_seconds": 15.1}, {"dead_list_restart_seconds", "dead_list_start_seconds"}),
    ],
)
def test_given_a_missed_time_when_judged_then_it_stands_beside_the_machine_and_fails_only_a_strict_demo(
    change: dict[str, Any], late: set[str], tmp_path: Path
) -> None:
    slow = outcome(replace(GOOD, **change))
    assert slow.ok
    assert {goal.name for goal in slow.late} == late
    assert headline(slow.figures, slow.broken, None) == headline(GOOD, (), None)
    write_report(slow, BATCHES, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count("s (2 cores, load 9)</td>") == len(late)
    assert "some later than planned" in page
    strict = settled(full(strict=True), slow.figures)
    assert not strict.ok
    assert ({goal.name for goal in strict.broken}, strict.late) == (late, ())


def test_given_a_demo_that_stopped_when_reported_then_the_reason_leads(tmp_path: Path) -> None:
    stopped = outcome(Figures(brokers=12), failure="the job ended with exit code 1: boom <x>")
    assert not stopped.ok
    write_report(stopped, (), tmp_path)
    assert "boom &lt;x&gt;" in (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["failure"].endswith("boom <x>")


def test_given_an_outcome_when_reported_then_the_fields_are_there_and_the_page_needs_nothing_else(
    tmp_path: Path,
) -> None:
    write_report(outcome(), BATCHES, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(REPORT_NAMES)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["ok"] is True
    assert (report["events_produced"], report["events_counted"], report["lost"]) == (1000, 1000, 0)
    assert report["kill_gap_seconds"] == 6.5
    assert report["events"][1] == {"second": 20.0, "kind": "killed", "text": "Brokers died."}
    page = (tmp_path / "report.html").read_text()
    loads = LoadsNothing()
    loads.feed(page)
    assert loads.found == []
    assert "$" not in page
    assert "prefers-color-scheme:dark" in page


def test_given_too_little_space_when_a_demo_is_asked_for_then_one_line_says_how_much_and_where(tmp_path: Path) -> None:
    require_space(tmp_path, needed_bytes=1)
    with pytest.raises(StateError, match=f"{tmp_path} has .* MB free and a demo needs .* MB there: free some space"):
        require_space(tmp_path, needed_bytes=1 << 60)


class LoadsNothing(HTMLParser):
    """Collects whatever would make a browser ask for something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe"} or any(name in {"src", "href"} for name, _ in attrs):
            self.found.append(tag)


def test_given_a_recording_when_drawn_then_the_picture_is_valid_and_shows_every_label() -> None:
    picture = ET.fromstring(draw(recording().samples, recording().marks, BATCHES))  # noqa: S314 - our own text
    texts = ["".join(node.itertext()) for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"job runs", "4 brokers killed", "2 <frozen>", "brokers back"} <= set(texts)
    assert any(node.get("class") == "kd-dead" for node in picture.iter())


def test_given_nothing_recorded_when_drawn_then_there_is_still_a_picture() -> None:
    assert ET.fromstring(draw((), (), ())).tag.endswith("svg")  # noqa: S314 - our own text


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0, 1), (1, 1), (3, 4), (24, 40), (30, 40), (55, 60), (1000, 1000), (1001, 2000)]
)
def test_given_a_value_when_an_axis_is_chosen_then_it_ends_at_a_round_number(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == ceiling


def test_given_figures_when_rendered_then_the_numbers_are_in_the_sentences() -> None:
    text = " ".join(text for _, text in chapters(GOOD))
    for number in ("0.50 seconds", "0.90 seconds", "6.5 seconds", "9.5 seconds", "1 and 4"):
        assert number in text
    assert "none lost, none counted twice" in lead(GOOD, None)
    assert chapters(Figures(brokers=12)) == []


def test_given_a_log_when_read_then_the_last_word_on_parked_partitions_counts() -> None:
    log = (
        "WARN partitions parked: single-1 (no leader), single-10 (no leader)\n"
        "noise about single-3\n"
        "partitions parked: single-1 (leader 9 is silent), single-11 (no leader), other-4 (no leader)\n"
    )
    assert parked_partitions(log, "single") == (1, 11)
    assert parked_partitions(log + "partitions parked: none\n", "single") == ()
    assert parked_partitions("", "single") == ()


def test_given_a_sample_when_said_in_a_line_then_it_names_the_dead() -> None:
    sample = recording().samples[-1]
    assert "8 alive, 4 dead" in line_of_figures(sample)
