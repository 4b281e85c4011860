"""The lanes protocol, explored to the end: no row is lost, repeated or torn, and each reason for it is needed."""

import os

import pytest

from tests.property.lanes_model import World, explore
from tests.property.lanes_mutants import MUTANTS, ONE

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "exhaustive"
SMALL = {
    "one lane, overlapping attempts": World(batches=ONE),
    "one lane of two rows": World(attempts=1),
    "an empty batch": World(batches=((0,), (), (0,)), attempts=1),
    "two lanes": World(batches=((0, 1),), lanes=2, attempts=1),
    "two lanes, one of them empty": World(batches=((0,), (1,)), lanes=2, attempts=1),
    "a checkpoint one batch older": World(batches=ONE, attempts=1, rolled_back=1),
    "a checkpoint two batches older": World(batches=ONE, attempts=1, rolled_back=2),
    "down for more than a week": World(batches=ONE, attempts=1, weeks=1),
    "down for more than a week, two lanes": World(batches=((0, 1), (0,)), lanes=2, attempts=1, weeks=1),
    "two lanes, then one": World(lanes=2, lanes_later=1, attempts=1),
    "one lane, then two": World(lanes=1, lanes_later=2, attempts=1),
    "two lanes, a replay gives rows to the other": World(batches=((0,),), lanes=2, attempts=1, is_shuffled=True),
    "two lanes, a replay of the second batch gives rows to the other": World(
        batches=((), (0,)), lanes=2, attempts=1, is_shuffled=True
    ),
    "two lanes in one task": World(batches=((0, 1),), lanes=2, tasks_later=1, attempts=1),
}
LARGE = {
    "two lanes, a replay gives rows to the other, overlapping attempts": World(
        batches=((0, 1), (0,)), lanes=2, attempts=1, crashes=2, is_shuffled=True
    ),
    "one lane, three attempts": World(batches=ONE, attempts=3),
    "one lane of two rows, overlapping attempts": World(),
    "one lane, two crashes": World(batches=ONE, crashes=2),
    "one lane, three batches": World(batches=((0,), (0,), (0,))),
    "two lanes, two batches": World(lanes=2, attempts=1),
    "two lanes, overlapping attempts": World(batches=((0, 1),), lanes=2, crashes=0),
    "two lanes, then one, two crashes": World(batches=((0, 1),), lanes=2, lanes_later=1, attempts=1, crashes=2),
    "four lanes in two tasks": World(batches=((0, 2),), lanes=4, tasks_later=2, attempts=1),
    "a checkpoint two batches older, overlapping attempts": World(batches=ONE, rolled_back=2),
    "down for more than a week, overlapping attempts": World(batches=ONE, weeks=1),
}


def show(world: World) -> None:
    explored = explore(world)
    print(f"{explored.states} states, {dict(explored.verdicts)}")  # noqa: T201 - shown with -s, and when it fails
    assert explored.violation is None, "\n".join([explored.violation.text, *explored.violation.trail])
    assert explored.finished, "nothing went wrong since nothing was ever finished"


@pytest.mark.parametrize("name", SMALL)
def test_given_a_small_world_when_explored_to_the_end_then_no_row_is_lost_repeated_or_torn(name: str) -> None:
    show(SMALL[name])


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not LONG, reason="minutes each: make test-long")
@pytest.mark.parametrize("name", LARGE)
def test_given_a_large_world_when_explored_to_the_end_then_no_row_is_lost_repeated_or_torn(name: str) -> None:
    show(LARGE[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_given_a_mutant_when_explored_then_a_row_is_lost_repeated_or_torn(name: str) -> None:
    explored = explore(MUTANTS[name])
    assert explored.violation is not None, f"{explored.states} states and nothing went wrong"
    print(f"{name}: {explored.violation.text} after {len(explored.violation.trail)} steps")  # noqa: T201
