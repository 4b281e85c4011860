"""Cut and rewind, explored to the end: no row is lost or repeated, and each reason for it is needed."""

import pytest

from tests.property.cut_model import World, explore
from tests.property.cut_mutants import MUTANTS

SMALL = {
    "tasks commit": World(batches=3, ghosts=0),
    "the driver commits, the first counts": World(sink="batch", rows=1, batches=4, ghosts=1),
    "the driver commits, the last counts": World(sink="batch-last", rows=1, batches=4, ghosts=1),
    "late requests": World(rows=1, batches=4),
    "two scans": World(scans=2, batches=3, attempts=1, ghosts=0),
    "two scans, two attempts": World(rows=1, scans=2, crashes=0, batches=3, ghosts=0),
    "two pieces": World(pieces=2, batches=3, attempts=1, ghosts=0),
    "two pieces, two attempts": World(pieces=2, crashes=0, batches=2, ghosts=0),
    "two pieces, two scans": World(pieces=2, scans=2, crashes=0, batches=2, attempts=1, ghosts=0),
    "two pieces, the driver commits": World(pieces=2, sink="batch", batches=2, attempts=1, ghosts=0),
    "idle batches, two crashes": World(rows=1, idle=True, crashes=2, batches=3, ghosts=0),
}
LARGE = {
    "tasks commit": World(),
    "tasks commit, two crashes": World(crashes=2, batches=3, ghosts=0),
    "the driver commits, the first counts": World(sink="batch"),
    "the driver commits, the last counts, two crashes": World(sink="batch-last", crashes=2, batches=3, ghosts=0),
    "three attempts": World(batches=3, attempts=3, ghosts=0),
    "three pieces": World(rows=3, pieces=3, batches=2, crashes=0, ghosts=0),
    "two pieces, two attempts": World(pieces=2, crashes=0, batches=3, ghosts=0),
    "two pieces, late requests": World(pieces=2, batches=3, attempts=1),
    "idle batches": World(idle=True, batches=3),
    "two scans, two attempts": World(scans=2, crashes=0, batches=3, ghosts=0),
}


@pytest.mark.parametrize("name", SMALL)
def test_given_a_small_world_when_explored_to_the_end_then_no_row_is_lost_or_repeated(name: str) -> None:
    explore(SMALL[name]).proves()


@pytest.mark.timeout(7200)
@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_given_a_large_world_when_explored_to_the_end_then_no_row_is_lost_or_repeated(name: str) -> None:
    explore(LARGE[name]).proves()


@pytest.mark.parametrize("name", MUTANTS)
def test_given_a_mutant_when_explored_then_a_row_is_lost_or_repeated(name: str) -> None:
    explore(MUTANTS[name], limit=2_000_000).refutes()
