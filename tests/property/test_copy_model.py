"""The protocol of `copy`, explored to the end: no record is lost or repeated, and each reason for it is needed."""

import pytest

from tests.property.copy_model import World, explore

SMALL = {
    "one partition, overlapping attempts": World(),
    "one partition, two crashes": World(attempts=1, crashes=2),
    "two partitions": World(ends=((1, 1),), attempts=1),
    "down or idle for more than a week": World(attempts=1, weeks=1),
    "idle for more than a week, overlapping attempts": World(crashes=0, weeks=1),
    "two partitions, down or idle for more than a week": World(ends=((0, 1), (0, 2)), attempts=1, weeks=1),
}
LARGE = {
    "down or idle for more than a week, overlapping attempts": World(weeks=1),
    "two partitions, overlapping attempts": World(ends=((1, 1),)),
    "two partitions, two crashes, down or idle for more than a week": World(
        ends=((0, 1), (0, 2)), attempts=1, crashes=2, weeks=1
    ),
}
MUTANTS = {
    "the offset is read before the fence": World(fences_first=False),
    "an offset on its way is read over": World(waits=False),
    "what is committed is no record": World(attempts=1, weeks=1, records=False),
    "a start fences nobody before it looks what is lost": World(
        attempts=1, crashes=2, weeks=1, restore=("read", "fence", "commit")
    ),
    "a start puts offsets back while tasks are still let in": World(
        ends=((0, 1), (0, 2)), attempts=1, crashes=2, weeks=1, restore=("fence", "read", "commit")
    ),
    "a task takes a missing offset for the beginning": World(attempts=1, weeks=1, asks_records=False),
}


def show(world: World) -> None:
    explored = explore(world)
    explored.proves()
    assert explored.counts["finished"], "nothing went wrong since nothing was ever finished"


@pytest.mark.parametrize("name", SMALL)
def test_given_a_small_world_when_explored_to_the_end_then_each_record_is_copied_once(name: str) -> None:
    show(SMALL[name])


@pytest.mark.timeout(7200)
@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_given_a_large_world_when_explored_to_the_end_then_each_record_is_copied_once(name: str) -> None:
    show(LARGE[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_given_a_mutant_when_explored_then_a_record_is_lost_or_repeated(name: str) -> None:
    explore(MUTANTS[name]).refutes()
