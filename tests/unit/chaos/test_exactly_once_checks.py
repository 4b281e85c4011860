"""The checker itself: a sound run passes, and each planted fault is found by the check that is meant for it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.sink.chaos import Kept, Result, table
from tests.chaos.sink.checks import CHECKS, Finding, findings
from tests.chaos.sink.engine import Plan, Run
from tests.chaos.sink.evidence import Evidence, Proof, Said, Seen
from tests.chaos.sink.faults import Fault

PLACE = ("out", 0)
NO_SINK: Any = None


def run() -> Evidence:
    """Two batches in two lanes; lane 1 of batch 1 was written by an attempt whose end nobody heard."""
    seen = tuple(
        Seen(
            id=f"{batch}-{lane}-{seq}",
            place=PLACE,
            offset=100 * batch + 10 * lane + seq,
            batch=batch,
            lane=lane,
            attempt=f"a{batch}{lane}",
            seq=seq,
            key=f"k{lane}",
            number=10 * batch + seq,
        )
        for batch in range(2)
        for lane in range(2)
        for seq in range(3)
    )
    said = (Said(0, 0, "a00", "written"), Said(1, 0, "a01", "written"), Said(0, 1, "a10", "written"))
    markers = [{lane: Proof(batch, 3, f"a{batch}{lane}") for lane in range(2)} for batch in range(2)]
    return Evidence(
        expected=frozenset(s.id for s in seen),
        committed=seen,
        again=seen,
        tail=seen,
        everything=(*seen, seen[0]._replace(offset=500, attempt="aborted")),
        said=(*said, Said(1, 1, "b11", "kept")),
        markers=tuple(markers),
        last_batch=1,
        stable_ends={PLACE: (501, 501)},
        seconds_to_progress=3.0,
    )


def without(e: Evidence, index: int) -> Evidence:
    kept = e.committed[:index] + e.committed[index + 1 :]
    return replace(e, committed=kept, again=kept, tail=kept)


def also(e: Evidence, more: Seen) -> Evidence:
    return replace(e, committed=(*e.committed, more), again=(*e.committed, more))


PLANTED: dict[str, tuple[str, Callable[[Evidence], Evidence]]] = {
    "a row is missing": ("C1 lost", lambda e: without(e, 11)),
    "the tailing reader missed a row": ("C1 lost", lambda e: replace(e, tail=e.committed[1:])),
    "a row is there twice": ("C2 duplicate", lambda e: also(e, e.committed[0]._replace(offset=600))),
    "a row was seen twice by the tailing reader alone": (
        "C2 duplicate",
        lambda e: replace(e, tail=(*e.committed, e.committed[3])),
    ),
    "a row that is none of the input's": ("C2 duplicate", lambda e: also(e, e.committed[0]._replace(id="x"))),
    "rows of an attempt that nobody confirmed": (
        "C3 aborted read",
        lambda e: replace(e, said=tuple(s for s in e.said or () if s.outcome != "kept")),
    ),
    "an attempt that said it wrote and is not there": (
        "C3 aborted read",
        lambda e: replace(e, said=(*(e.said or ()), Said(0, 0, "other", "written"))),
    ),
    "a committed record that no uncommitted reader has": (
        "C3 aborted read",
        lambda e: replace(e, everything=(e.everything or ())[1:]),
    ),
    "half a lane": ("C4 torn lane", lambda e: without(e, 7)),
    "the end of a lane is missing": ("C4 torn lane", lambda e: without(e, 11)),
    "a lane of two attempts": (
        "C4 torn lane",
        lambda e: replace(e, committed=(e.committed[0]._replace(attempt="other"), *e.committed[1:]), again=e.committed),
    ),
    "another order in a lane": (
        "C5 order",
        lambda e: also(without(e, 0), e.committed[0]._replace(offset=600, key="")),
    ),
    "another order in a key": (
        "C5 order",
        lambda e: replace(e, committed=(*e.committed[:11], e.committed[11]._replace(number=-1)), again=e.committed),
    ),
    "a marker that went back": ("C6 marker", lambda e: replace(e, markers=e.markers[::-1])),
    "a marker that vanished": ("C6 marker", lambda e: replace(e, markers=(e.markers[0], {0: e.markers[1][0]}))),
    "a marker ahead of Spark": ("C6 marker", lambda e: replace(e, last_batch=0)),
    "a second read that differs": ("C7 stability", lambda e: replace(e, again=e.committed[:-1])),
    "an open transaction": ("C8 hanging transaction", lambda e: replace(e, stable_ends={PLACE: (480, 501)})),
    "a sentinel that nobody can read": ("C8 hanging transaction", lambda e: replace(e, sentinels_read=False)),
    "a restart that wrote again": ("C9 restart", lambda e: replace(e, new_after_restart=3)),
    "a query that stands still": ("C10 liveness", lambda e: replace(e, seconds_to_progress=61.0)),
}


def test_given_a_sound_run_when_checked_then_nothing_is_found() -> None:
    assert findings(run()) == ()


def plain(e: Evidence) -> Evidence:
    """The same without the header that says whose a record is, as production writes it."""
    records = tuple(seen._replace(batch=-1, lane=-1, attempt="", seq=-1) for seen in e.committed)
    return replace(e, committed=records, again=records, tail=records, everything=records)


def test_given_records_as_in_production_when_checked_then_nothing_is_found_and_a_lost_or_repeated_one_is() -> None:
    sound = plain(run())
    assert findings(sound) == ()
    assert "C1 lost" in {finding.check for finding in findings(without(sound, 11))}
    assert "C2 duplicate" in {finding.check for finding in findings(also(sound, sound.committed[0]._replace(offset=9)))}


def test_given_faults_that_nobody_came_to_when_counted_then_only_those_that_came_about_are(tmp_path: Path) -> None:
    drawn = tuple(Fault(batch=batch, point="step5.middle", lane=1, action="kill") for batch in range(2))
    faults = (*drawn, Fault(batch=0, point="commit.after", action="stop"), Fault(batch=1, action="pause a broker"))
    for name in ("step5.middle@1.held.17", "commit.after"):
        (tmp_path / name).touch()
    assert Run(NO_SINK, Plan(seed=1, lanes=2, batches=(), faults=faults), tmp_path).hits() == drawn[:1]


@pytest.mark.parametrize("name", PLANTED)
def test_given_a_planted_fault_when_checked_then_its_check_finds_it(name: str) -> None:
    check, plant = PLANTED[name]
    assert check in {finding.check for finding in findings(plant(run()))}


def test_given_all_checks_when_counted_then_each_has_a_planted_fault() -> None:
    assert {check for check, _ in PLANTED.values()} == set(CHECKS)


def test_given_runs_in_turn_when_their_results_are_kept_then_one_table_counts_them_all(tmp_path: Path) -> None:
    sound = Result(seed=1, faults=("kill step0.before",), rows=5, seconds=1.0, findings=())
    unsound = Result(seed=2, faults=("stop",), rows=7, seconds=1.0, findings=(Finding("C1 lost", "x"),), kind="Spark")
    Kept(tmp_path / "kept").add(sound)
    kept = Kept(tmp_path / "kept")
    kept.add(unsound)
    assert Kept(tmp_path / "kept").results == [sound, unsound]
    assert "| stop | 1 | 1 |" in table(kept.results)
    assert table(kept.results).endswith(
        "2 seeds (1 Spark, 1 tasks), 12 rows: lost = 1, duplicates = 0, torn = 0; 1 seeds not sound"
    )
