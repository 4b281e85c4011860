"""The lanes protocol, explored to the end: no row is lost, repeated or torn, and each reason for it is needed."""

from dataclasses import replace

import pytest

from discovery.spark.sink.lanes import OnMismatch
from tests.property.lanes_model import explore
from tests.property.lanes_mutants import FEWER_LATER, MUTANTS, ONE
from tests.property.lanes_world import World

KEEP, REWRITE = OnMismatch.KEEP_COMMITTED, OnMismatch.REWRITE
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
    "other content at a replay, refused": World(batches=ONE, attempts=1, varies=True),
    "other content at a replay, the first is kept": World(batches=ONE, attempts=1, varies=True, policy=KEEP),
    "other content at a replay, the first is kept, overlapping attempts": World(
        batches=((0,),), varies=True, policy=KEEP
    ),
    "other content at a replay, it is written too": World(batches=((0,),), varies=True, policy=REWRITE),
    "a replay has a row where there was none": World(batches=((), (0,)), attempts=1, more_later=(2,), rolled_back=1),
    "a replay has a row where a lane was empty": World(batches=((0,),), lanes=2, attempts=1, more_later=(1,)),
    "a replay has a row where there was none, and nothing is kept": World(
        batches=((),), attempts=1, more_later=(0,), policy=KEEP
    ),
    "a replay has a row where there was none, and it is written": World(
        batches=((),), attempts=1, more_later=(0,), policy=REWRITE
    ),
    "a replay has a row where a lane was empty, down for more than a week": World(
        batches=((0,),), lanes=2, attempts=1, more_later=(1,), weeks=1
    ),
    "taken over": World(batches=ONE, attempts=1, crashes=2, takeovers=1),
    "down for more than a week, two lanes, then one": World(
        batches=((1,), (1,)), lanes=2, lanes_later=1, attempts=1, weeks=1
    ),
    "down for more than a week, one lane, then two": World(batches=((1,), (1,)), lanes_later=2, attempts=1, weeks=1),
    "taken over, and down for more than a week": World(batches=ONE, attempts=1, weeks=1, takeovers=1),
    "taken over, and a late control record": World(batches=ONE, attempts=1, takeovers=1, late_words=True),
    "taken over, two lanes, then one": World(batches=((0, 1),), lanes=2, lanes_later=1, attempts=1, takeovers=1),
    "a late control record, one lane": World(batches=ONE, attempts=1, late_words=True),
    "a late control record, two lanes": World(batches=((), (1,)), lanes=2, attempts=1, late_words=True),
    "a late control record, two lanes, then one": FEWER_LATER,
    "a late control record, two full lanes, then one": replace(FEWER_LATER, batches=((0, 1),)),
    "a late control record, one lane, then two": World(
        batches=((1,),), lanes_later=2, crashes=2, later_from=3, attempts=1, late_words=True
    ),
    "a glance before each attempt": World(batches=ONE, attempts=1, glances=True, is_healthy=True),
    "a glance before each attempt, overlapping attempts": World(batches=ONE, crashes=0, glances=True, is_healthy=True),
}
LARGE = {
    "other content at a replay, the first is kept, two lanes": World(
        batches=((0, 1),), lanes=2, attempts=1, varies=True, policy=KEEP
    ),
    "other content at a replay, it is written too, two lanes": World(
        batches=((0, 1),), lanes=2, attempts=1, varies=True, policy=REWRITE
    ),
    "taken over, two lanes": World(batches=((0, 1),), lanes=2, attempts=1, takeovers=1),
    "a late control record after an empty batch, two lanes, then one": replace(FEWER_LATER, batches=((), (1,))),
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
    "three lanes in two tasks": World(batches=((0, 1),), lanes=3, tasks_later=2, attempts=1),
    "a checkpoint two batches older, overlapping attempts": World(batches=ONE, rolled_back=2),
    "down for more than a week, overlapping attempts": World(batches=ONE, weeks=1),
}


def show(world: World) -> None:
    explored = explore(world)
    explored.proves()
    assert explored.counts["finished"], "nothing went wrong since nothing was ever finished"


@pytest.mark.parametrize("name", SMALL)
def test_given_a_small_world_when_explored_to_the_end_then_no_row_is_lost_repeated_or_torn(name: str) -> None:
    show(SMALL[name])


@pytest.mark.timeout(7200)
@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_given_a_large_world_when_explored_to_the_end_then_no_row_is_lost_repeated_or_torn(name: str) -> None:
    show(LARGE[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_given_a_mutant_when_explored_then_a_row_is_lost_repeated_or_torn(name: str) -> None:
    explore(MUTANTS[name]).refutes()
