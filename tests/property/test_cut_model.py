"""Cut and rewind, explored to the end: no row is lost or repeated, and each reason for it is needed."""

import os

import pytest

from tests.property.cut_model import World, explore
from tests.property.cut_mutants import MUTANTS

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "exhaustive"
SMALL = {
    "tasks commit": World(batches=3, ghosts=0),
    "the driver commits, the first counts": World(sink="batch", rows=1, batches=4, ghosts=1),
    "the driver commits, the last counts": World(sink="batch-last", rows=1, batches=4, ghosts=1),
    "late requests": World(rows=1, batches=4),
    "two scans": World(scans=2, batches=3, attempts=1, ghosts=0),
    "two scans, two attempts": World(rows=1, scans=2, crashes=0, batches=3, ghosts=0),
    "idle batches, two crashes": World(rows=1, idle=True, crashes=2, batches=3, ghosts=0),
}
LARGE = {
    "tasks commit": World(),
    "tasks commit, two crashes": World(crashes=2, batches=3, ghosts=0),
    "the driver commits, the first counts": World(sink="batch"),
    "the driver commits, the last counts, two crashes": World(sink="batch-last", crashes=2, batches=3, ghosts=0),
    "three attempts": World(batches=3, attempts=3, ghosts=0),
    "idle batches": World(idle=True, batches=3),
    "two scans, two attempts": World(scans=2, crashes=0, batches=3, ghosts=0),
}


def show(world: World) -> None:
    explored = explore(world)
    print(f"{explored.states} states")  # noqa: T201 - shown with -s, and when it fails
    assert explored.violation is None, "\n".join([explored.violation.text, *explored.violation.trail])


@pytest.mark.parametrize("name", SMALL)
def test_given_a_small_world_when_explored_to_the_end_then_no_row_is_lost_or_repeated(name: str) -> None:
    show(SMALL[name])


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not LONG, reason="minutes each: make test-long")
@pytest.mark.parametrize("name", LARGE)
def test_given_a_large_world_when_explored_to_the_end_then_no_row_is_lost_or_repeated(name: str) -> None:
    show(LARGE[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_given_a_mutant_when_explored_then_a_row_is_lost_or_repeated(name: str) -> None:
    explored = explore(MUTANTS[name], limit=2_000_000)
    assert explored.violation is not None, f"{explored.states} states and nothing went wrong"
    print(f"{name}: {explored.violation.text} after {len(explored.violation.trail)} steps")  # noqa: T201
